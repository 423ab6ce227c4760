"""Run the studies of docs/results/: train, evaluate, tabulate, write the pages.

Run as: make results                     (after `make demo`; four hours on two cores with other trainings beside it,
                                         2026-11-30; `real_decoder` three more, both cores, 2026-12-01)
        make results FAST=1              (two steps and an item of each task: whether every command runs; 29 min
                                         beside another training on two cores, 2026-12-01, measured)
        python tools/results.py studies=[wer,fusion] seeds=[1,2]

Every stage is one of the project's own commands; what is there and valid ends at once, so a stopped run goes on. Pages
keep their section "## Reading". With fast=true runs and pages stay under runs/results_fast.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from demo import Stage, note_time, run_stage  # beside this script
from page import write_page
from studies import channels, encoders, real_decoder, scenes
from studies.study import ROOT, Setup

from wearllama_launch import existing_path, launch

STUDIES = channels.studies() | scenes.studies() | encoders.studies() | real_decoder.studies()

NEEDS = {"measured": "glasses", "encoders": "speech", "real_decoder": "speech"}
"""Key of the data that a study cannot do without."""


@dataclass(kw_only=True)
class Results:
    """Which studies, how often, and where."""

    studies: tuple[str, ...] = tuple(STUDIES)
    seeds: tuple[int, ...] = (1,)
    fast: bool = False
    demo: str = "runs/demo"
    """What `make demo` trained."""
    glasses: str = "../shared/data/glasses_rirs"
    """Responses measured on glasses."""
    speech: str = "../shared/data/speech_en/manifest.jsonl"
    """Recordings of real people.  A study without its data (:data:`NEEDS`) is left out, and said so."""

    def __post_init__(self) -> None:
        unknown = sorted(set(self.studies) - set(STUDIES))
        if unknown or not self.studies or not self.seeds:
            raise ValueError(f"studies {unknown} are unknown, wanted some of {list(STUDIES)}; seeds {self.seeds}")


@launch("results", Results)
def main(config: Results) -> None:
    existing_path(f"{config.demo}/sft", "demo")
    runs = "runs/results_fast" if config.fast else "runs/results"
    setup = Setup(runs=runs, demo=config.demo, fast=config.fast, seeds=config.seeds,
                  glasses=config.glasses, speech=config.speech)  # fmt: skip
    for name in config.studies:
        data = NEEDS.get(name)
        if data is not None and not (ROOT / getattr(config, data)).exists():
            print(f"\n{name}: left out, {data}={getattr(config, data)} is not there")
            continue
        study = STUDIES[name]
        pages = f"{runs}/pages" if config.fast else "docs/results"
        stages = study.stages(setup)
        figure = f"curves/{name}.svg"
        curves = curves_of(stages, f"{pages}/{figure}")
        stages = [*stages, *curves]
        for number, stage in enumerate(stages, start=1):
            print(f"\n[{name} {number}/{len(stages)}] {stage.title} (about {stage.minutes:g} min)", flush=True)
            note_time(ROOT / runs / "times.json", f"{name}: {stage.name}", run_stage(stage))
        tables = study.tables(setup)
        page = ROOT / pages / f"{name}.md"
        seeds = "" if config.seeds == (1,) else f" seeds=[{','.join(map(str, config.seeds))}]"
        whole = f"tools/results.py studies=[{name}]{seeds}      # all of these:"
        commands = [whole, *(stage.command for stage in stages)]
        write_page(page, study.title, study.intro, tables, commands, figure if curves else None)
        print(f"\n{tables[0].text()}\n\n{page.relative_to(ROOT)}")


def curves_of(stages: Sequence[Stage], out: str) -> list[Stage]:
    """The stage that draws the losses of what the others train by SFT, where they do."""
    runs = [word.removeprefix("run_dir=") for stage in stages if "recipes/sft.py" in stage.command
            for word in stage.command.split() if word.startswith("run_dir=")]  # fmt: skip
    if not runs:
        return []
    first, *others = runs
    command = f"tools/plot_run.py run={first} others=[{','.join(others)}] panels=[loss] out={out}"
    return [Stage("curves", "draw the losses", command, 0.1)]


if __name__ == "__main__":
    main()
