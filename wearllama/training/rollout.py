"""Completions of the policy: K for each condition, whose sound is encoded and whose prompt is read once.

Shape suffixes: as in ``policy.py``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional
from transformers.cache_utils import DynamicLayer

from wearllama.data.dataset import Item
from wearllama.modeling.modeling_wearllama import WearLlamaForConditionalGeneration
from wearllama.modeling.processing import WearLlamaProcessor
from wearllama.training.policy import Prompts, extend, read_prompts

COMPACT_AT = 0.8
"""Finished rows leave the batch once at most this share of it is still running."""


@dataclass
class Rollouts:
    """N completions of P conditions."""

    tokens_NT: Tensor
    """Padded on the right; the end token is part of a completion."""
    mask_NT: Tensor
    logps_NT: Tensor
    """Of the engine that sampled, at its temperature; NaN where it did not tell."""
    prompt_N: Tensor
    """Condition of each completion."""
    ended_N: Tensor
    """False where ``max_completion_length`` cut it."""

    @property
    def ids(self) -> list[list[int]]:
        """Tokens of each completion, without padding."""
        return [row[kept].tolist() for row, kept in zip(self.tokens_NT, self.mask_NT, strict=True)]

    def select(self, rows: Tensor, conditions: Tensor) -> "Rollouts":
        """These completions, their conditions renumbered as places in ``conditions``."""
        places = torch.full((int(conditions.max()) + 1,), -1)
        places[conditions] = torch.arange(len(conditions))
        longest = max(1, int(self.mask_NT[rows].sum(1).max()))
        tokens_NT, mask_NT, logps_NT = (part[rows, :longest] for part in (self.tokens_NT, self.mask_NT, self.logps_NT))
        return Rollouts(tokens_NT, mask_NT, logps_NT, places[self.prompt_N[rows]], self.ended_N[rows])


class RoomyLayer(DynamicLayer):
    """Keys and values of one layer in buffers with room: a step writes its own column and copies nothing else."""

    def __init__(self, layer: DynamicLayer, room: int) -> None:
        super().__init__()
        keys, values = layer.keys, layer.values
        assert keys is not None and values is not None, "a prompt has passed the layer"
        self.lazy_initialization(keys, values)
        self._buffers = [functional.pad(part, (0, 0, 0, room)) for part in (keys, values)]
        self._length = keys.shape[-2]
        self._show()

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        start, self._length = self._length, self._length + key_states.shape[-2]
        for buffer, new in zip(self._buffers, (key_states, value_states), strict=True):
            buffer[..., start : self._length, :] = new
        return self._show()

    def batch_select_indices(self, indices: Tensor) -> None:
        self._buffers = [buffer[indices] for buffer in self._buffers]
        self._show()

    def _show(self) -> tuple[Tensor, Tensor]:
        keys, values = (buffer[..., : self._length, :] for buffer in self._buffers)
        self.keys, self.values = keys, values
        return keys, values


def make_room(cache: Any, room: int) -> None:
    """Give the cache's plain layers room for so many positions; layers of other kinds (sliding windows) stay."""
    cache.layers = [RoomyLayer(layer, room) if type(layer) is DynamicLayer else layer for layer in cache.layers]


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
    batch = processor([item.example.messages for item in items], audio=[item.audio for item in items])
    if "input_features" in batch:
        row = 0
        for item in items:
            if item.audio is not None:
                if item.augment is not None:
                    batch["input_features"][row : row + 1] = item.augment(batch["input_features"][row : row + 1])
                row += 1
    return {name: value.to(device) for name, value in batch.items()}


@torch.no_grad()
def sample_completions(
    model: WearLlamaForConditionalGeneration,
    prompts: Prompts,
    count: int,
    *,
    temperature: float,
    max_completion_length: int,
    eos: int,
    pad: int,
    generator: torch.Generator | None = None,
) -> Rollouts:
    """``count`` completions of each of P conditions, sampled from the whole distribution at ``temperature``.

    Completions that have ended leave the batch: a mute costs two steps, whatever its neighbours say.
    """
    device = prompts["input_ids"].device
    prompt_N = torch.arange(len(prompts["input_ids"]), device=device).repeat_interleave(count)
    prefix = read_prompts(model, prompts).expand(prompt_N)
    make_room(prefix.cache, max_completion_length)
    total = len(prompt_N)
    tokens_NT = torch.full((total, max_completion_length), pad, device=device)
    mask_NT = torch.zeros_like(tokens_NT, dtype=torch.bool)
    logps_NT = torch.zeros(tokens_NT.shape, device=device)
    ended_N = torch.zeros(total, dtype=torch.bool, device=device)
    rows = torch.arange(total, device=device)  # completions that are still in the batch
    hidden_RE, mask_RX = prefix.last_PE, prefix.mask_PS
    for step in range(max_completion_length):
        logps_RV = (model.logits(hidden_RE).float() / temperature).log_softmax(-1)
        token_R = torch.multinomial(logps_RV.exp(), 1, generator=generator)[:, 0]
        live_R = ~ended_N[rows]
        at = rows[live_R]
        tokens_NT[at, step] = token_R[live_R]
        logps_NT[at, step] = logps_RV.gather(1, token_R[:, None])[live_R, 0]
        mask_NT[at, step] = True
        ended_N[at] = token_R[live_R] == eos
        running_R = ~ended_N[rows]
        left = int(running_R.sum())
        if left == 0 or step + 1 == max_completion_length:
            break
        if left <= COMPACT_AT * len(rows):
            kept = running_R.nonzero()[:, 0]
            prefix, rows, token_R, mask_RX = prefix.expand(kept), rows[kept], token_R[kept], mask_RX[kept]
        mask_RX = torch.cat((mask_RX, mask_RX.new_ones(len(rows), 1)), dim=1)
        hidden_RE = extend(model, prefix, token_R[:, None], mask_RX, prefix.length_P + step)[:, 0]
    longest = int(mask_NT.sum(1).max())
    return Rollouts(
        tokens_NT[:, :longest].cpu(), mask_NT[:, :longest].cpu(), logps_NT[:, :longest].cpu(), prompt_N.cpu(),
        ended_N.cpu(),
    )  # fmt: skip


def join_rollouts(parts: Sequence[Rollouts], *, pad: int) -> Rollouts:
    """Rollouts of different lengths as one; conditions are already numbered through."""
    longest = max(part.tokens_NT.shape[1] for part in parts)

    def joined(name: str, value: float) -> Tensor:
        padded = [
            functional.pad(getattr(part, name), (0, longest - part.tokens_NT.shape[1]), value=value) for part in parts
        ]
        return torch.cat(padded)

    return Rollouts(
        joined("tokens_NT", pad), joined("mask_NT", False), joined("logps_NT", 0.0),
        torch.cat([part.prompt_N for part in parts]), torch.cat([part.ended_N for part in parts]),
    )  # fmt: skip
