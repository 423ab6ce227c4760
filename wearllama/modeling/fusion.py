"""How the encoded channels of a frame become decoder positions: the ablations of multichannel input.

``interleave`` gives every channel a position of its own (WearVox paper, MC WearLlama: c_0, c_x, 25 a second);
``concat`` joins both embeddings of a frame before the projector, ``sum`` adds both projections before the norm: half
the positions.  Single channels are the model's ``channels`` (``sc_beam``, ``sc_c0``).

Shape suffixes: B batch, C encoded channels, S streams (channels that keep positions of their own), L frames, D width,
E decoder width.
"""

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

FusionKind = Literal["interleave", "concat", "sum"]


@dataclass(kw_only=True)
class FusionConfig:
    """One way to put channels together."""

    kind: FusionKind = "interleave"
    swap: bool = False
    """c_x before c_0; of no effect on a sum."""
    channel_embedding: bool = True
    """A learnt marker that tells the decoder which channel a position comes from (interleaved positions only)."""

    def __post_init__(self) -> None:
        if self.kind not in get_args(FusionKind):
            raise ValueError(f"fusion.kind is {self.kind!r}, wanted one of {', '.join(get_args(FusionKind))}")
        if self.swap and self.kind == "sum":
            raise ValueError("fusion.swap has no effect on fusion.kind=sum; leave it out")

    def check(self, channels: int) -> None:
        """ValueError where a single channel is asked to be joined with another."""
        if channels == 1 and (self.kind != "interleave" or self.swap):
            raise ValueError(f"fusion.kind={self.kind}, swap={self.swap} needs channels=mc: one channel is encoded")

    def streams(self, channels: int) -> int:
        """Decoder positions of a frame."""
        return channels if self.kind == "interleave" else 1

    @property
    def marks_channels(self) -> bool:
        """Whether positions carry a channel's marker."""
        return self.channel_embedding and self.kind == "interleave"

    def join(self, x_BCLD: Tensor) -> Tensor:
        """What the projector sees: (B, C, L, D), or (B, 1, L, C * D) where frames are concatenated."""
        if self.swap and self.kind == "concat":
            x_BCLD = x_BCLD.flip(1)
        return x_BCLD.transpose(1, 2).flatten(2)[:, None] if self.kind == "concat" else x_BCLD

    def add(self, y_BCLE: Tensor) -> Tensor:
        """Projections before their norm, summed over channels where that is asked: (B, S, L, E)."""
        return y_BCLE.sum(1, keepdim=True) if self.kind == "sum" else y_BCLE

    def mean(self, p_BCLV: Tensor) -> Tensor:
        """Distributions of each stream (B, S, L, V): those of the channels, or their mean where channels are joined."""
        return p_BCLV if self.kind == "interleave" else p_BCLV.mean(1, keepdim=True)

    def order(self, y_BSLE: Tensor) -> Tensor:
        """Streams in the order in which the decoder reads them."""
        return torch.flip(y_BSLE, (1,)) if self.swap and self.kind == "interleave" else y_BSLE
