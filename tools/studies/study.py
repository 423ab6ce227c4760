"""What studies share: stages that train and evaluate, and reading what they left."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from demo import Stage  # beside the folder

from wearllama.evaluation.adapters import CheckpointAdapter
from wearllama.evaluation.commands import pair_folder, run_folder
from wearllama.evaluation.compare import compare
from wearllama.evaluation.conditions import condition_folder
from wearllama.evaluation.items import read_items
from wearllama.evaluation.pairs import OWN, parse_pairs
from wearllama.evaluation.report import read_run
from wearllama.evaluation.tables import Table, cell
from wearllama.simulation.conditions import CLEAN, parse_conditions

ROOT = Path(__file__).resolve().parents[2]
Columns = tuple[tuple[str, str], ...]
"""Title and key of rates."""
WEARVOX: Columns = (
    ("closed-book", "closed_book/contains"), ("tool name", "tool_call/name"), ("tool strict", "tool_call/strict"),
    ("side-talk [Mute]", "non-assistant-directed/correct"), ("micro (tool name)", "micro_average/name"),
)  # fmt: skip
VGBENCH: Columns = (
    ("switch mute", "speaker_switch/switch"), ("same-speaker tool", "speaker_switch/same_speaker"),
    ("self-talk mute", "self_talk"), ("side-talk", "side_talk"),
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Setup:
    """Where a study runs, and how much of it."""

    runs: str
    demo: str
    """Folder of `make demo`'s runs: the decoder that reads, the checkpoint that hears."""
    fast: bool
    """Two steps and an item of each task: whether it runs, not what comes of it."""
    seeds: tuple[int, ...]
    glasses: str
    """Folder of the responses measured on glasses."""
    speech: str
    """Table of real recordings, for tools/import_speech.py."""

    def run(self, name: str, seed: int) -> str:
        """Run folder of a trained system."""
        return f"{self.runs}/{name}-{seed}"

    def train(self, name: str, seed: int, changes: str = "", *, experiment: str = "demo", minutes: float = 12) -> Stage:
        """Supervised training from the decoder that reads; the projector, which differs by system, is new in all."""
        short = " train.steps=2 train.warmup_steps=1 train.save_every=2" if self.fast else ""
        command = (
            f"recipes/sft.py experiment={experiment} init={self.demo}/text init_without=[projector.] "
            f"train.seed={seed} run_dir={self.run(name, seed)} {changes}"
        )
        return Stage(f"{name}-{seed}", "train", command.strip() + short, minutes)

    def evaluate(self, script: str, ckpt: str, options: str = "", *, into: str = "eval", minutes: float = 1) -> Stage:
        """One of eval/'s scripts without its controls, which the demo's report has."""
        few = " wearvox.limit=1" if self.fast and script == "wearvox" else ""
        command = (
            f"eval/{script}.py ckpt={ckpt} controls=[] clips=0 harness.ttft_items=0 out={self.runs}/{into} {options}"
        )
        return Stage(f"{script} {Path(ckpt).name} {options}".strip(), "evaluate", command.strip() + few, minutes)

    def folder(
        self,
        script: str,
        ckpt: str,
        *,
        pair: str = "",
        condition: str = "",
        array: str | None = None,
        into: str = "eval",
        max_new_tokens: int = 96,
    ) -> Path:
        """Where an evaluation left its results."""
        model = CheckpointAdapter(ROOT / ckpt, max_new_tokens=max_new_tokens, array=array)
        base = run_folder(ROOT / self.runs / into, script, model)
        (asked,) = parse_pairs(pair or OWN)
        heard = pair_folder(base, model.with_pair(asked).pair if asked else None)  # its own pair is none
        return condition_folder(heard, parse_conditions(condition or CLEAN)[0])

    def rates(self, script: str, ckpt: str, **heard: Any) -> dict[str, Any]:
        """The model's row of an evaluation's results."""
        results, _ = read_run(self.folder(script, ckpt, **heard))
        found: dict[str, Any] = results["systems"][0]
        return found

    def items(self, script: str, ckpt: str, **heard: Any) -> list[dict[str, str]]:
        """The model's rows of an evaluation's items."""
        return read_items(self.folder(script, ckpt, **heard))["model"]


class Study(NamedTuple):
    """One page of docs/results/."""

    title: str
    intro: str
    stages: Callable[[Setup], list[Stage]]
    tables: Callable[[Setup], list[Table]]


def paired_tables(setup: Setup, runs: dict[str, str], title: str) -> list[Table]:
    """WearVox items of two systems (name -> run folder) against each other."""
    first, second = (setup.items("wearvox", ckpt) for ckpt in runs.values())
    one, other = runs
    return [
        table._replace(title=f"{title}: {table.title.lower()}")
        for table in compare(first, second, (one, other), mark="name").tables
    ]


def rate_table(title: str, found: dict[str, dict[str, Any]], columns: Columns, note: str = "") -> Table:
    """A row a system of its rates."""
    rows = [(name, *(cell(system["rates"].get(key)) for _, key in columns)) for name, system in found.items()]
    return Table(title, ("system", *(column for column, _ in columns)), rows, note)
