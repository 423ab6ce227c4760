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
        for row, item in enumerate(item for item in items if item.audio is not None):
            if item.augment is not None:
                # Without its padding, so that what is seen of a clip does not depend on its batch.
                clip_1CTF = batch["input_features"][row : row + 1, :, : int(batch["feature_lengths"][row])]
                clip_1CTF.copy_(item.augment(clip_1CTF))
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
