"""WearVox in its published layout: the loader, and the scores of its four turn-based tasks (arXiv 2601.02391).

A folder holds ``data_public.json`` (rows), ``audio_metadata.json`` (joined on id; a row without metadata stays),
``wav/`` (mono, beamformed) and ``wav_mc/`` (the array).  What the publication leaves open is a setting of
:class:`WearVoxConfig`, asserted on load, so that a wrong guess is an error and never a silently wrong score.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tqdm import tqdm

from wearllama.audio.io import AudioError, audio_info
from wearllama.audio.timebase import SAMPLE_RATE
from wearllama.data.actions import Action, format_action, mute
from wearllama.data.manifest import Example
from wearllama.data.prompts import messages_from_text_prompt
from wearllama.evaluation.intervals import Rate, rate_of
from wearllama.evaluation.predictions import Prediction, as_action
from wearllama.evaluation.scoring import (
    Outcome,
    answer_aliases,
    contains_alias,
    gold_calls,
    matches_exactly,
    score_tool,
)

TASKS = ("closed_book", "grounding", "tool_call", "non-assistant-directed")
"""The turn-based tasks, as ``task`` spells them."""
TITLES = {
    "grounding": "search QA", "closed_book": "closed-book QA", "tool_call": "tool calling",
    "non-assistant-directed": "side-talk",
}  # fmt: skip
LATER = "live_translation"
QA = ("closed_book", "grounding")
ToolRule = Literal["name", "loose", "strict"]
_FIELDS = ("id", "task", "text_prompt", "audio_query", "audio_query_mc", "ground_truth")


@dataclass(kw_only=True)
class WearVoxConfig:
    """What is read, and what the recordings must be."""

    tasks: tuple[str, ...] = TASKS
    """Tasks to evaluate."""
    sample_rate: int = SAMPLE_RATE
    """Rate of every file."""
    channels: int = 5
    """Channels of the files of ``wav_mc/``; channel 0 is taken for c_0."""
    beam: Literal["file", "design"] = "file"
    """c_x: the file of ``wav/``, or the model's own beam over the array."""
    limit: int | None = None
    """Only the first so many rows of each task."""

    def __post_init__(self) -> None:
        unknown = sorted(set(self.tasks) - set(TASKS))
        if unknown or not self.tasks:
            raise ValueError(f"tasks {list(self.tasks)}: unknown {unknown}, wanted some of {list(TASKS)}")
        if self.channels < 1 or (self.limit is not None and self.limit < 1):
            raise ValueError(f"channels {self.channels} and limit {self.limit} must be at least 1")
        if self.sample_rate != SAMPLE_RATE:
            raise ValueError(f"sample_rate is {self.sample_rate}: the models here take {SAMPLE_RATE} Hz; convert first")


def load_wearvox(folder: str | Path, config: WearVoxConfig, *, progress: bool = False) -> list[Example]:
    """Examples of the wanted tasks, every recording's header checked.

    The target is the ground truth as text; ``metadata`` keeps ground truth, transcript, duration and acoustics.
    Raises ValueError naming file, row and field.
    """
    root = Path(folder)
    path = root / "data_public.json"
    rows = _read_list(path)
    acoustics = _read_metadata(root / "audio_metadata.json")
    present = Counter(_task_of(row, number, path) for number, row in enumerate(rows))
    unknown = sorted(set(present) - {*TASKS, LATER})
    if unknown:
        raise ValueError(f"{path}: unknown tasks {unknown}, wanted some of {[*TASKS, LATER]}")
    taken: Counter[str] = Counter()
    examples = []
    for number, row in enumerate(tqdm(rows, desc="check recordings", unit="row", disable=not progress)):
        task = row["task"]
        if task not in config.tasks or (config.limit is not None and taken[task] >= config.limit):
            continue
        taken[task] += 1
        try:
            examples.append(_example(row, acoustics.get(row.get("id")), root, config))
        except AudioError:
            raise
        except ValueError as error:
            raise ValueError(f"{path}, row {number} (id {row.get('id')!r}): {error}") from None
    if not examples:
        raise ValueError(f"{path}: no row of the tasks {list(config.tasks)}; it has {dict(present)}")
    return examples


def _read_list(path: Path) -> list[dict[str, Any]]:
    if not path.is_file():
        raise ValueError(f"no {path}: a WearVox folder holds data_public.json, audio_metadata.json, wav/ and wav_mc/")
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: no JSON: {error}") from None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ValueError(f"{path}: wanted one JSON list of objects")
    return rows


def _read_metadata(path: Path) -> dict[str, dict[str, Any]]:
    """Acoustics by id; {} where the file is missing, since no score needs them."""
    rows = _read_list(path) if path.is_file() else []
    return {row["id"]: dict(row.get("audio_metadata") or {}) for row in rows if "id" in row}


def _task_of(row: Mapping[str, Any], number: int, path: Path) -> str:
    missing = [name for name in _FIELDS if name not in row]
    if missing:
        raise ValueError(f"{path}, row {number} (id {row.get('id')!r}): missing {missing}")
    return str(row["task"])


def _example(row: Mapping[str, Any], acoustics: dict[str, Any] | None, root: Path, config: WearVoxConfig) -> Example:
    seconds = _check_audio(root / row["audio_query_mc"], config.channels, config, "channels")
    if config.beam == "file":
        _check_audio(root / row["audio_query"], 1, config, "beam")
    return Example(
        id=str(row["id"]),
        task=row["task"],
        split="test",
        messages=messages_from_text_prompt(row["text_prompt"]),
        audio={"mc": row["audio_query_mc"], "beam": row["audio_query"] if config.beam == "file" else None},
        target=_target(row["task"], row["ground_truth"]),
        metadata={
            "dialect": "wearvox", "ground_truth": row["ground_truth"], "transcript": row.get("gt_transcript"),
            "seconds": seconds, "acoustics": acoustics or {},
        },
    )  # fmt: skip


def _check_audio(path: Path, channels: int, config: WearVoxConfig, setting: str) -> float:
    info = audio_info(path)
    if info.channels != channels:
        raise AudioError(f"{path}: found {info.channels} channels, wanted {channels} (setting wearvox.{setting})")
    if info.sample_rate != config.sample_rate:
        raise AudioError(f"{path}: found {info.sample_rate} Hz, wanted {config.sample_rate} Hz (wearvox.sample_rate)")
    return info.seconds


def _target(task: str, ground_truth: Any) -> str:
    """Ground truth as the text a perfect model would say; malformed ground truths raise here, at load."""
    if task in QA:
        return answer_aliases(ground_truth)[0]
    if task == "tool_call":
        gold = gold_calls(ground_truth)
        calls = [{"name": name, "parameters": _first_values(args)} for call in gold for name, args in call.items()]
        return f"<|TOOL|>{json.dumps(calls, ensure_ascii=False)}</|TOOL|>"
    if str(ground_truth or "[Mute]").strip().strip("'\"").lower() not in ("[mute]", "mute", "none"):
        raise ValueError(f"ground_truth of side-talk is {ground_truth!r}, wanted [Mute]")
    return format_action(mute(), "wearvox")


def _first_values(accepted: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    return {name: values[0] for name, values in accepted.items() if values[0] != ""}


# --- scores ----------------------------------------------------------------------------------------------------------


def score(examples: Sequence[Example], predictions: Sequence[Prediction]) -> list[Outcome]:
    """Marks of each prediction: ``correct`` is the paper's measure (answers: exact or alias, judged later)."""
    return [_score(e, as_action(p, "wearvox")) for e, p in zip(examples, predictions, strict=True)]


def _score(example: Example, action: Action) -> Outcome:
    note = action.reason
    if example.task == "tool_call":
        marks, why = score_tool(action, gold_calls(example.metadata["ground_truth"]))
        marks, note = {**marks, "correct": marks["strict"]}, note or why
    elif example.task in QA:
        aliases = answer_aliases(example.metadata["ground_truth"])
        said = action.text if action.kind == "answer" else ""
        exact = matches_exactly(said, aliases)
        marks = {"exact": exact, "contains": exact or contains_alias(said, aliases), "correct": exact}
    else:
        marks = {"correct": action.kind == "mute"}
    return Outcome(example.id, example.task, action.kind, marks, note, example.metadata)


def micro_average(outcomes: Sequence[Outcome], tool_rule: ToolRule = "strict") -> Rate:
    """Share of right items over all tasks, with the chosen mark for tool calls."""
    return rate_of(o.marks[tool_rule if o.task == "tool_call" else "correct"] for o in outcomes)


def summarise(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Rates by name (``tool_call/name``, ``closed_book/exact``, ``micro_average/strict``, ...) and breakdowns."""
    rates: dict[str, Rate] = {}
    for task in TASKS:
        mine = [o for o in outcomes if o.task == task]
        for mark in mine[0].marks if mine else ():
            rates[f"{task}/{mark}"] = rate_of(o.marks[mark] for o in mine)
    rules: tuple[ToolRule, ...] = ("name", "loose", "strict")
    for rule in rules:
        rates[f"micro_average/{rule}"] = micro_average(outcomes, rule)
    return {
        "rates": rates,
        "by_noise_type": _breakdown(outcomes, "_noise_type"),
        "by_environment": _breakdown(outcomes, "environment"),
        "actions": {task: dict(Counter(o.kind for o in outcomes if o.task == task)) for task in TASKS},
    }


def _breakdown(outcomes: Sequence[Outcome], field: str) -> dict[str, Rate]:
    """Micro-average (tool calls by name) for each value of a field of the acoustics."""
    groups: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        value = (outcome.metadata.get("acoustics") or {}).get(field)
        groups.setdefault(str(value or "not recorded"), []).append(outcome)
    return {name: micro_average(groups[name], "name") for name in sorted(groups)}
