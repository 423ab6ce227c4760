"""Results as tables of words: one source for the terminal, Markdown and HTML. Published rows are marked."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from wearllama.evaluation import published
from wearllama.evaluation.intervals import Rate
from wearllama.evaluation.wearvox import TITLES

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
    """A rate (``Rate.to_dict()``) with its interval and count; a dash where nothing was counted."""
    return str(Rate(rate["hits"], rate["total"])) if rate and rate["total"] else "-"


def tables_of(results: Mapping[str, Any]) -> list[Table]:
    """All tables of a benchmark's results, the headline first."""
    make = {"wearvox": _wearvox, "vgbench": _vgbench}[results["benchmark"]]
    return [*make(results), *_common(results)]


_WEARVOX_RATES = (
    ("search QA", "grounding/correct"), ("closed-book QA", "closed_book/correct"), ("tool name", "tool_call/name"),
    ("tool loose", "tool_call/loose"), ("tool strict", "tool_call/strict"),
    ("side-talk", "non-assistant-directed/correct"),
    ("micro (tool name)", "micro_average/name"), ("micro (tool strict)", "micro_average/strict"),
)  # fmt: skip
_VGBENCH_RATES = (
    ("switch mute", "speaker_switch/switch"), ("same-speaker tool", "speaker_switch/same_speaker"),
    ("text-only tool", "speaker_switch/text_only"), ("all three", "speaker_switch/all_three"),
    ("self-talk mute", "self_talk"), ("side-talk", "side_talk"),
)  # fmt: skip
HEADLINE = {"wearvox": _WEARVOX_RATES, "vgbench": _VGBENCH_RATES}
"""Columns of the headline tables: title and the rate's name."""


def _headline(results: Mapping[str, Any], columns: Sequence[tuple[str, str]]) -> list[tuple[str, ...]]:
    return [
        (_label(system), *(cell(system["rates"].get(name)) for _, name in columns)) for system in results["systems"]
    ]


def _label(system: Mapping[str, Any]) -> str:
    return system["label"].replace("model", system["identity"]["model"], 1)


def _per_cent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} %"


def _wearvox(results: Mapping[str, Any]) -> list[Table]:
    rows = _headline(results, _WEARVOX_RATES)
    for name, (search, closed, tool, side, micro) in published.WEARVOX.items():
        cells = (search, closed, None, None, tool, side, None, micro)
        rows.append((name + MARK, *map(_per_cent, cells)))
    note = (
        "QA here: exact or alias match. Tool: name only; syntax tree with free arguments compared loosely "
        f"(content-word F1 >= 0.5); syntax tree strictly. 95 % Wilson intervals. Published: {published.WEARVOX_SOURCE}."
    )
    header = ("system", *(title for title, _ in _WEARVOX_RATES))
    tables = [Table("WearVox, turn-based tasks", header, rows, note)]
    tables.append(_breakdown(results, "by_noise_type", "By noise type (micro-average, tool calls by name)"))
    noise = [
        (name + MARK, _per_cent(sc), _per_cent(mc), str(n)) for name, (sc, mc, n) in published.WEARVOX_NOISE.items()
    ]
    header = ("noise type", "SC WearLlama", "MC WearLlama", "items")
    tables.append(Table("By noise type, as published", header, noise, f"Published: {published.WEARVOX_NOISE_SOURCE}."))
    tables.append(_breakdown(results, "by_environment", "By environment (micro-average, tool calls by name)"))
    return tables


def _vgbench(results: Mapping[str, Any]) -> list[Table]:
    rows = _headline(results, _VGBENCH_RATES)
    for name, r in published.VGBENCH.items():
        cells = (r.switch_mute, r.same_speaker, r.text_only, None, r.self_talk, r.side_talk)
        rows.append((name + MARK, *map(_per_cent, cells)))
    by = results["systems"][0]["side_talk_labels_by"]
    judged = "labelled by rule here, not by an LLM judge" if by == "rule" else f"labelled by {by}"
    note = (
        f"Joint scores: muting counts only beside the tool rates. Side-talk's free answers are {judged}. "
        f"95 % Wilson intervals. Published: {published.VGBENCH_SOURCE}."
    )
    tables = [Table("VGBench", ("system", *(title for title, _ in _VGBENCH_RATES)), rows, note)]
    by_tool = results["systems"][0]["by_tool"]
    tools = sorted({tool for rates in by_tool.values() for tool in rates})
    rows = [(tool, *(cell(by_tool[c].get(tool)) for c in by_tool)) for tool in tools]
    tables.append(Table("Speaker-switch by tool (the model)", ("tool", *by_tool), rows))
    by_voice = results["systems"][0].get("by_voice", {})
    voices = sorted({voice for rates in by_voice.values() for voice in rates} - {"not recorded"})
    rows = [(voice, *(cell(by_voice[c].get(voice)) for c in by_voice)) for voice in voices]
    tables.append(Table("Speaker-switch by voice of the trigger (the model)", ("voice", *by_voice), rows))
    tables.append(_factors(results))
    tables.append(_breakdown(results, "self_talk_by_discourse", "Self-talk by discourse form"))
    tables.append(_breakdown(results, "side_talk_by_order", "Side-talk by order"))
    tables.append(_breakdown(results, "side_talk_by_target", "Side-talk by wanted action"))
    labels = list(results["systems"][0]["side_talk_labels"])
    rows = [(_label(s), *(str(s["side_talk_labels"][label]) for label in labels)) for s in results["systems"]]
    tables.append(
        Table(
            f"Side-talk: whom the action serves (by {'rule' if by == 'rule' else 'judge'})", ("system", *labels), rows
        )
    )
    return [table for table in tables if table.rows]


def _factors(results: Mapping[str, Any]) -> Table:
    """Mute rates by source, distance and gap, beside the three that the paper's text prints."""
    systems = [s for s in results["systems"] if s.get("mute_by_factor")]
    names = list(systems[0]["mute_by_factor"]) if systems else []
    rows = []
    for name in names:
        source, distance, gap = name.split("-")
        paper = published.VGBENCH_FACTORS.get(name, ("-", "-"))
        cells = (cell(s["mute_by_factor"].get(name)) for s in systems)
        rows.append((source, distance, f"{gap} ms", "tool" if name.startswith("A-near") else "[Mute]", *cells, *paper))
    header = ("source", "distance", "gap", "wanted", *map(_label, systems), "VoxGate SFT" + MARK, "VoxGate GRPO" + MARK)
    note = f"Mute rates. Published: {published.VGBENCH_SOURCE}."
    return Table("Factorised controls", header, rows, note)


def _breakdown(results: Mapping[str, Any], key: str, title: str) -> Table:
    systems = results["systems"]
    names = sorted({name for system in systems for name in system[key]})
    rows = [(name, *(cell(system[key].get(name)) for system in systems)) for name in names]
    return Table(title, ("", *map(_label, systems)), rows)


def _common(results: Mapping[str, Any]) -> list[Table]:
    tables = []
    systems = results["systems"]
    tasks = list(systems[0]["actions"])
    kinds = ("mute", "tool", "answer", "malformed")
    rows = [
        (_label(s), TITLES.get(task, task), *(str(s["actions"][task].get(kind, 0)) for kind in kinds))
        for s in systems
        for task in tasks
        if s["actions"].get(task)
    ]
    tables.append(Table("What was done", ("system", "task", *kinds), rows))
    rows = [
        (_label(s), TITLES.get(task, task), f"{t['p50']:.0f} ms", f"{t['p95']:.0f} ms", str(t["n"]))
        for s in systems
        for task, t in s["ttft_ms"].items()
    ]
    if results["benchmark"] == "wearvox":
        tasks = ["grounding", "closed_book", "tool_call", "non-assistant-directed"]
        for name, values in published.WEARVOX_TTFT_MS.items():
            rows += [(name + MARK, TITLES[t], f"{v} ms (mean)", "-", "-") for t, v in zip(tasks, values, strict=True)]
    note = "Alone (batch of one), from the recording in memory to the first token: features, encoder, prefill."
    tables.append(Table("Time to first token", ("system", "task", "p50", "p95", "items"), rows, note))
    rows = [(f"{t['first']} against {t['second']}", str(t["only_first"]), str(t["only_second"]), f"{t['p_value']:.2g}")
            for t in results["paired_tests"]]  # fmt: skip
    if rows:
        header = ("pair", "only the first right", "only the second right", "p (McNemar, exact)")
        tables.append(Table("Paired tests on the same items", header, rows))
    return tables


def conditions_table(benchmark: str, found: Sequence[tuple[str, Mapping[str, Any]]]) -> Table:
    """The model's headline rates under each condition, from the results of each run."""
    columns = HEADLINE[benchmark]
    rows = [(name, *(cell(results["systems"][0]["rates"].get(rate)) for _, rate in columns)) for name, results in found]
    return Table("Under evaluation conditions", ("condition", *(title for title, _ in columns)), rows)
