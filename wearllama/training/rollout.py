"""Engines that sample completions of the policy: this process, or (``rollout_openai.py``) a server.

Shape suffixes: as in ``policy.py``.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import torch

from wearllama.data.collate import Collator
from wearllama.data.dataset import Item
from wearllama.modeling.modeling_wearllama import WearLlamaForConditionalGeneration
from wearllama.modeling.processing import WearLlamaProcessor
from wearllama.training.policy import Prompts
from wearllama.training.sampling import Rollouts, join_rollouts, sample_completions


class RolloutEngine(Protocol):
    """What the trainer needs of whatever samples."""

    def sample(self, items: Sequence[Item], count: int, seed: int) -> Rollouts:
        """``count`` completions of each item, in order: rows ``i * count`` to ``(i + 1) * count`` answer item ``i``."""

    def sync(self, step: int) -> None:
        """The policy has changed: sample from the new one."""


class LocalEngine:
    """Samples from the model in this process."""

    def __init__(
        self,
        model: WearLlamaForConditionalGeneration,
        processor: WearLlamaProcessor,
        *,
        temperature: float,
        max_completion_length: int,
        max_rows: int,
        autocast: torch.dtype | None = None,
    ) -> None:
        """
        Args:
            max_rows: completions that are sampled together.
            autocast: type in which training runs the model, so that both see the same numbers.
        """
        self.model, self.processor = model, processor
        self.temperature, self.max_completion_length = temperature, max_completion_length
        self.max_rows, self.autocast = max_rows, autocast

    def sample(self, items: Sequence[Item], count: int, seed: int) -> Rollouts:
        generator = torch.Generator(device=self.model.device).manual_seed(seed)
        size = max(1, self.max_rows // count)
        parts = [
            self._sample(items[start : start + size], count, start, generator) for start in range(0, len(items), size)
        ]
        return join_rollouts(parts, pad=self.processor.ids.pad)

    def sync(self, step: int) -> None:
        """Nothing: the model in memory is the policy."""

    def _sample(self, items: Sequence[Item], count: int, first: int, generator: torch.Generator) -> Rollouts:
        prompts = encode_items(self.processor, items, self.model.device)
        was_training = self.model.training
        self.model.eval()
        device = self.model.device.type
        with torch.no_grad(), torch.autocast(device, dtype=self.autocast, enabled=self.autocast is not None):
            rollouts = sample_completions(
                self.model,
                prompts,
                count,
                temperature=self.temperature,
                max_completion_length=self.max_completion_length,
                eos=self.processor.ids.eos,
                pad=self.processor.ids.pad,
                generator=generator,
            )
        self.model.train(was_training)
        rollouts.prompt_N += first
        return rollouts


def encode_items(processor: WearLlamaProcessor, items: Sequence[Item], device: Any) -> Prompts:
    """Items as the model's inputs, padded on the left: one row and one clip a condition."""
    return {name: value.to(device) for name, value in Collator(processor, targets=False)(items).items()}
