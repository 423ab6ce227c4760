"""Counts with their uncertainty: Wilson intervals for rates, McNemar's exact test for two systems on the same items."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
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


@dataclass(frozen=True)
class Mean:
    """Mean of scores in [0, 1] with a bootstrap interval."""

    value: float
    total: int
    interval: Interval

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready: mean, total and the 95 % interval."""
        return {"mean": self.value, "total": self.total, "low": self.interval.low, "high": self.interval.high}

    def __str__(self) -> str:
        low, high = self.interval
        return f"{100 * self.value:.1f} % [{100 * low:.1f}, {100 * high:.1f}] (n = {self.total})"


def mean_of(scores: Sequence[float], *, resamples: int = 1000, seed: int = 0) -> Mean:
    """Mean and percentile bootstrap over the items."""
    values_I = np.asarray(scores, dtype=np.float64)
    if values_I.size == 0:
        raise ValueError("no scores to average")
    draws_RI = np.random.default_rng(seed).integers(values_I.size, size=(resamples, values_I.size))
    low, high = np.percentile(values_I[draws_RI].mean(axis=1), (2.5, 97.5))
    return Mean(float(values_I.mean()), values_I.size, Interval(float(low), float(high)))


@dataclass(frozen=True)
class ErrorRate:
    """Errors over words (or other units), with a bootstrap interval over recordings; may exceed 1."""

    errors: int
    total: int
    interval: Interval

    @property
    def value(self) -> float:
        """Errors a word; NaN without words."""
        return self.errors / self.total if self.total else math.nan

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready: errors, total (words), rate and the 95 % interval."""
        return {"errors": self.errors, "total": self.total, "rate": self.value if self.total else None,
                "low": self.interval.low, "high": self.interval.high}  # fmt: skip

    def __str__(self) -> str:
        low, high = self.interval
        return f"{100 * self.value:.1f} % [{100 * low:.1f}, {100 * high:.1f}] ({self.errors}/{self.total} words)"


def error_rate_of(counts: Sequence[tuple[int, int]], *, resamples: int = 1000, seed: int = 0) -> ErrorRate:
    """Of (errors, words) a recording; percentile bootstrap over recordings."""
    counts_I2 = np.asarray(counts, dtype=np.int64).reshape(-1, 2)
    errors, total = (int(part) for part in counts_I2.sum(axis=0))
    if total == 0:
        return ErrorRate(errors, 0, Interval(math.nan, math.nan))
    draws_RI = np.random.default_rng(seed).integers(len(counts_I2), size=(resamples, len(counts_I2)))
    sums_R2 = counts_I2[draws_RI].sum(axis=1)
    low, high = np.percentile(sums_R2[:, 0] / np.maximum(sums_R2[:, 1], 1), (2.5, 97.5))
    return ErrorRate(errors, total, Interval(float(low), float(high)))


def relative_reduction(
    first: Mapping[str, tuple[int, int]], second: Mapping[str, tuple[int, int]], *, resamples: int = 2000, seed: int = 0
) -> Mean:
    """How much lower the second's error rate is than the first's, as a share of the first's; paired bootstrap.

    Args:
        first: (errors, words) by recording.
        second: the same recordings by another system; ValueError where they differ or the first makes no error.
    """
    if first.keys() != second.keys() or not any(errors for errors, _ in first.values()):
        raise ValueError("wanted two systems' counts of the same recordings, with errors of the first")
    errors_I2 = np.array([(first[key][0], second[key][0]) for key in sorted(first)], dtype=np.float64)
    draws_RI = np.random.default_rng(seed).integers(len(errors_I2), size=(resamples, len(errors_I2)))
    sums_R2 = errors_I2[draws_RI].sum(axis=1)
    kept_R2 = sums_R2[sums_R2[:, 0] > 0]
    low, high = np.percentile(1 - kept_R2[:, 1] / kept_R2[:, 0], (2.5, 97.5))
    whole_2 = errors_I2.sum(axis=0)
    return Mean(float(1 - whole_2[1] / whole_2[0]), len(errors_I2), Interval(float(low), float(high)))


class PairedDifference(NamedTuple):
    """First minus second on the same items, its bootstrap interval, and a two-sided p from the resamples' signs."""

    difference: float
    low: float
    high: float
    p_value: float
    items: int


def paired_bootstrap(
    first: Mapping[str, float], second: Mapping[str, float], *, resamples: int = 10_000, seed: int = 0
) -> PairedDifference:
    """Bootstrap of the mean difference over the items (by id) that both systems were scored on; two-sided p."""
    shared = sorted(first.keys() & second.keys())
    if not shared:
        return PairedDifference(math.nan, math.nan, math.nan, 1.0, 0)
    values_I = np.array([float(first[key]) - float(second[key]) for key in shared])
    kinds_K, counts_K = np.unique(values_I, return_counts=True)  # few values: draw how often each comes, not each item
    draws_RK = np.random.default_rng(seed).multinomial(len(shared), counts_K / len(shared), size=resamples)
    means_R = draws_RK @ kinds_K / len(shared)
    low, high = np.percentile(means_R, (2.5, 97.5))
    below, above = float((means_R <= 0).mean()), float((means_R >= 0).mean())
    return PairedDifference(
        float(values_I.mean()), float(low), float(high), min(1.0, 2 * min(below, above)), len(shared)
    )


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
