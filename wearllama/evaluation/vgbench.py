"""VGBench: a manifest loader for its three scenarios, and their joint scores (arXiv 2609.32536).

The publication has no manifest; this one is ours (docs/vgbench_manifest.md).  One line is one CONDITION of an item.
``audio_channels=5`` reads the array (and the beam, where given); ``audio_channels=1`` reads mono recordings, as the
published ones are: c_0 and c_x are then the same signal.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wearllama.audio.io import AudioError, audio_info
from wearllama.audio.timebase import SAMPLE_RATE
from wearllama.data.actions import Action, Call, answer, format_action, mute, tool
from wearllama.data.manifest import Example
from wearllama.data.prompts import PromptStyle, build_messages, load_prompts
from wearllama.data.tools import CONSEQUENTIAL_TOOLS
from wearllama.evaluation.intervals import Rate, rate_of
from wearllama.evaluation.predictions import Prediction, as_action
from wearllama.evaluation.scoring import Outcome
from wearllama.evaluation.side_talk import LABELS, label_action

SCENARIOS = ("side_talk", "self_talk", "speaker_switch")
CONDITIONS = ("same_speaker", "switch", "text_only")
FACTORISED = "factorised"
"""Source x distance x gap on the same commands: a control, evaluated where it is asked for."""
FACTORS = tuple(f"{source}-{distance}-{gap}" for source in "AB" for distance in ("near", "far") for gap in (0, 600))
LABEL_BY = "label_by"
"""Metadata of judged side-talk answers: ``judge``, or ``rule`` where the judge gave no label."""
_REQUIRED = ("id", "scenario", "target_action", "segments", "split")
_PARTS = {
    "side_talk": {"assistant", "person"}, "self_talk": {"monologue"}, "speaker_switch": {"context", "trigger"},
    FACTORISED: {"context", "trigger"},
}  # fmt: skip


@dataclass(kw_only=True)
class VGBenchConfig:
    """What is read, and what the recordings must be."""

    scenarios: tuple[str, ...] = SCENARIOS
    """Scenarios to evaluate."""
    split: str | None = "eval"
    """Split to evaluate; null for the full corpus."""
    protocol: str = "items"
    """Whose split: ``items`` (the manifest's), or ``voices``, ``templates``, ``tools`` where rows have ``splits``."""
    audio_channels: int = 5
    """5: the array; 1: mono recordings."""
    prompts: PromptStyle = "full"
    """Style of our system prompt, for rows that bring no messages."""
    prompts_file: str | None = None
    """YAML of replacement prompts; then rows' own messages are not used."""

    def __post_init__(self) -> None:
        known = [*SCENARIOS, FACTORISED]
        unknown = sorted(set(self.scenarios) - set(known))
        if unknown or not self.scenarios:
            raise ValueError(f"scenarios {list(self.scenarios)}: unknown {unknown}, wanted some of {known}")
        if self.audio_channels < 1:
            raise ValueError(f"audio_channels is {self.audio_channels}, wanted 1 (mono) or the array's number")


def load_vgbench(manifest: str | Path, config: VGBenchConfig) -> list[Example]:
    """Examples of the wanted scenarios and split, all rules of the manifest checked.

    ``metadata["item"]`` is the row as written.  Raises ValueError (AudioError for recordings) naming line and field.
    """
    path = Path(manifest)
    path = path / "manifest.jsonl" if path.is_dir() else path
    rows = _read_rows(path)
    chosen = [
        (number, row)
        for number, row in rows
        if row["scenario"] in config.scenarios and config.split in (None, _split_of(row, config.protocol))
    ]
    if not chosen:
        found = dict(Counter((row["scenario"], _split_of(row, config.protocol)) for _, row in rows))
        raise ValueError(f"{path}: no row of {list(config.scenarios)} in split {config.split!r}; it has {found}")
    _check_pairs([row for _, row in chosen if row["scenario"] == "speaker_switch"], path)
    examples = []
    for number, row in chosen:
        try:
            examples.append(_example(row, path.parent, config))
        except AudioError:
            raise
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path}, line {number} (id {row['id']!r}): {error}") from None
    return examples


def _split_of(row: Mapping[str, Any], protocol: str) -> str | None:
    if protocol == "items":
        return str(row["split"])
    return (row.get("splits") or {}).get(protocol)


def _read_rows(path: Path) -> list[tuple[int, dict[str, Any]]]:
    if not path.is_file():
        raise ValueError(f"no VGBench manifest at {path}")
    rows: list[tuple[int, dict[str, Any]]] = []
    lines: dict[str, int] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            _check_row(row)
            if row["id"] in lines:
                raise ValueError(f"id {row['id']!r} stands on line {lines[row['id']]} already")
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: {error}") from None
        lines[row["id"]] = number
        rows.append((number, row))
    return rows


def _check_row(row: Any) -> None:
    if not isinstance(row, dict):
        raise ValueError(f"wanted an object, found {type(row).__name__}")
    missing = [name for name in _REQUIRED if row.get(name) is None]
    if missing:
        raise ValueError(f"missing {missing}; wanted {list(_REQUIRED)}")
    scenario = row["scenario"]
    if scenario not in _PARTS:
        raise ValueError(f"scenario is {scenario!r}, wanted one of {list(_PARTS)}")
    parts = Counter(segment.get("part") for segment in row["segments"])
    if set(parts) != _PARTS[scenario] or (scenario == "side_talk" and max(parts.values()) > 1):
        raise ValueError(f"segments of {scenario} are {dict(parts)}, wanted {sorted(_PARTS[scenario])}")
    if scenario == "speaker_switch" and row.get("condition") not in CONDITIONS:
        raise ValueError(f"condition is {row.get('condition')!r}, wanted one of {list(CONDITIONS)}")
    if scenario == FACTORISED and row.get("condition") not in FACTORS:
        raise ValueError(f"condition is {row.get('condition')!r}, wanted one of {list(FACTORS)}")
    kind, name = row["target_action"].get("kind"), row["target_action"].get("name")
    wanted = _wanted_kinds(row)
    if kind not in wanted:
        raise ValueError(f"target_action.kind is {kind!r}, wanted {' or '.join(wanted)} in {scenario}")
    if kind == "tool" and (not name or (scenario == "speaker_switch" and name != row.get("tool"))):
        raise ValueError(f"target_action.name is {name!r}, wanted the row's tool {row.get('tool')!r}")


def _wanted_kinds(row: Mapping[str, Any]) -> tuple[str, ...]:
    if row["scenario"] == "side_talk":
        return ("tool", "answer")
    if row["scenario"] == "self_talk" or row["condition"] == "switch":
        return ("mute",)
    if row["scenario"] == FACTORISED and not str(row["condition"]).startswith("A-near"):
        return ("mute",)
    return ("tool",)


def _check_pairs(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Every case has its three conditions once, with the same tool and the same words."""
    pairs: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        pairs.setdefault(str(row.get("pair_id")), []).append(row)
    for pair, members in pairs.items():
        if sorted(row["condition"] for row in members) != sorted(CONDITIONS):
            found = sorted(row["condition"] for row in members)
            raise ValueError(
                f"{path}: pair {pair!r} has the conditions {found}, wanted each of {list(CONDITIONS)} once"
            )
        words = {" ".join(s["text"] for s in row["segments"]) for row in members}
        if len(words) > 1 or len({row["tool"] for row in members}) > 1:
            raise ValueError(f"{path}: the conditions of pair {pair!r} differ in their words or tool: {sorted(words)}")


def _example(row: Mapping[str, Any], root: Path, config: VGBenchConfig) -> Example:
    text_only = row.get("condition") == "text_only"
    if text_only == bool(row.get("audio")):
        raise ValueError(f"audio is {row.get('audio')!r} in condition {row.get('condition')!r}")
    seconds = 0.0 if text_only else _check_audio(root / row["audio"], config)
    beam = row.get("beam") if config.audio_channels > 1 else None
    words = " ".join(segment["text"] for segment in row["segments"])
    messages = row.get("messages") if config.prompts_file is None else None
    if not messages:
        prompts = load_prompts(config.prompts_file, style=config.prompts)
        system = prompts.system("vgbench", CONSEQUENTIAL_TOOLS)
        messages = build_messages(system=system, user=words if text_only else None)
    return Example(
        id=str(row["id"]),
        task="/".join(filter(None, (row["scenario"], row.get("condition")))),
        split="test",
        messages=messages,
        audio=None if text_only else {"mc": row["audio"], "beam": beam},
        target=_target(row),
        metadata={"dialect": "vgbench", "transcript": words, "seconds": seconds, "item": dict(row)},
    )


def _check_audio(path: Path, config: VGBenchConfig) -> float:
    info = audio_info(path)
    if info.channels != config.audio_channels:
        raise AudioError(
            f"{path}: found {info.channels} channels, wanted {config.audio_channels} (setting vgbench.audio_channels)"
        )
    if info.sample_rate != SAMPLE_RATE:
        raise AudioError(f"{path}: found {info.sample_rate} Hz, wanted {SAMPLE_RATE} Hz")
    return info.seconds


def _target(row: Mapping[str, Any]) -> str:
    target = row["target_action"]
    if target["kind"] == "mute":
        action = mute()
    elif target["kind"] == "tool":
        action = tool(Call(target["name"], dict(target.get("params") or {})))
    else:
        action = answer((row.get("answers") or ["(any answer to the assistant-directed utterance)"])[0])
    return format_action(action, "vgbench")


# --- scores ----------------------------------------------------------------------------------------------------------


def score(examples: Sequence[Example], predictions: Sequence[Prediction]) -> list[Outcome]:
    """Marks ``correct``; side-talk notes its four-way label, by rule."""
    return [_score(e, as_action(p, "vgbench")) for e, p in zip(examples, predictions, strict=True)]


def _score(example: Example, action: Action) -> Outcome:
    item = example.metadata["item"]
    target, note = item["target_action"], action.reason
    if item["scenario"] == "side_talk":
        note = label_action(action, item)
        correct = serves_assistant(note, action.kind, item)
    elif target["kind"] == "tool":
        correct = action.kind == "tool" and [call.name for call in action.calls] == [target["name"]]
    else:
        correct = action.kind == target["kind"]
    return Outcome(example.id, example.task, action.kind, {"correct": correct}, note, example.metadata)


def serves_assistant(label: str, kind: str, item: Mapping[str, Any]) -> bool:
    """Whether a side-talk item is right: the wanted kind of action, for what was said to the assistant alone."""
    return label == "assistant-directed" and kind == item["target_action"]["kind"]


def summarise(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Rates of the three scenarios, jointly: a system that is always mute, or never, shows as such."""
    switch = {c: _of(outcomes, f"speaker_switch/{c}") for c in CONDITIONS}
    rates = {f"speaker_switch/{c}": _rate(switch[c]) for c in CONDITIONS if switch[c]}
    cases: dict[str, list[bool]] = {}
    for outcome in (o for members in switch.values() for o in members):
        cases.setdefault(outcome.metadata["item"]["pair_id"], []).append(outcome.marks["correct"])
    if cases:
        rates["speaker_switch/all_three"] = rate_of(all(marks) for marks in cases.values())
    for scenario in ("self_talk", "side_talk"):
        if members := _of(outcomes, scenario):
            rates[scenario] = _rate(members)
    side = _of(outcomes, "side_talk")
    tasks = sorted({outcome.task for outcome in outcomes})
    return {
        "rates": rates,
        "by_tool": {c: _group(switch[c], lambda item: item["tool"]) for c in CONDITIONS},
        "self_talk_by_discourse": _group(_of(outcomes, "self_talk"), lambda item: item.get("discourse")),
        "side_talk_by_order": _group(side, lambda item: item.get("order")),
        "side_talk_by_target": _group(side, lambda item: item["target_action"]["kind"]),
        "side_talk_labels": {label: sum(o.note == label for o in side) for label in LABELS},
        "side_talk_labels_by": _labelled_by(side),
        "by_voice": {c: _group(switch[c], _trigger_voice) for c in CONDITIONS},
        "mute_by_factor": {
            name: rate_of(o.kind == "mute" for o in members)
            for name in FACTORS
            if (members := _of(outcomes, f"{FACTORISED}/{name}"))
        },
        "actions": {task: dict(Counter(o.kind for o in outcomes if o.task == task)) for task in tasks},
    }


def _labelled_by(side: Sequence[Outcome]) -> str:
    """Who gave the answers' labels, with counts where there was a judge: what it could not label fell to the rule."""
    by = Counter(outcome.metadata[LABEL_BY] for outcome in side if LABEL_BY in outcome.metadata)
    return f"judge: {by['judge']} of {by.total()} answers; rule: {by['rule']}" if by else "rule"


def _trigger_voice(item: Mapping[str, Any]) -> str | None:
    return next((segment.get("voice") for segment in item["segments"] if segment["part"] == "trigger"), None)


def _of(outcomes: Sequence[Outcome], task: str) -> list[Outcome]:
    return [outcome for outcome in outcomes if outcome.task == task]


def _rate(outcomes: Sequence[Outcome]) -> Rate:
    return rate_of(o.marks["correct"] for o in outcomes if "correct" in o.marks)


def _group(outcomes: Sequence[Outcome], key: Any) -> dict[str, Rate]:
    groups: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault(str(key(outcome.metadata["item"]) or "not recorded"), []).append(outcome)
    return {name: _rate(groups[name]) for name in sorted(groups)}
