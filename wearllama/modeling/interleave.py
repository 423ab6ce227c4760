"""c_0 and c_x embeddings in one stream: c_0 t, c_x t, c_0 t+1, ... (WearVox paper, MC WearLlama; 25 a second).

Shape suffixes: B batch, C encoded channels (1 SC, 2 MC), L encoder frames (80 ms), D width, P = C * L positions.
"""

import torch
from torch import Tensor


def interleave(c0_BLD: Tensor, cx_BLD: Tensor) -> Tensor:
    """Alternate two aligned streams: (B, L, D) twice -> (B, 2 L, D), c_0 first.

    A clip of ``l`` valid frames fills the first ``2 l`` positions, so padding stays behind every clip.
    """
    if c0_BLD.shape != cx_BLD.shape:
        raise ValueError(f"c_0 and c_x must be aligned: found shapes {tuple(c0_BLD.shape)} and {tuple(cx_BLD.shape)}")
    return torch.stack((c0_BLD, cx_BLD), dim=2).flatten(1, 2)


def interleave_channels(x_BCLD: Tensor) -> Tensor:
    """(B, C, L, D) -> (B, C * L, D): channel by channel within each frame; SC passes through."""
    return x_BCLD.transpose(1, 2).flatten(1, 2)


def split_channels(x_BPD: Tensor, channels: int) -> Tensor:
    """Undo ``interleave_channels``: (B, P, D) -> (B, C, P / C, D)."""
    if x_BPD.shape[1] % channels:
        raise ValueError(f"{x_BPD.shape[1]} positions do not split into {channels} channels")
    return x_BPD.unflatten(1, (-1, channels)).transpose(1, 2)
