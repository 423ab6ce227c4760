"""Clips of a batch in one row without their padding: everything per frame costs what the speech costs.

Clips lie one behind another.  In front of the blocks each starts on a multiple of the encoder's stride, with a gap of
zeroed frames between them as wide as the subsampling looks; the blocks have no gaps but inside their convolution, which
runs over the row as it is.  Attention stays within each clip: one fused call a clip, or one for all where the hardware
has a kernel for it (flash on CUDA in half precision; not measured on a GPU).

Shape suffixes: B batch, T mel frames, F mel bins, L encoder frames of a padded clip, N frames of the row with gaps,
M without, D width, H heads, K head width.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class Spans:
    """Where the clips of a packed row lie."""

    mel_lengths: list[int]
    stride: int
    """Mel frames of an encoder frame."""
    gap: int
    """Encoder frames between clips in front of the blocks."""
    device: torch.device

    @property
    def lengths(self) -> list[int]:
        """Encoder frames of each clip."""
        return [-(-length // self.stride) for length in self.mel_lengths]

    def mask(self, stride: int) -> Tensor:
        """Boolean (1, N * self.stride / stride): frames of the clips after the first ``stride`` of the stride."""
        scale = self.stride // stride
        mask_1N = torch.zeros(1, (sum(self.lengths) + self.gap * len(self.lengths)) * scale, dtype=torch.bool)
        start = 0
        for mel_length, length in zip(self.mel_lengths, self.lengths, strict=True):
            mask_1N[:, start : start - (-mel_length // stride)] = True
            start += (length + self.gap) * scale
        return mask_1N.to(self.device)

    def positions(self) -> Tensor:
        """Place of each frame in its own clip (M,)."""
        return torch.cat([torch.arange(length, device=self.device) for length in self.lengths])


def pack(feats_BTF: Tensor, mel_lengths_B: Tensor, *, stride: int, gap: int) -> tuple[Tensor, Spans]:
    """The valid frames of all clips in one row (1, N * stride, F)."""
    spans = Spans(mel_lengths_B.tolist(), stride, gap, feats_BTF.device)
    zeros_TF = feats_BTF.new_zeros((gap + 1) * stride, feats_BTF.shape[2])
    pieces = []
    for feats_TF, mel_length, length in zip(feats_BTF, spans.mel_lengths, spans.lengths, strict=True):
        pieces += [feats_TF[:mel_length], zeros_TF[: (length + gap) * stride - mel_length]]
    return torch.cat(pieces)[None], spans


def unpack(x_1MD: Tensor, spans: Spans, size: int) -> Tensor:
    """The clips of a row without gaps as (B, size, D), zeros behind each."""
    zeros_LD = x_1MD.new_zeros(size, x_1MD.shape[2])
    pieces = [piece for clip_LD in _clips(x_1MD, spans) for piece in (clip_LD, zeros_LD[len(clip_LD) :])]
    return torch.cat(pieces).view(len(spans.mel_lengths), size, -1)


def spread(x_1MD: Tensor, spans: Spans, gap: int) -> Tensor:
    """The row with a gap of zeros behind each clip (1, N, D)."""
    zeros_GD = x_1MD.new_zeros(gap, x_1MD.shape[2])
    return torch.cat([piece for clip_LD in _clips(x_1MD, spans) for piece in (clip_LD, zeros_GD)])[None]


def close(x_1ND: Tensor, spans: Spans, gap: int) -> Tensor:
    """The row without its gaps (1, M, D), whatever stands in them."""
    if gap == 0:
        return x_1ND
    sizes = [size for length in spans.lengths for size in (length, gap)]
    return torch.cat(x_1ND.squeeze(0).split(sizes)[::2])[None]


def _clips(x_1M: Tensor, spans: Spans) -> tuple[Tensor, ...]:
    return x_1M.squeeze(0).split(spans.lengths)  # indexed instead, it would cost a row of zeros in the backward pass


def packed_attention(qkv_1M3HK: Tensor, spans: Spans) -> Tensor:
    """Attention within each clip of a packed row (1, M, H, K)."""
    if qkv_1M3HK.is_cuda and qkv_1M3HK.dtype in (torch.bfloat16, torch.float16):
        return _flash_attention(qkv_1M3HK, spans)
    mixed = []
    for qkv_L3HK in _clips(qkv_1M3HK, spans):
        q_1HLK, k_1HLK, v_1HLK = qkv_L3HK.permute(1, 2, 0, 3).unsqueeze(1)
        mixed.append(F.scaled_dot_product_attention(q_1HLK, k_1HLK, v_1HLK)[0].transpose(0, 1))
    return torch.cat(mixed)[None]


def _flash_attention(qkv_1M3HK: Tensor, spans: Spans) -> Tensor:
    """One kernel for all clips."""
    from torch.nn.attention.varlen import varlen_attn  # of newer torch; the CPU never needs it

    ends = torch.tensor(spans.lengths, device=qkv_1M3HK.device).cumsum(0)
    starts = F.pad(ends, (1, 0)).to(torch.int32)
    longest = max(spans.lengths)
    q_MHK, k_MHK, v_MHK = (x.contiguous() for x in qkv_1M3HK[0].unbind(1))
    mixed = varlen_attn(q_MHK, k_MHK, v_MHK, starts, starts, longest, longest)
    assert isinstance(mixed, Tensor), "without auxiliary outputs it returns the mixture alone"
    return mixed[None]
