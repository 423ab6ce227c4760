"""Scores of WearVox's five tasks, and their averages by task, noise and place."""

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Literal

from wearllama.data.manifest import Example
from wearllama.evaluation.intervals import Mean, Rate, mean_of, rate_of
from wearllama.evaluation.predictions import Prediction, as_action
from wearllama.evaluation.scoring import (
    Outcome,
    answer_aliases,
    contains_alias,
    gold_calls,
    matches_exactly,
    score_tool,
)
from wearllama.evaluation.translation import gold_turns, said_turns
from wearllama.evaluation.wearvox import QA, TASKS, TRANSLATION, TURN_TASKS

ToolRule = Literal["name", "loose", "strict"]
RULES: tuple[ToolRule, ...] = ("name", "loose", "strict")
BREAKDOWNS = {
    "by_noise_type": "_noise_type", "by_environment": "environment", "by_noise_level": "noise_level",
    "by_location": "location", "by_distance": "partner_distance", "by_position": "partner_position",
    "by_bystander": "bystander__y_n_",
}  # fmt: skip
"""Tables of micro-averages, and the field of the acoustics that each follows."""


def score(examples: Sequence[Example], predictions: Sequence[Prediction]) -> list[Outcome]:
    """Marks of each prediction: ``correct`` is exact or alias match for answers until a judge replaces it.

    A translation has no mark of its own: turns are counted here and judged later.
    """
    return [_score(e, p) for e, p in zip(examples, predictions, strict=True)]


def _score(example: Example, prediction: Prediction) -> Outcome:
    action = as_action(prediction, "wearvox")
    note, marks = action.reason, dict[str, bool]()
    values = {"truncated_from_s": float(prediction.extra["truncated_from_s"])} if _is_cut(prediction) else {}
    unscored = ""
    if example.task == "tool_call":
        marks, why = score_tool(action, gold_calls(example.metadata["ground_truth"]))
        marks, note = {**marks, "correct": marks["strict"]}, note or why
    elif example.task in QA:
        aliases = answer_aliases(example.metadata["ground_truth"])
        said = action.text if action.kind == "answer" else ""
        exact = matches_exactly(said, aliases)
        marks = {"exact": exact, "contains": exact or contains_alias(said, aliases), "correct": exact}
    elif example.task == TRANSLATION:
        said_now = [] if prediction.error else said_turns(prediction.raw)
        values |= {"turns": len(said_now), "gold_turns": len(gold_turns(example.metadata["ground_truth"]))}
        unscored, note = "no judge", prediction.error
    else:
        marks = {"correct": action.kind == "mute"}
    return Outcome(example.id, example.task, action.kind, marks, note, example.metadata, values, unscored)


def _is_cut(prediction: Prediction) -> bool:
    return "truncated_from_s" in prediction.extra


def micro_average(outcomes: Sequence[Outcome], tool_rule: ToolRule = "strict") -> Rate:
    """Share of right items over the turn-based tasks, with the chosen mark for tool calls; unscored items are out."""
    turn_based = [o for o in outcomes if o.task in TURN_TASKS and "correct" in o.marks]
    return rate_of(o.marks[tool_rule if o.task == "tool_call" else "correct"] for o in turn_based)


def summarise(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Rates by name (``tool_call/name``, ``closed_book/correct``, ``micro_average/strict``, ...) and breakdowns."""
    rates: dict[str, Rate | Mean] = {}
    for task in TURN_TASKS:
        mine = [o for o in outcomes if o.task == task]
        for mark in dict.fromkeys(mark for o in mine for mark in o.marks):
            rates[f"{task}/{mark}"] = rate_of(o.marks[mark] for o in mine if mark in o.marks)
    for rule in RULES:
        rates[f"micro_average/{rule}"] = micro_average(outcomes, rule)
    if sessions := [o.values["session"] for o in outcomes if "session" in o.values]:
        rates[f"{TRANSLATION}/session"] = mean_of(sessions)
    translations = [o for o in outcomes if o.task == TRANSLATION]
    return {
        "rates": rates,
        **{name: _breakdown(outcomes, _field(field), "name") for name, field in BREAKDOWNS.items()},
        "by_noise_type_strict": _breakdown(outcomes, _noise_as_published, "strict"),
        "by_place": _breakdown(outcomes, _place, "strict"),
        "actions": {task: dict(Counter(o.kind for o in outcomes if o.task == task)) for task in TASKS},
        "unscored": {task: n for task in TASKS if (n := sum(bool(o.unscored) for o in outcomes if o.task == task))},
        "truncated": {
            task: n for task in TASKS if (n := sum("truncated_from_s" in o.values for o in outcomes if o.task == task))
        },
        "turns": {
            "predicted": sum(int(o.values["turns"]) for o in translations),
            "reference": sum(int(o.values["gold_turns"]) for o in translations),
        },
    }  # fmt: skip


def _breakdown(outcomes: Sequence[Outcome], key: Callable[[Outcome], str], rule: ToolRule) -> dict[str, Rate]:
    """Micro-average for each value of a key; groups of translations alone have none."""
    groups: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        if outcome.task in TURN_TASKS:
            groups.setdefault(key(outcome), []).append(outcome)
    return {name: micro_average(groups[name], rule) for name in sorted(groups)}


def _field(name: str) -> Callable[[Outcome], str]:
    return lambda outcome: str(_acoustics(outcome, name) or "not recorded")


def _acoustics(outcome: Outcome, name: str) -> Any:
    return (outcome.metadata.get("acoustics") or {}).get(name)


def _noise_as_published(outcome: Outcome) -> str:
    """Table 5's name of a noise type: its examples left out, its distance kept."""
    noise = re.sub(r":[^(]*", " ", str(_acoustics(outcome, "_noise_type") or "not recorded"))
    return " ".join(noise.split())


def _place(outcome: Outcome) -> str:
    """Figure 3's groups: where, and how loud."""
    place = str(_acoustics(outcome, "environment") or "").lower()
    level = str(_acoustics(outcome, "noise_level") or "").lower()
    if place not in ("indoors", "outdoors") or not level:
        return "not recorded"
    return f"{place}, {'quiet' if level.startswith('quiet') else 'noisy'}"


def weighted_average(scores: Sequence[float], counts: Sequence[int]) -> float:
    """Micro-average of printed scores by the tasks' counts."""
    if len(scores) != len(counts) or not sum(counts):
        raise ValueError(f"{len(scores)} scores and {len(counts)} counts, wanted as many of both")
    return math.fsum(score * count for score, count in zip(scores, counts, strict=True)) / sum(counts)
