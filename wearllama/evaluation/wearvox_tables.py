"""WearVox's tables in the paper's form (arXiv 2601.02391, Tables 2 to 6, Figure 3): our rows beside the published."""

from collections.abc import Mapping
from typing import Any

from wearllama.evaluation import published
from wearllama.evaluation.table import MARK, Table, breakdown, cell, headline, label, per_cent

WEARVOX_RATES = (
    ("search QA", "grounding/correct"), ("closed-book QA", "closed_book/correct"), ("tool name", "tool_call/name"),
    ("tool loose", "tool_call/loose"), ("tool strict", "tool_call/strict"),
    ("side-talk", "non-assistant-directed/correct"),
    ("micro (tool name)", "micro_average/name"), ("micro (tool strict)", "micro_average/strict"),
    ("translation", "live_translation/session"),
)  # fmt: skip
_BREAKDOWNS = (
    ("by_noise_type", "By noise type"), ("by_environment", "By environment"), ("by_noise_level", "By noise level"),
    ("by_location", "By location"), ("by_distance", "By distance of the partner"),
    ("by_position", "By direction of the partner (degrees)"), ("by_bystander", "With and without a bystander"),
)  # fmt: skip


def wearvox_tables(results: Mapping[str, Any]) -> list[Table]:
    """The headline (Tables 2 and 4), Table 5, Figure 3 in numbers, Table 6, and all other breakdowns."""
    more = "micro-average, tool calls by name"
    tables = [_headline(results), _by_noise(results), _by_place(results)]
    tables += [breakdown(results, key, f"{title} ({more})") for key, title in _BREAKDOWNS]
    return [table for table in [*tables, _layouts()] if table.rows]


def _headline(results: Mapping[str, Any]) -> Table:
    rows = headline(results, WEARVOX_RATES)
    for name, (search, closed, tool, side, micro) in published.WEARVOX.items():
        cells = [per_cent(value) for value in (search, closed, None, None, tool, side, None, micro)]
        score, mark = published.WEARVOX_TRANSLATION.get(name, (None, ""))
        rows.append((name + MARK, *cells, per_cent(score) + mark))
    judge = (results.get("judges") or {}).get("qa")
    by = f"by the judge {judge['model']['model']} (prompt {judge['prompt']})" if judge else "exact or alias match"
    note = (
        f"QA here: {by}. Tool: name only; syntax tree with free arguments compared loosely (content-word F1 >= 0.5); "
        "syntax tree strictly. Translation: mean session score, turns scored by a judge. 95 % Wilson intervals, "
        "bootstrap for translation. * recordings cut to the model's limit. + reference segmentation and speakers were "
        f"given. Published: {published.WEARVOX_SOURCE}."
    )
    header = ("system", *(title for title, _ in WEARVOX_RATES))
    return Table("WearVox, turn-based tasks and translation", header, rows, note)


def _by_noise(results: Mapping[str, Any]) -> Table:
    """Table 5: our micro-average (strict tool calls) beside the six published systems, row by row."""
    systems = results["systems"]
    ours = {name for system in systems for name in system.get("by_noise_type_strict", ())}
    rows = []
    for name in sorted({*published.WEARVOX_NOISE, *ours}):
        mine = [cell(system.get("by_noise_type_strict", {}).get(name)) for system in systems]
        printed = published.WEARVOX_NOISE_OTHERS.get(name, (None,) * 4)
        sc, mc, count = published.WEARVOX_NOISE.get(name, (None, None, None))
        rows.append((name, *mine, *map(per_cent, (*printed, sc, mc)), "-" if count is None else str(count)))
    theirs = ("GPT-4o Audio", "Gemini 2.5 Flash", "Gemini 2.5 Flash Thinking", "GPT-5 + Whisper", "SC WearLlama",
              "MC WearLlama", "items")  # fmt: skip
    header = ("noise type", *map(label, systems), *(name + MARK for name in theirs))
    note = f"Ours: micro-average, tool calls by strict syntax tree. Published: {published.WEARVOX_NOISE_SOURCE}."
    return Table("By noise type, as in the paper's Table 5", header, rows, note)


def _by_place(results: Mapping[str, Any]) -> Table:
    table = breakdown(results, "by_place", "By place and loudness, as in the paper's Figure 3")
    note = "Micro-average, tool calls by strict syntax tree. The paper draws these without printing numbers."
    return table._replace(note=note)


def _layouts() -> Table:
    rows = [
        (f"MC WearLlama{MARK}" if "c_0" in trained else f"SC WearLlama{MARK}", trained, tested, f"{wer:.2f} %")
        for (trained, tested), wer in published.WEARVOX_LAYOUTS.items()
    ]
    note = f"Published: {published.WEARVOX_LAYOUTS_SOURCE}; not measured by this benchmark's recordings."
    return Table(
        "Other microphones, as in the paper's Table 6", ("system", "trained on", "tested on", "WER"), rows, note
    )
