"""What BEST-RQ predicts: labels from a frozen random projection and frozen codebooks (Chiu et al. 2022, section 3.2).

A stack of mel frames is normalised per bin over its own utterance, projected to a few numbers and named after the
nearest code of each book.  Loudness and the microphone's colouring cancel in the normalisation, so that a clip keeps
its labels whatever its gain: the logarithm's floor follows the clip's loudest bin for the same reason.  Everything
runs in fp32, also under autocast: bfloat16 would change labels.

Shape suffixes: C clips, T mel frames, F mel bins, L stacks, S values of a stack, P projected width, N rows, K books,
V codes of a book.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

RELATIVE_FLOOR = 1e-8
"""Power added before the logarithm, relative to the clip's loudest mel bin: 80 dB below it."""
MIN_STD = 0.1
"""Least deviation (nepers of power) that a bin is divided by: an empty band must not be blown up into labels."""


@torch.no_grad()
def stacked_targets(power_CTF: Tensor, mel_lengths_C: Tensor, stack: int) -> Tensor:
    """Log-mel normalised per bin and utterance, whole stacks only: (C, T // stack, stack * F), fp32.

    Args:
        power_CTF: mel power; frames past a clip's length may hold anything finite.
        mel_lengths_C: valid frames, at least one each.
        stack: mel frames of an encoder frame.
    """
    with torch.autocast(power_CTF.device.type, enabled=False):
        clips, frames, mels = power_CTF.shape
        valid_CT1 = (torch.arange(frames, device=power_CTF.device)[None] < mel_lengths_C[:, None])[..., None]
        power_CTF = torch.where(valid_CT1, power_CTF.float(), 0.0)
        floor_C11 = (power_CTF.amax((1, 2), keepdim=True) * RELATIVE_FLOOR).clamp_min(torch.finfo(torch.float32).tiny)
        # Sums in double: padding changes the order of the additions, and labels near a border should not notice.
        logs_CTF = torch.where(valid_CT1, (power_CTF + floor_C11).log(), 0.0).double()
        count_C11 = mel_lengths_C[:, None, None].double()
        centred_CTF = torch.where(valid_CT1, logs_CTF - logs_CTF.sum(1, keepdim=True) / count_C11, 0.0)
        std_C1F = (centred_CTF.square().sum(1, keepdim=True) / count_C11).sqrt().clamp_min(MIN_STD)
        whole = frames // stack
        return (centred_CTF / std_C1F).float()[:, : whole * stack].reshape(clips, whole, stack * mels)


class RandomProjectionQuantizer(nn.Module):
    """Stacks -> the nearest code of every book by cosine; drawn from ``seed``, never trained, saved with the model."""

    projection_SP: Tensor
    codes_KVP: Tensor

    def __init__(self, *, stack_width: int, width: int, books: int, codes: int, seed: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        projection_SP = nn.init.xavier_uniform_(torch.empty(stack_width, width), generator=generator)
        codes_KVP = torch.randn(books, codes, width, generator=generator)
        self.register_buffer("projection_SP", projection_SP)
        self.register_buffer("codes_KVP", F.normalize(codes_KVP, dim=-1))

    @torch.no_grad()
    def forward(self, stacks_NS: Tensor) -> Tensor:
        """Labels (N, K) of normalised stacks (N, S); ValueError where the module was cast away from fp32."""
        if {self.projection_SP.dtype, self.codes_KVP.dtype, stacks_NS.dtype} != {torch.float32}:
            found = (self.projection_SP.dtype, self.codes_KVP.dtype, stacks_NS.dtype)
            raise ValueError(f"the quantiser runs in float32, found projection, codes, stacks {found}")
        with torch.autocast(stacks_NS.device.type, enabled=False):
            projected_NP = stacks_NS @ self.projection_SP
            # The length of a row changes all its cosines alike: only the codes need unit length.
            labels = [(projected_NP @ codes_VP.T).argmax(-1) for codes_VP in self.codes_KVP]
        return torch.stack(labels, dim=-1)
