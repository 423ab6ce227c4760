"""Clips of a batch in one row without their padding: everything per frame costs what the speech costs.

Clips lie one behind another, each starting on a multiple of the encoder's stride, with a gap of zeroed frames between
them as wide as the widest convolution looks.  Convolutions then run over the row as they are; attention stays within
each clip: one fused call a clip, or one for all where the hardware has a kernel for it (flash on CUDA in half
precision; not measured on a GPU).

Shape suffixes: B batch, T mel frames, F mel bins, L encoder frames, N frames of the row, D width, H heads, K head
width.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence


@dataclass(frozen=True)
class Spans:
    """Where the clips of a packed row lie."""

    mel_lengths: list[int]
    stride: int
    """Mel frames of an encoder frame."""
    gap: int
    """Encoder frames between clips."""
    device: torch.device

    @property
    def lengths(self) -> list[int]:
        """Encoder frames of each clip."""
        return [-(-length // self.stride) for length in self.mel_lengths]

    @property
    def sizes(self) -> list[int]:
        """Clip, gap, clip, gap, ... in encoder frames: all of the row."""
        return [size for length in self.lengths for size in (length, self.gap)]

    def mask(self, stride: int) -> Tensor:
        """Boolean (1, N * self.stride / stride): frames of the clips after the first ``stride`` of the stride."""
        scale = self.stride // stride
        mask_1N = torch.zeros(1, sum(self.sizes) * scale, dtype=torch.bool, device=self.device)
        start = 0
        for mel_length, length in zip(self.mel_lengths, self.lengths, strict=True):
            mask_1N[:, start : start - (-mel_length // stride)] = True
            start += (length + self.gap) * scale
        return mask_1N

    def positions(self) -> Tensor:
        """Place of each frame in its own clip (N,)."""
        return torch.cat([torch.arange(length + self.gap, device=self.device) for length in self.lengths])


def pack(feats_BTF: Tensor, mel_lengths_B: Tensor, *, stride: int, gap: int) -> tuple[Tensor, Spans]:
    """The valid frames of all clips in one row (1, N * stride, F)."""
    spans = Spans(mel_lengths_B.tolist(), stride, gap, feats_BTF.device)
    pieces = []
    for feats_TF, mel_length, length in zip(feats_BTF, spans.mel_lengths, spans.lengths, strict=True):
        pieces.append(F.pad(feats_TF[:mel_length], (0, 0, 0, (length + gap) * stride - mel_length)))
    return torch.cat(pieces)[None], spans


def unpack(x_1ND: Tensor, spans: Spans, size: int) -> Tensor:
    """The clips of a packed row as (B, size, D), zeros behind each."""
    clips = x_1ND[0].split(spans.sizes)[::2]
    padded_BLD = pad_sequence(list(clips), batch_first=True)
    return F.pad(padded_BLD, (0, 0, 0, size - padded_BLD.shape[1]))


def packed_attention(q_1HNK: Tensor, k_1HNK: Tensor, v_1HNK: Tensor, spans: Spans) -> Tensor:
    """Attention within each clip of a packed row; what stands in the gaps has no meaning."""
    if q_1HNK.is_cuda and q_1HNK.dtype in (torch.bfloat16, torch.float16):
        return _flash_attention(q_1HNK, k_1HNK, v_1HNK, spans)
    parts = [x.split(spans.sizes, dim=2) for x in (q_1HNK, k_1HNK, v_1HNK)]
    mixed = [
        v_part if number % 2 else F.scaled_dot_product_attention(q_part, k_part, v_part)
        for number, (q_part, k_part, v_part) in enumerate(zip(*parts, strict=True))
    ]
    return torch.cat(mixed, dim=2)


def _flash_attention(q_1HNK: Tensor, k_1HNK: Tensor, v_1HNK: Tensor, spans: Spans) -> Tensor:
    """One kernel for all clips; a gap is a short clip of its own."""
    from torch.nn.attention.varlen import varlen_attn  # of newer torch; the CPU never needs it

    ends = torch.tensor(spans.sizes, device=q_1HNK.device).cumsum(0)
    starts = F.pad(ends, (1, 0)).to(torch.int32)
    longest = max(spans.sizes)
    q_NHK, k_NHK, v_NHK = (x[0].transpose(0, 1).contiguous() for x in (q_1HNK, k_1HNK, v_1HNK))
    mixed = varlen_attn(q_NHK, k_NHK, v_NHK, starts, starts, longest, longest)
    assert isinstance(mixed, Tensor), "without auxiliary outputs it returns the mixture alone"
    return mixed.transpose(0, 1)[None]
