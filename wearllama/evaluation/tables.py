"""Results as tables of words: one source for the terminal, Markdown and HTML. Published rows are marked."""

from collections.abc import Mapping, Sequence
from typing import Any

from wearllama.evaluation import published
from wearllama.evaluation.table import MARK, Table, breakdown, cell, headline, label, per_cent
from wearllama.evaluation.wearvox import TITLES, TRANSLATION
from wearllama.evaluation.wearvox_tables import WEARVOX_RATES, wearvox_tables

__all__ = ["HEADLINE", "MARK", "Table", "cell", "conditions_table", "tables_of"]


def tables_of(results: Mapping[str, Any]) -> list[Table]:
    """All tables of a benchmark's results, the headline first."""
    make = {"wearvox": wearvox_tables, "vgbench": _vgbench, "asr": _asr}[results["benchmark"]]
    return [*make(results), *_common(results)]


_VGBENCH_RATES = (
    ("switch mute", "speaker_switch/switch"), ("same-speaker tool", "speaker_switch/same_speaker"),
    ("text-only tool", "speaker_switch/text_only"), ("all three", "speaker_switch/all_three"),
    ("self-talk mute", "self_talk"), ("side-talk", "side_talk"),
)  # fmt: skip
_ASR_RATES = (("word error rate", "wer"), ("without error", "exact"))
HEADLINE = {"wearvox": WEARVOX_RATES, "vgbench": _VGBENCH_RATES, "asr": _ASR_RATES}
"""Columns of the headline tables: title and the rate's name."""


def _vgbench(results: Mapping[str, Any]) -> list[Table]:
    rows = headline(results, _VGBENCH_RATES)
    by = results["systems"][0].get("side_talk_labels_by", "rule")
    for name, r in published.VGBENCH.items():
        cells = (r.switch_mute, r.same_speaker, r.text_only, None, r.self_talk, r.side_talk)
        rows.append((name + MARK, *map(per_cent, cells)))
    note = (
        "Joint scores: muting counts only beside the tool rates. Side-talk's free answers are labelled by "
        f"{by} here. 95 % Wilson intervals. Published: {published.VGBENCH_SOURCE}."
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
    tables.append(breakdown(results, "self_talk_by_discourse", "Self-talk by discourse form"))
    tables.append(breakdown(results, "side_talk_by_order", "Side-talk by order"))
    tables.append(breakdown(results, "side_talk_by_target", "Side-talk by wanted action"))
    labels = list(results["systems"][0]["side_talk_labels"])
    rows = [(label(s), *(str(s["side_talk_labels"][kind]) for kind in labels)) for s in results["systems"]]
    tables.append(Table(f"Side-talk: whom the action serves (by {by})", ("system", *labels), rows))
    return [table for table in tables if table.rows]


def _asr(results: Mapping[str, Any]) -> list[Table]:
    rows = headline(results, _ASR_RATES)
    note = "Whisper's normalisation; 95 % intervals: bootstrap over recordings, Wilson for whole recordings."
    tables = [Table("Transcription", ("system", *(title for title, _ in _ASR_RATES)), rows, note)]
    for key, title in (("by_asked_as", "By the benchmark's task"), ("by_noise_type", "By noise type"),
                       ("by_environment", "By environment")):  # fmt: skip
        tables.append(breakdown(results, key, f"{title}: word error rate"))
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
    header = ("source", "distance", "gap", "wanted", *map(label, systems), "VoxGate SFT" + MARK, "VoxGate GRPO" + MARK)
    note = f"Mute rates. Published: {published.VGBENCH_SOURCE}."
    return Table("Factorised controls", header, rows, note)


def _common(results: Mapping[str, Any]) -> list[Table]:
    tables = []
    systems = results["systems"]
    tasks = list(systems[0]["actions"])
    kinds = ("mute", "tool", "answer", "malformed")
    rows = [
        (label(s), TITLES.get(task, task), *(str(s["actions"][task].get(kind, 0)) for kind in kinds))
        for s in systems
        for task in tasks
        if s["actions"].get(task)
    ]
    tables.append(Table("What was done", ("system", "task", *kinds), rows))
    rows = [
        (label(s), TITLES.get(task, task), f"{t['p50']:.0f} ms", f"{t['p95']:.0f} ms", str(t["n"]))
        for s in systems
        for task, t in s["ttft_ms"].items()
    ]
    if results["benchmark"] == "wearvox":
        tasks = ["grounding", "closed_book", "tool_call", "non-assistant-directed", TRANSLATION]
        for name, values in published.WEARVOX_TTFT_MS.items():
            rows += [(name + MARK, TITLES[t], f"{v} ms (mean)", "-", "-") for t, v in zip(tasks, values, strict=True)]
    tables += [_spent(results), _unscored(results)]
    note = "Alone (batch of one), from the recording in memory to the first token: features, encoder, prefill."
    tables.append(Table("Time to first token", ("system", "task", "p50", "p95", "items"), rows, note))
    tables = [table for table in tables if table.rows]
    rows = [(f"{t['first']} against {t['second']}", str(t["only_first"]), str(t["only_second"]), f"{t['p_value']:.2g}")
            for t in results["paired_tests"]]  # fmt: skip
    if rows:
        header = ("pair", "only the first right", "only the second right", "p (McNemar, exact)")
        tables.append(Table("Paired tests on the same items", header, rows))
    return tables


def _spent(results: Mapping[str, Any]) -> Table:
    """Tokens of models and judges, where they tell."""
    rows = [
        (label(s), str(u["prompt_tokens"]), str(u["completion_tokens"]), _money(u))
        for s in results["systems"]
        if (u := s.get("usage") or {}).get("prompt_tokens")
    ]
    for role, used in (results.get("judges") or {}).items():
        name = f"judge {role} ({used['model']['model']}, prompt {used['prompt']})"
        rows.append((name, str(used["prompt_tokens"]), str(used["completion_tokens"]), _money(used)))
    return Table("Tokens", ("who", "prompt", "completion", "USD"), rows, "As the models count them; all launches.")


def _money(used: Mapping[str, Any]) -> str:
    return f"{used['usd']:.4f}" if used.get("usd") else "-"


def _unscored(results: Mapping[str, Any]) -> Table:
    """What no score counts, and why: never guessed, never dropped in silence."""
    rows = [
        (label(s), TITLES.get(task, task), str((s.get("unscored") or {}).get(task, 0)),
         str((s.get("truncated") or {}).get(task, 0)))
        for s in results["systems"]
        for task in s["actions"]
        if (s.get("unscored") or {}).get(task) or (s.get("truncated") or {}).get(task)
    ]  # fmt: skip
    note = "Not scored: no judge was configured, or its words held no verdict. Cut: longer than the model takes (*)."
    return Table("Not scored, or cut", ("system", "task", "not scored", "cut"), rows, note)


def conditions_table(benchmark: str, found: Sequence[tuple[str, Mapping[str, Any]]], title: str) -> Table:
    """The model's headline rates under each condition, from the results of each run."""
    columns = HEADLINE[benchmark]
    rows = [(name, *(cell(results["systems"][0]["rates"].get(rate)) for _, rate in columns)) for name, results in found]
    return Table(title, ("heard", *(column for column, _ in columns)), rows)
