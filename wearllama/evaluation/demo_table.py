"""The demo's targets against what was reached, with a constant answer and a deafened run in the same rows."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from wearllama.evaluation.tables import Table, cell


class Target(NamedTuple):
    """One line of the table; ``goal`` in per cent, None for a figure that is only reported."""

    title: str
    benchmark: str
    rate: str
    goal: float | None


TARGETS = (
    Target("side-talk [Mute]", "wearvox", "non-assistant-directed/correct", 90),
    Target("tool name", "wearvox", "tool_call/name", 80),
    Target("speaker-switch: mute", "vgbench", "speaker_switch/switch", 91),
    Target("speaker-switch: same-speaker tool name", "vgbench", "speaker_switch/same_speaker", 90),
    Target("speaker-switch: text-only tool name", "vgbench", "speaker_switch/text_only", 90),
    Target("self-talk: mute", "vgbench", "self_talk", 60),
    Target("speaker-switch: all three right", "vgbench", "speaker_switch/all_three", None),
    Target("side-talk, two utterances: right one served", "vgbench", "side_talk", None),
    Target("tool call, loose arguments", "wearvox", "tool_call/loose", None),
    Target("tool call, strict", "wearvox", "tool_call/strict", None),
    Target("closed-book QA, exact", "wearvox", "closed_book/correct", None),
    Target("grounded QA, exact", "wearvox", "grounding/correct", None),
)
_NOTE = (
    "Reached and controls: per cent [95 % Wilson interval] (hits/items). Majority class: the best constant answer to "
    "each kind of prompt. Silence: the same checkpoint fed digital zeros; text-only rows have no sound to take away."
)


def demo_table(
    wearvox: Mapping[str, Any], vgbench: Mapping[str, Any], after_grpo: Mapping[str, Any] | None = None
) -> Table:
    """One table of both benchmarks' results (as ``results.json`` holds them); ``after_grpo``: VGBench's once more."""
    runs = {"wearvox": wearvox, "vgbench": vgbench}
    rows = []
    for target in TARGETS:
        rates = {system["label"]: system["rates"].get(target.rate) for system in runs[target.benchmark]["systems"]}
        reached = rates.get("model")
        rows.append((
            target.title, f">= {target.goal:g} %" if target.goal is not None else "-", cell(reached),
            _verdict(reached, target.goal), cell(rates.get("majority class")), cell(rates.get("model, silence")),
            *_after(target, after_grpo),
        ))  # fmt: skip
    header: tuple[str, ...] = ("measure", "target", "reached", "", "majority class", "silence")
    header += ("after GRPO",) if after_grpo is not None else ()
    return Table("Demo: held-out voices, rooms and wordings", header, rows, _NOTE)


def _after(target: Target, results: Mapping[str, Any] | None) -> tuple[str, ...]:
    if results is None:
        return ()
    return (cell(results["systems"][0]["rates"].get(target.rate) if target.benchmark == "vgbench" else None),)


def _verdict(rate: Mapping[str, Any] | None, goal: float | None) -> str:
    if goal is None or not rate or not rate["total"]:
        return ""
    return "met" if 100 * rate["hits"] >= goal * rate["total"] else "missed"
