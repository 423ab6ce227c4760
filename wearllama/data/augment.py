"""Augmentation of log-mel features: other vocal tracts from few voices, and spans that were not heard."""

from dataclasses import dataclass

import torch
from torch import Tensor

LONGEST_SPAN_FRAMES = 20
LONGEST_SPAN_BINS = 12


@dataclass(frozen=True, kw_only=True)
class Augmentation:
    """What training hears of a clip; every channel of a clip gets the same, so that their differences stay."""

    warp: float = 0.0
    """Half-width of the uniform frequency-warp factor around 1."""
    mask_spans: int = 0
    """SpecAugment spans a clip, in time and in frequency each."""

    def __post_init__(self) -> None:
        if not 0 <= self.warp < 0.5 or self.mask_spans < 0:
            raise ValueError(f"augmentation: {self}: warp must lie in 0-.5 and mask_spans must not be negative")

    def __call__(self, feats_BxTF: Tensor, seed: int) -> Tensor:
        """Augment features (B, ..., T, F) on the CPU; the same seed gives the same view."""
        generator = torch.Generator().manual_seed(seed)
        factors_B = 1 + self.warp * (2 * torch.rand(len(feats_BxTF), generator=generator) - 1)
        return mask_spans(warp_frequency(feats_BxTF, factors_B), generator, count=self.mask_spans)


def warp_frequency(feats_BxTF: Tensor, factors_B: Tensor) -> Tensor:
    """Stretch the mel axis of each clip (..., T, F) by its factor (Jaitly and Hinton 2013)."""
    mels = feats_BxTF.shape[-1]
    position_BF = (torch.arange(mels)[None, :] * factors_B[:, None]).clamp(0, mels - 1)
    below_BF = position_BF.floor().long().clamp_max(mels - 2)
    over_axes = (len(feats_BxTF), *[1] * (feats_BxTF.ndim - 2), mels)
    weight_BxF = (position_BF - below_BF).view(over_axes)
    index_BxTF = below_BF.view(over_axes).expand_as(feats_BxTF)
    lower, upper = (feats_BxTF.gather(-1, index) for index in (index_BxTF, index_BxTF + 1))
    return lower * (1 - weight_BxF) + upper * weight_BxF


def mask_spans(feats_BxTF: Tensor, generator: torch.Generator, *, count: int) -> Tensor:
    """SpecAugment (Park et al. 2019) with short spans: up to 20 frames and up to 12 bins each, set to zero."""
    masked = feats_BxTF.clone()
    frames, mels = feats_BxTF.shape[-2:]
    for row in masked:
        for axis, size, longest in ((-2, frames, LONGEST_SPAN_FRAMES), (-1, mels, LONGEST_SPAN_BINS)):
            for _ in range(count):
                width = int(torch.randint(0, min(longest, size) + 1, (1,), generator=generator))
                start = int(torch.randint(0, size - width + 1, (1,), generator=generator))
                row.narrow(axis, start, width).zero_()
    return masked
