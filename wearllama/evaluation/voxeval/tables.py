"""VoxEval's tables: a run's, and of several models under the same conditions."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from wearllama.evaluation import published
from wearllama.evaluation.report import read_run
from wearllama.evaluation.tables import MARK, Table, cell
from wearllama.evaluation.voxeval.layout import SETTINGS
from wearllama.simulation.conditions import CLEAN

Found = Sequence[tuple[str, Mapping[str, Any]]]
"""Conditions of a run with their results."""


def voxeval_tables(found: Found) -> list[Table]:
    """Accuracy by condition and setting with the published rows, the ways of scoring, and breakdowns of the first."""
    settings = [name for name in SETTINGS if name in found[0][1]["systems"][0]["rates"]]
    columns = [*settings, "all"] if len(settings) > 1 else settings
    rows = [
        (_who(system, name), *(cell(system["rates"].get(column)) for column in columns))
        for name, result in found
        for system in result["systems"]
    ]
    for name, values in published.VOXEVAL.items():
        by_setting = dict(zip(SETTINGS, values, strict=False))
        shown = [f"{by_setting[column]:.2f} %" if column in by_setting else "-" for column in columns]
        rows.append((name + MARK, *shown))
    note = (
        "Accuracy over the whole reply; what cannot be read is wrong. Chance is 25 %. 95 % Wilson intervals. "
        f"Published: {published.VOXEVAL_SOURCE}."
    )
    tables = [Table("VoxEval", ("system", *columns), rows, note)]
    rows = [
        (_who(system, name), *(cell(system["rates"][f"all{mark}"]) for mark in ("", "/final", "/parsed")))
        for name, result in found
        for system in result["systems"]
    ]
    tables.append(Table("Ways of scoring", ("system", "whole reply", "last segment", "readable"), rows))
    first = found[0][1]["systems"]
    for key, title in (
        ("by_group", "By group"), ("by_subject", "By subject"), ("by_fine_condition", "By fine condition"),
    ):  # fmt: skip
        names = sorted({name for system in first for name in system[key]})
        rows = [(name, *(cell(system[key].get(name)) for system in first)) for name in names]
        tables.append(Table(title, ("", *(_who(system, found[0][0]) for system in first)), rows))
    return tables


def condition_table(folders: Sequence[str | Path]) -> Table:
    """Accuracy of several runs, a column each, under every condition that one of them has (audio-direct-0, ...).

    ValueError where a folder is no VoxEval run, or runs have not the same number of questions.
    """
    runs = [(Path(folder), _conditions(folder)) for folder in folders]
    counts = {next(iter(found.values()))["items"] for _, found in runs}
    if len(counts) > 1:
        raise ValueError(f"{[str(folder) for folder, _ in runs]} have different numbers of questions: {sorted(counts)}")
    first = next(iter(runs[0][1].values()))["systems"]
    systems = [next(iter(found.values()))["systems"][0] for _, found in runs]
    names = [f"{system['identity']['model']} ({system['identity'].get('input', 'audio')})" for system in systems]
    conditions = dict.fromkeys(name for _, found in runs for name in found)
    rows = []
    for name in conditions:
        heard = [found[name]["systems"][0]["rates"]["all"] if name in found else None for _, found in runs]
        rows.append((name, *map(cell, heard)))
    constant = [system for system in first[1:] if system["label"] == "majority class"]
    fixed = "".join(f" The best constant answer: {cell(system['rates']['all'])}." for system in constant)
    note = f"{counts.pop()} questions. Unreadable replies are wrong; chance is 25 %; 95 % Wilson intervals.{fixed}"
    return Table("VoxEval by condition", ("condition", *names), rows, note)


def _conditions(folder: str | Path) -> dict[str, Any]:
    results, _ = read_run(folder)
    found = {entry["condition"]: entry for entry in results.get("conditions", [])}
    if not found or any(entry["benchmark"] != "voxeval" for entry in found.values()):
        raise ValueError(f"{folder} holds no VoxEval run")
    return found


def _who(system: dict[str, Any], condition: str) -> str:
    label = system["label"].replace("model", system["identity"]["model"], 1)
    return label if condition == CLEAN else f"{label}, {condition}"
