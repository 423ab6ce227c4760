"""A table of words, and the cells that all benchmarks share."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from wearllama.evaluation.intervals import ErrorRate, Interval, Mean, Rate

MARK = " (published)"


class Table(NamedTuple):
    """A titled table; a row whose first cell ends in MARK was printed by a paper, not measured here."""

    title: str
    header: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    note: str = ""

    def markdown(self) -> str:
        """GitHub Markdown."""
        lines = [f"### {self.title}", "", "| " + " | ".join(self.header) + " |", "|" + "---|" * len(self.header)]
        lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in self.rows]
        return "\n".join([*lines, *(["", self.note] if self.note else [])]) + "\n"

    def text(self) -> str:
        """Aligned columns for a terminal."""
        rows = [self.header, *self.rows]
        widths = [max(len(row[column]) for row in rows) for column in range(len(self.header))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        lines.insert(1, "-" * (sum(widths) + 2 * len(widths) - 2))
        return "\n".join([self.title, *lines, *([self.note] if self.note else [])])


def cell(rate: Mapping[str, Any] | None) -> str:
    """A rate or mean (as ``to_dict()`` writes them) with interval and count; a dash where nothing was counted."""
    if not rate or not rate["total"]:
        return "-"
    if "mean" in rate:
        return str(Mean(rate["mean"], rate["total"], Interval(rate["low"], rate["high"])))
    if "errors" in rate:
        return str(ErrorRate(rate["errors"], rate["total"], Interval(rate["low"], rate["high"])))
    return str(Rate(rate["hits"], rate["total"]))


def headline(results: Mapping[str, Any], columns: Sequence[tuple[str, str]]) -> list[tuple[str, ...]]:
    """A row a system; a star marks a task in which recordings were cut to the model's limit, as the papers do."""
    return [
        (label(system), *(cell(system["rates"].get(name)) + star(system, name) for _, name in columns))
        for system in results["systems"]
    ]


def star(system: Mapping[str, Any], rate: str) -> str:
    """``*`` where recordings of the rate's task were cut."""
    return "*" if (system.get("truncated") or {}).get(rate.split("/")[0]) and system["rates"].get(rate) else ""


def label(system: Mapping[str, Any]) -> str:
    """A system's name in tables."""
    return system["label"].replace("model", system["identity"]["model"], 1)


def per_cent(value: float | None) -> str:
    """A printed figure; a dash where none was printed."""
    return "-" if value is None else f"{value:.1f} %"


def breakdown(results: Mapping[str, Any], key: str, title: str) -> Table:
    """One row a group, one column a system; results of before the key existed have no rows."""
    systems = results["systems"]
    names = sorted({name for system in systems for name in system.get(key, ())})
    rows = [(name, *(cell(system.get(key, {}).get(name)) for system in systems)) for name in names]
    return Table(title, ("", *map(label, systems)), rows)
