"""Trials into figures: class recalls, the primary score with its published bootstrap, agreement of two judges."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from wearllama.evaluation.agreement import fleiss_kappa
from wearllama.evaluation.context_bench.judging import implied_label
from wearllama.evaluation.context_bench.tasks import SCORED, Label, Task
from wearllama.evaluation.intervals import Rate, rate_of

RESAMPLES, SEED = 1000, 42


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One task under one condition: what was said, and what it was taken for."""

    task: Task
    condition: str
    turn_1: str
    turn_2: str
    signals: Mapping[str, bool]
    label: Label | None = None
    """The judge's; None where there was no judge or its words were no label."""
    note: str = ""
    ranking_label: Label | None = None
    """The ranking judge's, who is the same for all candidates."""
    ranking_note: str = ""

    @property
    def passed(self) -> bool:
        return self.label == self.task.gold


class Primary(NamedTuple):
    """Mean of current and prior recall, with the published bootstrap's 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """Two judges on the same trials."""

    kappa: float
    """Fleiss' kappa; NaN where both only ever used one label."""
    observed: float
    trials: int
    differing: Mapping[str, int] = field(default_factory=dict)
    """Trials on which they differ, by task."""


def recalls(trials: Sequence[Trial]) -> dict[Label, Rate]:
    """Recall of each scored class over trials of one condition: right ones of all whose gold label it is."""
    return {label: rate_of(t.passed for t in trials if t.task.gold == label) for label in SCORED}


def primary_score(current: Rate, prior: Rate) -> Primary | None:
    """The benchmark's score; None where a class has no trial.

    Bootstrap as published: 1,000 resamples of the outcomes, numpy's ``default_rng(42)``, current drawn before prior;
    the 25th and the 975th of the sorted means are the interval's ends.
    """
    if not current.total or not prior.total:
        return None
    outcomes = [np.repeat([1.0, 0.0], [rate.hits, rate.total - rate.hits]) for rate in (current, prior)]
    rng = np.random.default_rng(SEED)
    means = [np.mean([rng.choice(values, values.size).mean() for values in outcomes]) for _ in range(RESAMPLES)]
    low, high = np.percentile(means, [2.5, 97.5], method="inverted_cdf")
    return Primary((current.value + prior.value) / 2, float(low), float(high))


def agreement(trials: Sequence[Trial]) -> Agreement | None:
    """Agreement of judge and ranking judge; None where no trial has both labels."""
    both = [(t, t.label, t.ranking_label) for t in trials if t.label is not None and t.ranking_label is not None]
    if not both:
        return None
    differing: dict[str, int] = {}
    for trial, label, other in both:
        if label != other:
            differing[trial.task.id] = differing.get(trial.task.id, 0) + 1
    kappa = fleiss_kappa([label for _, label, _ in both], [other for _, _, other in both])
    return Agreement(
        kappa=kappa, observed=1 - sum(differing.values()) / len(both), trials=len(both), differing=differing
    )


def by(trials: Sequence[Trial], key: Callable[[Task], str]) -> dict[str, list[Trial]]:
    """Trials grouped by something of their task, names in order."""
    groups: dict[str, list[Trial]] = {}
    for trial in trials:
        groups.setdefault(key(trial.task) or "not recorded", []).append(trial)
    return dict(sorted(groups.items()))


def pair_consistency(trials: Sequence[Trial]) -> Rate:
    """Pairs of which every member passed."""
    pairs = by([t for t in trials if t.task.pair_id], lambda task: task.pair_id)
    return rate_of(all(t.passed for t in members) for members in pairs.values())


def code_disagreements(trials: Sequence[Trial]) -> dict[str, int]:
    """Trials by task whose words alone point at another label than the judge's."""
    counts: dict[str, int] = {}
    for trial in trials:
        implied = implied_label(trial.signals)
        if trial.label is not None and implied is not None and implied != trial.label:
            counts[trial.task.id] = counts.get(trial.task.id, 0) + 1
    return counts
