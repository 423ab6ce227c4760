"""One run of the benchmark: two turns of the candidate, then a judge (or two).

The candidate answers through the shared harness and the judges through the shared judge, so that every output is logged
once, found again, and never reused under another prompt, model or limit.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from wearllama.data.prompts import Message
from wearllama.evaluation.chat import ChatModel
from wearllama.evaluation.context_bench.dialogue import (
    JUDGE_PROMPT,
    TURN_1,
    TURN_2,
    first_turn,
    judge_item,
    second_turn,
    text_example,
)
from wearllama.evaluation.context_bench.judging import NO_VERDICT, Verdict, code_signals, read_verdict
from wearllama.evaluation.context_bench.scoring import Trial
from wearllama.evaluation.context_bench.tasks import Clone, PromptCondition, Task, choose_tasks
from wearllama.evaluation.harness import Adapter, HarnessConfig, run
from wearllama.evaluation.judges import Judge, JudgeItem, JudgeRole

Cell = tuple[Task, PromptCondition]


@dataclass(frozen=True, kw_only=True)
class BenchConfig:
    """What of the benchmark is run."""

    root: str
    """Clone of github.com/n-dryer/wearable-assistant-context-bench, or its data folder."""
    conditions: tuple[str, ...] = ()
    """Prompt conditions by name; all by default."""
    subset: str | None = None
    """One of the clone's task sets; all by default."""
    camera: bool = True
    """false: the ablation without any camera block."""
    limit: int | None = None
    """Only the first so many tasks of each label."""
    lock: Literal["require", "report"] = "require"
    """Whether a clone that differs from its lock file is refused, or run and reported as such."""
    judge_prompt: str | None = None
    """File with another system prompt for the judges; by default the clone's, or ours where it has none."""
    unknown_label: Literal["error", "count"] = "error"
    """A judge's label that does not exist: stop, or count the trial as wrong and say how many there are."""

    def __post_init__(self) -> None:
        if self.limit is not None and self.limit < 1:
            raise ValueError(f"context_bench.limit is {self.limit}, wanted 1 or more")


@dataclass(frozen=True, kw_only=True)
class Seat:
    """A judge of a run."""

    model: ChatModel
    family: str
    resolution: str
    """How the family came about: ``auto`` or ``explicit``."""


@dataclass(kw_only=True)
class BenchRun:
    """All trials of a run, and what produced them."""

    trials: list[Trial]
    clone: Clone
    config: BenchConfig
    prompt: str
    candidate: Adapter
    judges: Mapping[str, Seat] = field(default_factory=dict)
    """``judge`` and, where there is one, ``ranking``."""

    @property
    def unscored(self) -> int:
        """Trials that were judged and got no label."""
        return sum(t.label is None for t in self.trials) if "judge" in self.judges else 0

    @property
    def without_verdict(self) -> int:
        """Trials whose judge said nothing that could be read as a verdict; by the published rule they are abstain."""
        return sum(t.note == NO_VERDICT for t in self.trials)


def run_bench(
    clone: Clone,
    config: BenchConfig,
    candidate: Adapter,
    judges: Mapping[str, Seat],
    *,
    folder: str | Path,
    harness: HarnessConfig,
    rank: int = 0,
) -> BenchRun:
    """Ask, judge and collect; goes on from whatever the logs in ``folder`` hold.

    Ranks share the candidate's work; the judges are asked by rank 0 alone.
    """
    if config.lock == "require":
        clone.require_lock()
    cells = _cells(clone, config)

    def ask(kind: str, turns: Sequence[list[Message]]) -> list[str]:
        examples = [text_example(t, c, kind, messages) for (t, c), messages in zip(cells, turns, strict=True)]
        predictions = run(examples, candidate, root=".", folder=folder, config=harness)
        if failed := [p for p in predictions if p.error]:
            raise ValueError(f"{len(failed)} items of {kind} failed, first {failed[0].id}: {failed[0].error}")
        return [prediction.raw for prediction in predictions]

    first = ask(TURN_1, [first_turn(t, c, camera=config.camera) for t, c in cells])
    second = ask(
        TURN_2,
        [second_turn(t, c, said, camera=config.camera) for (t, c), said in zip(cells, first, strict=True)],
    )
    prompt = judge_prompt_of(clone, config)
    seats = judges if rank == 0 else {}
    verdicts = {name: _judge(seat, name, prompt, cells, second, config, Path(folder)) for name, seat in seats.items()}
    nothing = [Verdict(None, "")] * len(cells)
    rows = zip(cells, first, second, verdicts.get("judge", nothing), verdicts.get("ranking", nothing), strict=True)
    trials = [
        Trial(
            task=task, condition=condition.name, turn_1=said_1, turn_2=said_2, signals=code_signals(said_2, task),
            label=verdict.label, note=verdict.note, ranking_label=other.label, ranking_note=other.note,
        )
        for (task, condition), said_1, said_2, verdict, other in rows
    ]  # fmt: skip
    return BenchRun(trials=trials, clone=clone, config=config, prompt=prompt, candidate=candidate, judges=judges)


def judge_prompt_of(clone: Clone, config: BenchConfig) -> str:
    """The judges' system prompt: the user's file, the clone's own, or ours."""
    if config.judge_prompt is not None:
        return Path(config.judge_prompt).read_text(encoding="utf-8").strip()
    return clone.judge_prompt or JUDGE_PROMPT


def _cells(clone: Clone, config: BenchConfig) -> list[Cell]:
    known = [condition.name for condition in clone.conditions]
    unknown = sorted(set(config.conditions) - set(known))
    if unknown:
        raise ValueError(f"context_bench.conditions: unknown {unknown}, the clone has {known}")
    chosen = [c for c in clone.conditions if not config.conditions or c.name in config.conditions]
    return [
        (task, condition) for task in choose_tasks(clone.tasks, config.subset, config.limit) for condition in chosen
    ]


def _judge(
    seat: Seat, name: str, prompt: str, cells: Sequence[Cell], answers: Sequence[str], config: BenchConfig, folder: Path
) -> list[Verdict]:
    """Verdicts in order; an empty answer is an abstention that nobody needs to be asked about."""
    escaped = prompt.replace("{", "{{").replace("}", "}}")
    role = JudgeRole(f"context_{name}", escaped, "{item}", lambda text: read_verdict(text).label)
    items = {
        index: JudgeItem(cell[0].id, {"item": judge_item(cell[0], answer)})
        for index, (cell, answer) in enumerate(zip(cells, answers, strict=True))
        if answer.strip()
    }
    said = Judge(role, seat.model, folder, progress=True).judge(list(items.values()))
    verdicts = [Verdict("abstain", "empty answer")] * len(cells)
    for index, verdict in zip(items, said, strict=True):
        verdicts[index] = Verdict(None, verdict.error) if verdict.score is None else read_verdict(verdict.raw)
    wrong = [(cells[i][0].id, v.note) for i, v in enumerate(verdicts) if v.label is None]
    if wrong and config.unknown_label == "error":
        raise ValueError(
            f"{len(wrong)} verdicts of the judge {name!r} name no label (first: task {wrong[0][0]}: {wrong[0][1]}); "
            "count such trials as wrong with context_bench.unknown_label=count"
        )
    return verdicts
