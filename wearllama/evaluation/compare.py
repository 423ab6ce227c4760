"""Two runs on the same items: paired bootstrap of the difference and McNemar's test, by task and by place."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from wearllama.evaluation.intervals import mcnemar, paired_bootstrap
from wearllama.evaluation.table import Table

Row = Mapping[str, str]
NOT_RECORDED = "not recorded"


class Comparison(NamedTuple):
    """Tables for the reader; ``only`` counts items that one run alone has."""

    tables: list[Table]
    only: tuple[int, int]


def compare(
    first: Sequence[Row], second: Sequence[Row], names: tuple[str, str] = ("first", "second"), *, mark: str = "correct"
) -> Comparison:
    """Compare the rows of items.csv of two systems.

    Args:
        first: rows of one system.
        second: rows of the other.
        names: what to call them.
        mark: column that counts for tool calls (``name``, ``loose``, ``strict``); all else counts by ``correct``.

    Raises:
        ValueError: an id has two tasks or targets (other data), or nothing is shared.
    """
    a, b = {row["id"]: row for row in first}, {row["id"]: row for row in second}
    shared = [key for key in a if key in b]
    if not shared:
        raise ValueError("the two runs share no item")
    for key in shared:
        for column in ("task", "wanted"):
            if a[key].get(column) != b[key].get(column):
                raise ValueError(f"item {key!r} has another {column} in each run: not the same data")
    tables = [
        _table("By task", shared, a, b, names, mark, lambda row: row["task"], total=True),
        _table("By environment", shared, a, b, names, mark, lambda row: row.get("environment") or NOT_RECORDED),
        _table("By noise type", shared, a, b, names, mark, lambda row: row.get("noise_type") or NOT_RECORDED),
    ]
    told = [table for table in tables if any(row[0] != NOT_RECORDED for row in table.rows)]
    return Comparison(told, (len(a) - len(shared), len(b) - len(shared)))


def _table(
    title: str,
    shared: Sequence[str],
    a: Mapping[str, Row],
    b: Mapping[str, Row],
    names: tuple[str, str],
    mark: str,
    key: Callable[[Row], str],
    *,
    total: bool = False,
) -> Table:
    groups: dict[str, list[str]] = {}
    for item in shared:
        groups.setdefault(key(a[item]), []).append(item)
    rows = [_row(name, groups[name], a, b, mark) for name in sorted(groups)]
    if total:
        turn_based = [item for item in shared if not a[item].get("session") and not b[item].get("session")]
        rows.append(_row("all turn-based", turn_based, a, b, mark))
    header = ("", "items", *names, "difference [95 %]", "p (bootstrap)", f"only {names[0]}", f"only {names[1]}",
              "p (McNemar)")  # fmt: skip
    note = "Paired over the items that both runs scored; difference is the first minus the second, in points."
    return Table(title, header, [row for row in rows if row], note)


def _row(name: str, items: Sequence[str], a: Mapping[str, Row], b: Mapping[str, Row], mark: str) -> tuple[str, ...]:
    """One row of figures; () where no item is scored in both."""
    pairs = [(key, x, y) for key in items if (x := score_of(a[key], mark)) is not None
             and (y := score_of(b[key], mark)) is not None]  # fmt: skip
    if not pairs:
        return ()
    first, second = {key: x for key, x, _ in pairs}, {key: y for key, _, y in pairs}
    found = paired_bootstrap(first, second)
    binary = all(value in (0.0, 1.0) for value in (*first.values(), *second.values()))
    test = mcnemar({k: v == 1 for k, v in first.items()}, {k: v == 1 for k, v in second.items()}) if binary else None
    tail = (str(test.only_first), str(test.only_second), f"{test.p_value:.2g}") if test else ("-", "-", "-")
    means = [f"{100 * sum(side.values()) / len(pairs):.1f} %" for side in (first, second)]
    interval = f"{100 * found.difference:+.1f} [{100 * found.low:+.1f}, {100 * found.high:+.1f}]"
    return (name, str(len(pairs)), *means, interval, f"{found.p_value:.2g}", *tail)


def score_of(row: Row, mark: str = "correct") -> float | None:
    """What counts of an item; None where it was not scored."""
    if row.get("session"):
        return float(row["session"])
    column = mark if row["task"] == "tool_call" else "correct"
    text = row.get(column) or ""
    return float(text) if text else None
