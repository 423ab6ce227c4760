"""Reward functions by name, with TRL's signature: ``f(prompts, completions, completion_ids, **columns) -> list``.

``prompts`` are chat messages, ``completions`` what the model said (text, or TRL's ``[{"role", "content"}]``), and
every column is a list of the same length: ``target``, ``dialect``, ``task``, ``side`` come with every row.  A reward
may be None: that function has nothing to say about that row.

The paper (arXiv 2609.32536, Stage II) orders its rewards in words; the numbers are missing from the text we have, so
those of :class:`ActionReward` are OURS.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from wearllama.data.actions import TOOL_CLOSE, TOOL_OPEN, Action, parse_action
from wearllama.evaluation.scoring import content_f1, gold_calls, score_tool

RewardFunction = Callable[..., Sequence[float | None]]
Completion = str | Sequence[Mapping[str, str]]


@dataclass(kw_only=True)
class ActionReward:
    """The gate: mute, the right tool, or an answer (all numbers ours)."""

    correct: float = 1.0
    """[Mute] where that is wanted, or a call of the wanted tool(s)."""
    wrong: float = 0.0
    malformed: float = -0.5
    """Added to ``wrong`` for an output that tries to be a call and is none."""
    answer: float = 1.0
    """An answer is wanted: words of any kind."""
    answer_mute: float = 0.0
    """An answer is wanted: [Mute]."""
    answer_empty: float = -0.5
    """An answer is wanted: nothing, or a call."""

    def __post_init__(self) -> None:
        if self.correct <= self.wrong or self.malformed > 0:
            raise ValueError(f"rewards.action: {self}: correct must exceed wrong, malformed must not be above 0")

    def __call__(
        self, prompts: Sequence[Any], completions: Sequence[Completion], completion_ids: Any = None, **columns: Any
    ) -> list[float]:
        return [self._one(done, wanted) for done, wanted in _actions(completions, columns)]

    def _one(self, done: Action, wanted: Action) -> float:
        if wanted.kind == "answer":
            kinds = {"answer": self.answer, "mute": self.answer_mute, "tool": self.answer_empty}
            return kinds.get(done.kind, self.answer_empty)
        if done.kind == "malformed":
            return self.wrong + (self.malformed if _tries_a_call(done.text) else 0.0)
        names = [sorted(call.name for call in action.calls) for action in (done, wanted)]
        return self.correct if done.kind == wanted.kind and names[0] == names[1] else self.wrong


def arguments_reward(
    prompts: Sequence[Any], completions: Sequence[Completion], completion_ids: Any = None, **columns: Any
) -> list[float | None]:
    """Structured tool use: 1 where the calls match with all arguments (the scorer's loose rule), else 0; None where no
    tool is wanted."""
    rewards: list[float | None] = []
    for done, wanted in _actions(completions, columns):
        if wanted.kind != "tool":
            rewards.append(None)
            continue
        gold = gold_calls([{"name": call.name, "parameters": dict(call.arguments)} for call in wanted.calls])
        rewards.append(float(score_tool(done, gold)[0]["loose"]))
    return rewards


def answer_reward(
    prompts: Sequence[Any], completions: Sequence[Completion], completion_ids: Any = None, **columns: Any
) -> list[float | None]:
    """Answers and translations: F1 of the content words with the wanted answer; None where no answer is wanted."""
    return [
        (content_f1(done.text, wanted.text) if done.kind == "answer" else 0.0) if wanted.kind == "answer" else None
        for done, wanted in _actions(completions, columns)
    ]


def brevity_penalty(
    prompts: Sequence[Any], completions: Sequence[Completion], completion_ids: Sequence[Sequence[int]], **columns: Any
) -> list[float]:
    """Minus a hundredth for every token: against calls that grow."""
    return [-0.01 * len(ids) for ids in completion_ids]


REWARDS: dict[str, RewardFunction] = {
    "arguments": arguments_reward,
    "answer": answer_reward,
    "brevity": brevity_penalty,
}
"""Reward functions without settings; ``action`` comes with its own."""


@dataclass(kw_only=True)
class RewardConfig:
    """Settings of the reward functions that have any."""

    action: ActionReward = field(default_factory=ActionReward)


class Judge:
    """The weighted sum of named rewards."""

    def __init__(self, weights: Mapping[str, float], config: RewardConfig) -> None:
        known: dict[str, RewardFunction] = {"action": config.action, **REWARDS}
        unknown = sorted(set(weights) - set(known))
        if unknown:
            raise ValueError(f"grpo.reward_weights names {unknown}, wanted some of {sorted(known)}")
        self.functions: dict[str, RewardFunction] = {name: known[name] for name in weights}
        self.weights = dict(weights)

    def __call__(
        self,
        prompts: Sequence[Any],
        completions: Sequence[str],
        completion_ids: Sequence[Sequence[int]],
        columns: Mapping[str, Sequence[Any]],
    ) -> tuple[Tensor, dict[str, list[float | None]]]:
        """Weighted rewards (N,) and each function's own; ValueError where a function gives another number of them."""
        parts: dict[str, list[float | None]] = {}
        total_N = torch.zeros(len(completions), dtype=torch.float64)
        for name, function in self.functions.items():
            values = list(function(prompts, completions, completion_ids, **columns))
            if len(values) != len(completions):
                raise ValueError(f"reward {name!r} gave {len(values)} values for {len(completions)} completions")
            parts[name] = values
            total_N += self.weights[name] * torch.tensor([value or 0.0 for value in values], dtype=torch.float64)
        return total_N, parts


def _actions(completions: Sequence[Completion], columns: Mapping[str, Sequence[Any]]) -> list[tuple[Action, Action]]:
    """What was done and what was wanted, row by row."""
    return [
        (parse_action(_text(completion), dialect), parse_action(target, dialect))
        for completion, target, dialect in zip(completions, columns["target"], columns["dialect"], strict=True)
    ]


def _text(completion: Completion) -> str:
    return completion if isinstance(completion, str) else "".join(turn["content"] for turn in completion)


def _tries_a_call(text: str) -> bool:
    """Broken syntax of a call, rather than nothing or [Mute] with words."""
    return any(mark in text for mark in (TOOL_OPEN, TOOL_CLOSE, "{", '"name"'))
