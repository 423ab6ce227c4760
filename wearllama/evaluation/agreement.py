"""Do two judges, or a judge and people, agree? Cohen's kappa for labels, Pearson's correlation for scores."""

import csv
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from wearllama.evaluation.append_log import read_lines


class Agreement(NamedTuple):
    """Agreement on the items that both sides scored."""

    items: int
    only_first: int
    """Items that only the first scored."""
    only_second: int
    raw: float
    """Share of equal scores."""
    kappa: float
    """Cohen's; NaN where both sides always say the same one thing."""
    pearson: float
    """NaN for labels, and where a side never varies."""


def agree(first: Mapping[str, Any], second: Mapping[str, Any]) -> Agreement:
    """Compare scores by id; what is no number on both sides is a label. ValueError without overlap."""
    shared = sorted(first.keys() & second.keys())
    if not shared:
        raise ValueError(f"no id is scored on both sides ({len(first)} and {len(second)} items)")
    a, b = [first[key] for key in shared], [second[key] for key in shared]
    numeric = all(isinstance(value, float | int) for value in (*a, *b))
    raw = sum(x == y for x, y in zip(a, b, strict=True)) / len(shared)
    correlation = pearson(a, b) if numeric else math.nan
    alone = len(first) - len(shared), len(second) - len(shared)
    return Agreement(len(shared), *alone, raw, cohen_kappa(a, b), correlation)


def cohen_kappa(first: Sequence[Any], second: Sequence[Any]) -> float:
    """Agreement beyond chance of two raters (Cohen 1960)."""
    total = len(first)
    if total != len(second) or not total:
        raise ValueError(f"{len(first)} and {len(second)} ratings, wanted as many of both and at least one")
    observed = sum(x == y for x, y in zip(first, second, strict=True)) / total
    kinds = {*first, *second}
    chance = sum(first.count(kind) * second.count(kind) for kind in kinds) / total**2
    return math.nan if chance == 1 else (observed - chance) / (1 - chance)


def fleiss_kappa(first: Sequence[Any], second: Sequence[Any]) -> float:
    """Agreement beyond chance of two raters (Fleiss 1971): chance comes from the labels of both raters together."""
    total = len(first)
    if total != len(second) or not total:
        raise ValueError(f"{len(first)} and {len(second)} ratings, wanted as many of both and at least one")
    observed = sum(x == y for x, y in zip(first, second, strict=True)) / total
    given = [*first, *second]
    chance = sum((given.count(kind) / len(given)) ** 2 for kind in set(given))
    return math.nan if chance == 1 else (observed - chance) / (1 - chance)


def pearson(first: Sequence[float], second: Sequence[float]) -> float:
    """Pearson's correlation."""
    a_I, b_I = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if a_I.size < 2 or not a_I.std() or not b_I.std():
        return math.nan
    return float(np.corrcoef(a_I, b_I)[0, 1])


def read_scores(path: str | Path) -> dict[str, Any]:
    """Scores by id of a judge's log (``judgements-ROLE.jsonl``) or of a CSV file with the columns id and score.

    What has no score is left out.  Raises ValueError naming file, line and what was wanted.
    """
    file = Path(path)
    if not file.is_file():
        raise ValueError(f"no file at {file}")
    if file.suffix == ".jsonl":
        rows = {str(row.get("id")): row.get("score") for row in read_lines(file)}
        return {key: score for key, score in rows.items() if score is not None}
    with file.open(encoding="utf-8-sig", newline="") as stream:
        reader = csv.DictReader(stream)
        if not {"id", "score"} <= set(reader.fieldnames or ()):
            raise ValueError(f"{file}: columns are {reader.fieldnames}, wanted id and score")
        scores: dict[str, Any] = {}
        for row in reader:
            if row["id"] in scores:
                raise ValueError(f"{file}, line {reader.line_num}: id {row['id']!r} is given twice")
            if row["score"] not in (None, ""):
                scores[row["id"]] = _number(row["score"])
    return scores


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text.strip()
