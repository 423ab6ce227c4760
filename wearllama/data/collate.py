"""From items to a model's batch.

Prompt, padding and labels are the processor's alone: what training feeds the model is what inference will.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from wearllama.data.dataset import Item

if TYPE_CHECKING:
    from transformers.feature_extraction_utils import BatchFeature

    from wearllama.modeling.processing import WearLlamaProcessor


class Collator:
    """Rows with and without sound to one batch; with targets (the default) only target and end are supervised."""

    def __init__(self, processor: "WearLlamaProcessor", *, targets: bool = True) -> None:
        """
        Args:
            processor: of the model; it owns prompt, padding and labels.
            targets: False leaves the targets out and pads on the left, for generation.
        """
        self.processor = processor
        self.targets = targets

    def __call__(self, items: Sequence[Item]) -> dict[str, Tensor]:
        """One batch for ``model(**batch)``.

        ``input_ids``, ``attention_mask`` and ``labels`` (B, S); ``input_features`` (A, C, T, F) and ``feature_lengths``
        (A,) of the A rows with sound, absent where there are none.  ValueError names a row that the processor refuses:
        too long, wrong channels, placeholders that do not fit.
        """
        if not items:
            raise ValueError("a batch needs at least one item")
        try:
            batch = dict(self._batch(items))
        except ValueError as error:
            raise ValueError(f"{self._culprit(items)}{error}") from error
        augments = [item.augment for item in items if item.audio is not None]
        for row, augment in enumerate(augments):
            if augment is not None:
                batch["input_features"][row : row + 1] = augment(batch["input_features"][row : row + 1])
        return batch

    def _batch(self, items: Sequence[Item]) -> "BatchFeature":
        return self.processor(
            [item.example.messages for item in items],
            audio=[item.audio for item in items],
            targets=[item.example.target for item in items] if self.targets else None,
        )

    def _culprit(self, items: Sequence[Item]) -> str:
        """The first row that fails alone; found by trying, as an error is the end of the run anyway."""
        for item in items:
            try:
                self._batch([item])
            except ValueError:
                return f"example {item.example.id!r}: "
        return ""
