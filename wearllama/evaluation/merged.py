"""Several runs of a benchmark as one: what ``tables.tables_of`` makes of a run, it then makes of all their models."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from wearllama.evaluation.report import read_run

SAME = ("benchmark", "items", "prompts")


def merge_runs(folders: Sequence[str | Path]) -> dict[str, Any]:
    """The first run's results with every run's model as a system; no tests between them (tools/compare.py has those).

    Raises:
        ValueError: a folder holds no run, or runs differ in benchmark, number of items or prompts.
    """
    runs = [(Path(folder), read_run(folder)[0]) for folder in folders]
    first_folder, first = runs[0]
    for folder, results in runs[1:]:
        other = {name: (results[name], first[name]) for name in SAME if results[name] != first[name]}
        if other:
            told = ", ".join(f"{name} {found!r}, wanted {wanted!r}" for name, (found, wanted) in other.items())
            raise ValueError(f"{folder} cannot stand beside {first_folder}: {told}")
    judges = {f"{folder.name} {role}": used for folder, results in runs for role, used in results["judges"].items()}
    return {
        **first,
        "systems": [named(results) for _, results in runs],
        "judges": judges,
        "paired_tests": [],
    }


def named(results: dict[str, Any]) -> dict[str, Any]:
    """A run's model under its own name, with the condition or channels under which it was heard."""
    system = results["systems"][0]
    identity = system["identity"]
    heard = [identity[name] for name in ("condition", "pair", "array", "adaptation") if name in identity]
    return {**system, "label": " ".join(["model", *heard])}
