"""Counts with their uncertainty: Wilson intervals for rates, McNemar's exact test for two systems on the same items."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from scipy.stats import binom, norm


class Interval(NamedTuple):
    """A confidence interval of a rate, both ends in [0, 1]."""

    low: float
    high: float


def wilson_interval(hits: int, total: int, confidence: float = 0.95) -> Interval:
    """Wilson's score interval (1927) of ``hits`` out of ``total``; (0, 1) where nothing was counted.

    Unlike the normal approximation it stays inside [0, 1] and is honest at 0 % and 100 %.
    """
    if not 0 <= hits <= total:
        raise ValueError(f"hits must lie in 0..total, found {hits} of {total}")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie in (0, 1), found {confidence}")
    if total == 0:
        return Interval(0.0, 1.0)
    z = float(norm.ppf(0.5 + confidence / 2))
    rate = hits / total
    scale = 1 + z * z / total
    centre = (rate + z * z / (2 * total)) / scale
    half = z * math.sqrt(rate * (1 - rate) / total + z * z / (4 * total * total)) / scale
    low = 0.0 if hits == 0 else max(0.0, centre - half)
    high = 1.0 if hits == total else min(1.0, centre + half)
    return Interval(low, high)


@dataclass(frozen=True)
class Rate:
    """``hits`` of ``total`` items, with its interval."""

    hits: int
    total: int

    @property
    def value(self) -> float:
        """The rate in [0, 1]; NaN where nothing was counted."""
        return self.hits / self.total if self.total else math.nan

    @property
    def interval(self) -> Interval:
        return wilson_interval(self.hits, self.total)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready: hits, total, rate (null where nothing was counted) and the 95 % interval."""
        return {**asdict(self), "rate": self.value if self.total else None, "low": self.interval.low,
                "high": self.interval.high}  # fmt: skip

    def __str__(self) -> str:
        if not self.total:
            return "- (0 items)"
        low, high = self.interval
        return f"{100 * self.value:.1f} % [{100 * low:.1f}, {100 * high:.1f}] ({self.hits}/{self.total})"


def rate_of(outcomes: Iterable[bool]) -> Rate:
    """Count true outcomes."""
    values = [bool(outcome) for outcome in outcomes]
    return Rate(sum(values), len(values))


class PairedTest(NamedTuple):
    """McNemar's test: items only the first or only the second system has right, and the two-sided exact p."""

    only_first: int
    only_second: int
    p_value: float


def mcnemar(first: Mapping[str, bool], second: Mapping[str, bool]) -> PairedTest:
    """Exact two-sided McNemar test over the items (by id) that both systems were scored on."""
    shared = first.keys() & second.keys()
    only_first = sum(first[key] and not second[key] for key in shared)
    only_second = sum(second[key] and not first[key] for key in shared)
    discordant = only_first + only_second
    if discordant == 0:
        return PairedTest(0, 0, 1.0)
    tail = float(binom.cdf(min(only_first, only_second), discordant, 0.5))
    return PairedTest(only_first, only_second, min(1.0, 2 * tail))
