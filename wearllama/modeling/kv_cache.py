"""Keys and values of a decoder in buffers with room: what is new is written in its place, what is old is not copied.

transformers' own cache joins old and new in fresh memory at every call: for 30 s of sound before a decoder of 135 M
parameters 74 MB a call.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from transformers.cache_utils import DynamicLayer


class RoomyLayer(DynamicLayer):
    """Keys and values of one layer, copied from a plain one; the buffers double when they are full."""

    def __init__(self, layer: DynamicLayer, room: int) -> None:
        super().__init__()
        self._room, self._length = room, 0
        self._buffers: list[Tensor] = []
        if layer.is_initialized:
            assert layer.keys is not None and layer.values is not None, "they come together"
            self.update(layer.keys, layer.values)

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        if not self._buffers:
            self.lazy_initialization(key_states, value_states)
            self._buffers = [_empty(part, part.shape[-2] + self._room) for part in (key_states, value_states)]
        start, self._length = self._length, self._length + key_states.shape[-2]
        missing = self._length - self._buffers[0].shape[-2]
        if missing > 0:
            room = max(missing, self._buffers[0].shape[-2])
            self._buffers = [functional.pad(buffer, (0, 0, 0, room)) for buffer in self._buffers]
        for buffer, new in zip(self._buffers, (key_states, value_states), strict=True):
            buffer[..., start : self._length, :] = new
        return self._show()

    def crop(self, tokens_to_remove: int) -> None:
        """Forget the last positions, counted as a negative number."""
        assert -self._length <= tokens_to_remove <= 0, "only what was read is forgotten"
        if self._buffers:
            self._length += tokens_to_remove
            self._show()

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


def _empty(like: Tensor, length: int) -> Tensor:
    return torch.empty((*like.shape[:-2], length, like.shape[-1]), dtype=like.dtype, device=like.device)
