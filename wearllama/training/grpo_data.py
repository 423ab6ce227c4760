"""Groups by explicit id, and the order in which a rank explores them.

Rows of a manifest (contract 7) that carry the same ``metadata.group`` are the sides of one counterfactual pair, told
apart by ``metadata.side``; ``metadata.seed_id`` gives both the same room and device.  Any other row is a group alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from wearllama.data.manifest import Example


@dataclass(frozen=True)
class Group:
    """Rows whose completions are compared with each other."""

    id: str
    task: str
    rows: tuple[int, ...]
    """Indices into the dataset, one a side."""


class GroupDraw(NamedTuple):
    """One exploration of a group."""

    group: Group
    epoch: int
    repeat: int
    """How often this epoch drew the group before."""


def side_of(example: Example) -> str:
    """Side of a pair for logs: ``same_speaker``, ``switch``, ...; ``alone`` for other rows."""
    return str(example.metadata.get("side", "alone"))


def make_groups(examples: Sequence[Example], pairing: Literal["pair", "none"]) -> list[Group]:
    """Groups in the order of their first row; with ``none`` every row is one.

    Raises ValueError for a pair of one row or of two equal sides, or whose targets do not differ.
    """
    found: dict[str, list[int]] = {}
    for index, example in enumerate(examples):
        key = str(example.metadata["group"]) if pairing == "pair" and "group" in example.metadata else example.id
        found.setdefault(key, []).append(index)
    groups = []
    for key, rows in found.items():
        members = [examples[row] for row in rows]
        if "group" in members[0].metadata and pairing == "pair":
            sides = sorted(side_of(member) for member in members)
            if len(members) < 2 or len(set(sides)) != len(sides):
                raise ValueError(f"group {key!r} has the sides {sides}, wanted at least two that differ")
            if len({member.target for member in members}) == 1:
                raise ValueError(f"group {key!r}: all sides want {members[0].target!r}, so that nothing is contrasted")
        elif len(members) > 1:
            raise ValueError(f"id {key!r} is that of {len(members)} rows and of no group")
        groups.append(Group(key, members[0].task, tuple(rows)))
    return groups


class GroupStream:
    """Groups for one rank, epoch after epoch without end; its place is one number, which a checkpoint keeps.

    Rank r of W takes places r, W + r, ... of one global order, so that no two ranks ever explore the same draw, however
    unequally they resample.
    """

    def __init__(
        self,
        groups: Sequence[Group],
        weights: Mapping[str, float] | None = None,
        *,
        seed: int,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        weights = weights or {}
        tasks = sorted({group.task for group in groups})
        unknown = sorted(set(weights) - set(tasks))
        if unknown:
            raise ValueError(f"grpo.weights names tasks {unknown}, the data has {tasks}")
        self.groups, self.weights, self.seed = list(groups), dict(weights), seed
        self.rank, self.world_size = rank, world_size
        self.position = 0
        self._order: tuple[int, list[tuple[int, int]]] | None = None
        if not self._of_epoch(0):
            raise ValueError("no group to explore: every task has weight 0, or there are no rows")

    def take(self, count: int) -> list[GroupDraw]:
        """The next ``count`` groups."""
        draws = []
        for _ in range(count):
            place = self.position * self.world_size + self.rank
            size = len(self._of_epoch(0)) if self._order is None else len(self._order[1])
            epoch = place // size
            index, repeat = self._of_epoch(epoch)[place % size]
            draws.append(GroupDraw(self.groups[index], epoch, repeat))
            self.position += 1
        return draws

    def _of_epoch(self, epoch: int) -> list[tuple[int, int]]:
        """(group, repeat) in the order of an epoch; every epoch has the same number."""
        if self._order is None or self._order[0] != epoch:
            rng = np.random.default_rng([self.seed, epoch])
            chosen: list[tuple[int, int]] = []
            for task in sorted({group.task for group in self.groups}):
                members = [index for index, group in enumerate(self.groups) if group.task == task]
                weight = self.weights.get(task, 1.0)
                count = max(1, round(weight * len(members))) if weight else 0
                mixed = [members[at] for at in rng.permutation(len(members))]
                chosen += [(mixed[at % len(mixed)], at // len(mixed)) for at in range(count)]
            self._order = epoch, [chosen[at] for at in rng.permutation(len(chosen))]
        return self._order[1]
