"""Plots of the report as SVG text, drawn without a display."""

import io
import re
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from wearllama.evaluation import published
from wearllama.evaluation.tables import HEADLINE

_COLOURS = ("#2f6690", "#9aa5b1", "#d9a441", "#7a9e7e")
_WEARVOX_NAMES = (
    "grounding/correct",
    "closed_book/correct",
    "tool_call/strict",
    "non-assistant-directed/correct",
    "micro_average/strict",
)
_VGBENCH_NAMES = (
    "speaker_switch/switch",
    "speaker_switch/same_speaker",
    "speaker_switch/text_only",
    "self_talk",
    "side_talk",
)
_PUBLISHED = {
    "wearvox": ("MC WearLlama (published)", published.WEARVOX["MC WearLlama"], _WEARVOX_NAMES),
    "vgbench": ("VoxGate SFT (published)", published.VGBENCH["VoxGate SFT"], _VGBENCH_NAMES),
}
_BREAKDOWN = {
    "wearvox": ("by_noise_type", "By noise type"),
    "vgbench": ("self_talk_by_discourse", "Self-talk mute rate by discourse form"),
    "asr": ("by_noise_type", "Word error rate by noise type"),
}


def figures_of(results: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(title, SVG) of every plot of a benchmark."""
    name = results["benchmark"]
    columns = [(title, key) for title, key in HEADLINE[name] if any(key in s["rates"] for s in results["systems"])]
    marks = None
    if name in _PUBLISHED:
        paper, values, names = _PUBLISHED[name]
        marks = (paper, dict(zip(names, values, strict=True)))
    plots = [("Scores with 95 % intervals", _bars(results["systems"], "rates", columns, marks))]
    breakdown, title = _BREAKDOWN[name]
    groups = sorted({group for system in results["systems"] for group in system[breakdown]})
    if groups:
        plots.append((title, _bars(results["systems"], breakdown, [(g, g) for g in groups], None)))
    places = sorted({place for system in results["systems"] for place in system.get("by_place", ())})
    if places:
        title = "By place and loudness (as in the paper's Figure 3)"
        plots.append((title, _bars(results["systems"], "by_place", [(p, p) for p in places], None)))
    return plots


def _bars(
    systems: Sequence[Mapping[str, Any]],
    field: str,
    columns: Sequence[tuple[str, str]],
    marks: tuple[str, Mapping[str, float | None]] | None,
) -> str:
    """Grouped bars, one colour a system, with Wilson intervals; marks are a paper's figures in per cent."""
    figure = Figure(figsize=(10, 3.6), layout="constrained")
    axes = figure.subplots()
    width = 0.8 / len(systems)
    for number, system in enumerate(systems):
        xs, heights, errors = [], [], []
        for column, (_, key) in enumerate(columns):
            rate = system[field].get(key)
            if rate and rate["total"]:
                value = rate["mean"] if "mean" in rate else rate["rate"]
                xs.append(column + (number - (len(systems) - 1) / 2) * width)
                heights.append(100 * value)
                errors.append((100 * (value - rate["low"]), 100 * (rate["high"] - value)))
        below_above = list(zip(*errors, strict=True)) or [(), ()]
        axes.bar(xs, heights, width * 0.92, label=system["label"], color=_COLOURS[number % len(_COLOURS)],
                 yerr=[[max(0.0, e) for e in side] for side in below_above], capsize=2, ecolor="#444")  # fmt: skip
    if marks:
        points = [(x, y) for x, (_, key) in enumerate(columns) if (y := marks[1].get(key)) is not None]
        axes.scatter([x for x, _ in points], [y for _, y in points], marker="D", s=28, color="#b03a2e", zorder=3,
                     label=marks[0])  # fmt: skip
    axes.set_xticks(range(len(columns)), [_wrap(title) for title, _ in columns], fontsize=8)
    axes.set_ylim(0, 105)
    axes.set_ylabel("per cent")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=8, frameon=False, ncols=4, loc="upper center", bbox_to_anchor=(0.5, 1.16))
    return _svg(figure)


def _wrap(title: str, size: int = 16) -> str:
    lines = [""]
    for word in title.split():
        joined = f"{lines[-1]} {word}".strip()
        lines[-1:] = [joined] if len(joined) <= size or not lines[-1] else [lines[-1], word]
    return "\n".join(lines[:3])


def _svg(figure: Figure) -> str:
    stream = io.StringIO()
    figure.savefig(stream, format="svg")
    text = re.sub(r"<metadata>.*?</metadata>", "", stream.getvalue(), flags=re.DOTALL)
    return text[text.index("<svg") :]
