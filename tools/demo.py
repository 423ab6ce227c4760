"""The whole of WearLlama on an ordinary computer: fetch, simulate, prepare, train, evaluate, report.

Run as: make demo        (or: python tools/demo.py; python tools/demo.py from_stage=train)

Every stage is one of the project's own commands, printed before it runs. A stage whose output is there and valid ends
at once; Ctrl-C stops after the step in progress, and the same command goes on from there.
"""

import json
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from wearllama.atomic import write_json
from wearllama_launch import INTERRUPTED, launch

ROOT = Path(__file__).resolve().parents[1]


class Stage(NamedTuple):
    """One command of the demo."""

    name: str
    title: str
    command: str
    minutes: float
    """About how long it takes the first time on two cores."""


TWO_RANKS = "-m torch.distributed.run --standalone --nproc_per_node=2"
STAGES = (
    Stage("fetch", "fetch voices, recordings and noise", "tools/fetch_assets.py", 0.5),
    Stage("bank", "simulate room responses of the array", "tools/build_rir_bank.py", 0.7),
    Stage("prepare", "write and speak the texts, lay out the benchmarks", "tools/prepare_demo.py", 7.5),
    Stage(
        "read",
        "teach the decoder to read",
        f"{TWO_RANKS} recipes/sft.py experiment=demo_text run_dir=runs/demo/text",
        2.2,
    ),
    Stage(
        "train",
        "train projector and decoder to hear",
        "recipes/sft.py experiment=demo init=runs/demo/text run_dir=runs/demo/sft",
        10.5,
    ),
    Stage("wearvox", "evaluate on the WearVox layout", "eval/wearvox.py ckpt=runs/demo/sft", 1.2),
    Stage("vgbench", "evaluate on the VGBench layout", "eval/vgbench.py ckpt=runs/demo/sft", 0.8),
    Stage("report", "draw up the table and the page", "tools/report_demo.py", 0.2),
)
GRPO_STAGES = (
    Stage(
        "pairs",
        "speak counterfactual pairs",
        "tools/build_vgbench.py preset=demo benchmark=false out_dir=data/demo_pairs",
        1.5,
    ),
    Stage(
        "grpo",
        "compare both sides of pairs (GRPO)",
        "recipes/grpo.py experiment=demo_grpo ckpt=runs/demo/sft run_dir=runs/demo/grpo",
        1.5,
    ),
    Stage("gate", "evaluate VGBench after GRPO", "eval/vgbench.py ckpt=runs/demo/grpo controls=[]", 0.5),
)
"""Between the evaluation of the supervised model and the report, which shows both."""
StageName = Literal[
    "fetch", "bank", "prepare", "read", "train", "wearvox", "vgbench", "pairs", "grpo", "gate", "report"
]


@dataclass(kw_only=True)
class DemoCommand:
    """Which part of the demo to run."""

    from_stage: StageName = "fetch"
    to_stage: StageName = "report"
    grpo: bool = True
    """End with a short GRPO stage; the report then has a column for the model after it."""
    times: str = "runs/demo/times.json"
    """Where the seconds of each stage are kept."""


@launch("demo", DemoCommand)
def main(config: DemoCommand) -> None:
    stages = (*STAGES[:-1], *GRPO_STAGES, STAGES[-1]) if config.grpo else STAGES
    names = [stage.name for stage in stages]
    unknown = {config.from_stage, config.to_stage} - set(names)
    if unknown:
        raise ValueError(f"stages {sorted(unknown)} need grpo=true")
    chosen = stages[names.index(config.from_stage) : names.index(config.to_stage) + 1]
    if not chosen:
        raise ValueError(f"from_stage={config.from_stage} comes after to_stage={config.to_stage}")
    begin = time.perf_counter()
    for number, stage in enumerate(chosen, start=1):
        left = sum(other.minutes for other in chosen[number - 1 :])
        print(f"\n[{number}/{len(chosen)}] {stage.title} (about {stage.minutes:g} min when new; {left:.0f} min to go)")
        seconds = run_stage(stage)
        note_time(ROOT / config.times, stage.name, seconds)
        print(f"[{number}/{len(chosen)}] {stage.name}: {seconds:.0f} s", flush=True)
    print(f"\nall stages: {(time.perf_counter() - begin) / 60:.1f} min")


def run_stage(stage: Stage) -> float:
    """Run the stage's command and return its seconds; leaves with the command's own exit code when that is not 0."""
    print(f"$ python {stage.command}", flush=True)
    begin = time.perf_counter()
    process = subprocess.Popen([sys.executable, *stage.command.split()], cwd=ROOT)
    # Ctrl-C reaches the stage as well; it needs the time to save what it has.
    previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        code = process.wait()
    finally:
        signal.signal(signal.SIGINT, previous)
    if code in (INTERRUPTED, -signal.SIGINT):
        print("\nstopped; `make demo` goes on from here", file=sys.stderr)
        sys.exit(INTERRUPTED)
    if code:
        print(f"\nstage {stage.name} ended with code {code}; `make demo` tries it again", file=sys.stderr)
        sys.exit(code if code > 0 else 1)
    return time.perf_counter() - begin


def note_time(path: Path, name: str, seconds: float) -> None:
    """Keep the longest time of each stage: a skipped stage must not hide what the work took."""
    times = json.loads(path.read_text()) if path.is_file() else {}
    times[name] = max(round(seconds, 1), times.get(name, 0.0))
    write_json(path, times, indent=2, ensure_ascii=True)


if __name__ == "__main__":
    main()
