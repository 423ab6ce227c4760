"""Verdicts: whose model judges whom, what the judge said, and what plain string matching would say."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple, cast

from wearllama.evaluation.context_bench.tasks import LABELS, Label, Task

NO_VERDICT = "no verdict in the judge's words"
"""Note of a reply that the published rule takes for abstain."""
_FAMILIES = {
    "claude": ("claude", "anthropic", "sonnet", "opus", "haiku"), "gemini": ("gemini",), "gemma": ("gemma",),
    "openai": ("gpt-", "gpt4", "openai", "o1", "o3", "o4", "codex"), "smollm": ("smollm",),
    "llama": ("wearllama", "llama"), "qwen": ("qwen",), "mistral": ("mistral", "mixtral", "ministral"),
    "deepseek": ("deepseek",), "phi": ("phi-", "phi3", "phi4"), "kimi": ("kimi", "moonshot"),
}  # fmt: skip
"""Families by marks in a model's name; the first that fits."""
_OBJECT = re.compile(r"\{[^{}]*\"selected_label\"[^{}]*\}", re.DOTALL)
_LINE = re.compile(r"selected_label\W{1,4}(\w+)", re.IGNORECASE)
_REFUSALS = re.compile(
    r"\bi (?:can(?:no|')?t|am unable|don't know|do not know|don't have enough|do not have enough)\b"
    r"|\bi'm (?:unable|not able)\b|\b(?:not enough|insufficient) (?:information|context)\b",
    re.IGNORECASE,
)


class Verdict(NamedTuple):
    """A judge's label; None with the reason where what it said is no label."""

    label: Label | None
    note: str


def family_of(name: str) -> str | None:
    """The family that a model's name or path tells; None where it tells none."""
    text = name.lower()
    words = set(re.split(r"[^a-z0-9-]+", text))
    for family, marks in _FAMILIES.items():
        if any(mark in words if len(mark) == 2 else mark in text for mark in marks):
            return family
    return None


def resolve_family(choice: str, judge: str, candidate: str) -> tuple[str, str]:
    """(family of the judge, how it came about: ``explicit`` or ``auto``).

    ``auto`` takes it from the judge's name and refuses a judge of the candidate's own family, which tends to favour
    itself; any other ``choice`` is the user's word for it.
    """
    if choice != "auto":
        return choice, "explicit"
    found, own = family_of(judge), family_of(candidate)
    if found is None or own is None:
        unknown = judge if found is None else candidate
        raise ValueError(f"judge.family=auto knows no family of {unknown!r}: give judge.family=NAME, e.g. llama")
    if found == own:
        raise ValueError(
            f"judge {judge!r} and candidate {candidate!r} are both of the family {own!r}, and models favour their own: "
            f"take another judge, or say judge.family={own} to have it all the same"
        )
    return found, "auto"


def read_verdict(raw: str) -> Verdict:
    """The last JSON object with ``selected_label``; else the last ``selected_label:`` line; else abstain.

    An unknown label is None: an error, never a guess.
    """
    found: str | None = None
    note = ""
    for match in reversed(list(_OBJECT.finditer(raw))):
        try:
            fields = json.loads(match.group(0))
        except ValueError:
            continue
        found, note = str(fields["selected_label"]), str(fields.get("rationale", ""))
        break
    if found is None:
        lines = _LINE.findall(raw)
        if not lines:
            return Verdict("abstain", "empty" if not raw.strip() else NO_VERDICT)
        found, note = lines[-1].lower(), "from a line, not from JSON"
    if found not in LABELS:
        return Verdict(None, f"selected_label is {found!r}, wanted one of {list(LABELS)}")
    return Verdict(cast(Label, found), note)


def code_signals(answer: str, task: Task) -> dict[str, bool]:
    """Which label's anchors stand in the answer as whole words, and whether it refuses; a diagnostic, not a score."""
    signals: dict[str, bool] = {label: _holds_any(answer, task.anchors[label]) for label in LABELS}
    return {**signals, "refusal": bool(_REFUSALS.search(answer.replace("\u2019", "'")))}


def implied_label(signals: Mapping[str, bool]) -> Label | None:
    """The label that the signals alone point at; None where they point nowhere or both ways."""
    if signals["refusal"] or signals["abstain"]:
        return "abstain"
    if signals["clarify"]:
        return "clarify"
    if signals["current"] != signals["prior"]:
        return "current" if signals["current"] else "prior"
    return None


def _holds_any(answer: str, phrases: Sequence[str]) -> bool:
    return any(p.strip() and re.search(rf"(?<!\w){re.escape(p.strip())}(?!\w)", answer, re.IGNORECASE) for p in phrases)
