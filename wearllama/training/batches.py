"""What training needs beside the model's inputs: which task each target belongs to, and the teacher's batch."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from wearllama.data.dataset import Item
from wearllama.data.packing import pack
from wearllama.training.distill import TAUGHT, TEACHER, as_text, teacher_batch

TASKS = "tasks"
"""Key of a batch: number of the task of each supervised position, (N,)."""
IDS = "ids"
"""Key of a batch: ids of its rows."""
FAULTS = "faults"
"""Key of a batch: id and reason of rows that could not be read and are not in it."""
ROWS = "rows"
"""Key of a batch: how many rows it has."""
IGNORE = -100


class TrainingCollator:
    """Adds ``tasks`` and, for distillation, ``teacher`` and ``taught`` to what a collator makes."""

    def __init__(
        self,
        collate: Callable[[list[Item]], dict[str, Tensor]],
        tasks: Sequence[str],
        *,
        processor: Any | None = None,
        ids: bool = False,
        packed: bool = False,
    ) -> None:
        """
        Args:
            collate: rows to model inputs with ``labels``.
            tasks: names by number.
            processor: makes the teacher's batches; None where nothing is distilled.
            ids: tell the rows' ids.
            packed: put the rows behind each other in one.
        """
        self.collate, self.processor, self.ids, self.packed = collate, processor, ids, packed
        self.numbers = {task: number for number, task in enumerate(tasks)}

    def __call__(self, items: list[Item]) -> dict[str, Any]:
        faults = [(item.example.id, item.fault) for item in items if item.fault]
        if len(faults) == len(items):
            batch = self._make([_without_sound(items[0])])
            batch["labels"].fill_(IGNORE)  # a batch of nothing: every rank has its step
            batch = {name: value[:0] if name in (TASKS, TAUGHT, IDS) else value for name, value in batch.items()}
        else:
            batch = self._make([item for item in items if not item.fault])
        return batch | ({FAULTS: faults} if faults else {})

    def _make(self, items: list[Item]) -> dict[str, Any]:
        batch: dict[str, Any] = dict(self.collate(items))
        batch[ROWS] = len(items)
        counts_B = (batch["labels"][:, 1:] != IGNORE).sum(1)
        tasks_B = torch.tensor([self.numbers[item.example.task] for item in items])
        batch[TASKS] = tasks_B.repeat_interleave(counts_B)
        if self.processor is not None:
            batch[TEACHER], has_teacher_B = teacher_batch(items, self.processor)
            batch[TAUGHT] = has_teacher_B.repeat_interleave(counts_B)
        if self.ids:
            batch[IDS] = [item.example.id for item in items]
        return pack(batch) if self.packed else batch


def _without_sound(item: Item) -> Item:
    """A row that is read instead of heard."""
    messages, _ = as_text(item)
    return Item(replace(item.example, messages=messages, audio=None), None)


def take_extras(inputs: dict[str, Any]) -> dict[str, Any]:
    """Remove from a batch, and return, what the model does not take."""
    return {name: inputs.pop(name) for name in (TASKS, TEACHER, TAUGHT, IDS, FAULTS, ROWS) if name in inputs}
