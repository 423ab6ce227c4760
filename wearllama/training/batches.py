"""What training needs beside the model's inputs: which task each target belongs to, and the teacher's batch."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from wearllama.data.dataset import Item
from wearllama.training.distill import TAUGHT, TEACHER, teacher_batch

TASKS = "tasks"
"""Key of a batch: number of the task of each supervised position, (N,)."""
IDS = "ids"
"""Key of a batch: ids of its rows."""
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
    ) -> None:
        """
        Args:
            collate: rows to model inputs with ``labels``.
            tasks: names by number.
            processor: makes the teacher's batches; None where nothing is distilled.
            ids: tell the rows' ids.
        """
        self.collate, self.processor, self.ids = collate, processor, ids
        self.numbers = {task: number for number, task in enumerate(tasks)}

    def __call__(self, items: list[Item]) -> dict[str, Any]:
        batch: dict[str, Any] = dict(self.collate(items))
        counts_B = (batch["labels"][:, 1:] != IGNORE).sum(1)
        tasks_B = torch.tensor([self.numbers[item.example.task] for item in items])
        batch[TASKS] = tasks_B.repeat_interleave(counts_B)
        if self.processor is not None:
            batch[TEACHER], has_teacher_B = teacher_batch(items, self.processor)
            batch[TAUGHT] = has_teacher_B.repeat_interleave(counts_B)
        if self.ids:
            batch[IDS] = [item.example.id for item in items]
        return batch


def take_extras(inputs: dict[str, Any]) -> dict[str, Any]:
    """Remove from a batch, and return, what the model does not take."""
    return {name: inputs.pop(name) for name in (TASKS, TEACHER, TAUGHT, IDS) if name in inputs}
