"""Exploration: draw groups, sample both sides, judge, keep what differs, and draw again in place of what does not."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from wearllama.data.dataset import ExampleDataset, Item
from wearllama.data.sampling import Draw
from wearllama.modeling.processing import WearLlamaProcessor
from wearllama.training.grpo_config import GrpoConfig
from wearllama.training.grpo_data import GroupDraw, GroupStream, side_of
from wearllama.training.grpo_loss import group_advantages
from wearllama.training.rewards import Judge
from wearllama.training.rollout import RolloutEngine
from wearllama.training.sampling import Rollouts, join_rollouts


@dataclass
class Batch:
    """Conditions of live groups with their completions; rows of ``rollouts`` are renumbered to ``items``."""

    items: list[Item]
    rollouts: Rollouts
    advantages_N: Tensor
    old_logps_NT: Tensor | None = None

    def split(self, most: int) -> list["Batch"]:
        """Parts of at most ``most`` completions, the completions of one condition together."""
        parts: list[Batch] = []
        chosen: list[int] = []
        count = 0
        sizes = torch.bincount(self.rollouts.prompt_N, minlength=len(self.items)).tolist()
        for condition, size in enumerate(sizes):
            if chosen and count + size > most:
                parts.append(self.select(torch.tensor(chosen)))
                chosen, count = [], 0
            chosen.append(condition)
            count += size
        return [*parts, self.select(torch.tensor(chosen))] if chosen else parts

    def select(self, conditions: Tensor) -> "Batch":
        """Some of the conditions, with all their completions."""
        rows = torch.isin(self.rollouts.prompt_N, conditions).nonzero()[:, 0]
        rollouts = self.rollouts.select(rows, conditions)
        old = None if self.old_logps_NT is None else self.old_logps_NT[rows, : rollouts.tokens_NT.shape[1]]
        return Batch([self.items[at] for at in conditions.tolist()], rollouts, self.advantages_N[rows], old)


@dataclass
class Tally:
    """Sums and counts by name; a metric is their quotient, over all ranks and steps since the last log."""

    sums: dict[str, list[float]] = field(default_factory=dict)

    def add(self, name: str, total: float, count: float = 1.0) -> None:
        entry = self.sums.setdefault(name, [0.0, 0.0])
        entry[0] += float(total)
        entry[1] += count

    def merge(self, others: Sequence["Tally"]) -> dict[str, float]:
        """Means over several ranks' tallies."""
        merged = Tally()
        for tally in others:
            for name, (total, count) in tally.sums.items():
                merged.add(name, total, count)
        return {name: round(total / count, 6) for name, (total, count) in sorted(merged.sums.items()) if count}


class Explorer:
    """Fills a step's batch with live groups."""

    def __init__(
        self,
        *,
        dataset: ExampleDataset,
        stream: GroupStream,
        engine: RolloutEngine,
        judge: Judge,
        processor: WearLlamaProcessor,
        config: GrpoConfig,
    ) -> None:
        self.dataset, self.stream, self.engine, self.judge = dataset, stream, engine, judge
        self.processor, self.config = processor, config
        self.tally = Tally()

    def explore(self, step: int) -> Batch | None:
        """The live groups of one step; None where no drawn group has a difference in reward."""
        wanted, most = self.config.groups_per_step, self.config.groups_per_step * self.config.max_draws
        found: list[Batch] = []
        live = drawn = 0
        while live < wanted and drawn < most:
            draws = self.stream.take(min(wanted - live, most - drawn))
            batch, count = self._try(draws, seed=sampling_seed(self.config.seed, step, drawn, self.stream.rank))
            found += [batch] if batch is not None else []
            live, drawn = live + count, drawn + len(draws)
            if not self.config.dynamic_sampling:
                break
        self.tally.add("groups/live", live, drawn)
        self.tally.add("groups/drawn", drawn)
        return join_batches(found, pad=self.processor.ids.pad) if found else None

    def _try(self, draws: Sequence[GroupDraw], seed: int) -> tuple[Batch | None, int]:
        """Sample and judge some groups; returns their live ones and how many those are."""
        sides = [(number, row, draw) for number, draw in enumerate(draws) for row in draw.group.rows]
        items = [self.dataset[Draw(row, draw.epoch, draw.repeat)] for _, row, draw in sides]
        rollouts = self.engine.sample(items, self.config.num_generations, seed)
        rewards_N = self._judge(items, rollouts)
        group_N = torch.tensor([number for number, _, _ in sides])[rollouts.prompt_N]
        advantages = group_advantages(rewards_N, group_N, self.config.scale_rewards)
        self._note(items, rollouts, rewards_N, advantages.values_N, advantages.live_N)
        conditions = rollouts.prompt_N[advantages.live_N].unique()
        if not len(conditions):
            return None, 0
        whole = Batch(items, rollouts, advantages.values_N)
        return whole.select(conditions), len(group_N[advantages.live_N].unique())

    def _judge(self, items: Sequence[Item], rollouts: Rollouts) -> Tensor:
        examples = [items[at].example for at in rollouts.prompt_N.tolist()]
        columns = {
            "target": [example.target for example in examples],
            "dialect": [example.dialect for example in examples],
            "task": [example.task for example in examples],
            "side": [side_of(example) for example in examples],
            "metadata": [example.metadata for example in examples],
        }
        ids = rollouts.ids
        texts = self.processor.batch_decode(ids)
        rewards_N, parts = self.judge([example.messages for example in examples], texts, ids, columns)
        for name, values in parts.items():
            told = [value for value in values if value is not None]
            self.tally.add(f"reward_functions/{name}", sum(told), len(told))
        return rewards_N

    def _note(
        self, items: Sequence[Item], rollouts: Rollouts, rewards_N: Tensor, advantages_N: Tensor, live_N: Tensor
    ) -> None:
        """Rewards of all completions and advantages of the live ones, by scenario and side."""
        lengths_N = rollouts.mask_NT.sum(1)
        names = [f"{item.example.task}/{side_of(item.example)}" for item in items]
        for condition, name in enumerate(names):
            of_N = rollouts.prompt_N == condition
            count = int(of_N.sum())
            self.tally.add(f"reward/{name}", float(rewards_N[of_N].sum()), count)
            self.tally.add(f"length/{name}", float(lengths_N[of_N].sum()), count)
            if bool((of_N & live_N).any()):
                self.tally.add(f"advantage/{name}", float(advantages_N[of_N].sum()), count)
        self.tally.add("reward", float(rewards_N.sum()), len(rewards_N))
        self.tally.add("completions/truncated", float((~rollouts.ended_N).sum()), len(rewards_N))


def join_batches(parts: Sequence[Batch], *, pad: int) -> Batch:
    """Batches one behind the other."""
    first = 0
    rollouts = []
    for part in parts:
        shifted = part.rollouts
        rollouts.append(Rollouts(shifted.tokens_NT, shifted.mask_NT, shifted.logps_NT, shifted.prompt_N + first,
                                 shifted.ended_N))  # fmt: skip
        first += len(part.items)
    return Batch(
        [item for part in parts for item in part.items],
        join_rollouts(rollouts, pad=pad),
        torch.cat([part.advantages_N for part in parts]),
    )


def sampling_seed(seed: int, step: int, drawn: int, rank: int) -> int:
    """Seed of one call of the engine: of the run, the step and the rank alone, so that a resumed run repeats it."""
    key = json.dumps(["rollout", seed, step, drawn, rank])
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big") >> 1
