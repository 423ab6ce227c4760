"""Rows for tokens that a pretrained decoder does not know: ``[Mute]``, the tool brackets, the audio brackets.

Resizing a 128 K-row embedding to train seven rows of it would put the whole matrix (tied to the head or not) into the
optimizer and into every LoRA checkpoint.  The new rows live here instead, and the pretrained matrices stay untouched.

Shape suffixes: B batch, S text positions, E decoder width, V base vocabulary, K added tokens.
"""

import torch
from torch import Tensor, nn


class AddedTokens(nn.Module):
    """Input and output rows of ``count`` tokens whose ids follow the base vocabulary."""

    def __init__(self, base_vocabulary: int, count: int, width: int) -> None:
        super().__init__()
        self.base_vocabulary = base_vocabulary
        self.input_KE = nn.Parameter(torch.randn(count, width) * 0.02)
        self.output_KE = nn.Parameter(torch.randn(count, width) * 0.02)

    @torch.no_grad()
    def start_from(self, input_VE: Tensor, output_VE: Tensor) -> None:
        """Start every row near the mean of the pretrained rows, told apart by a little noise."""
        for rows_KE, base_VE in ((self.input_KE, input_VE), (self.output_KE, output_VE)):
            base = base_VE.float()
            noise_KE = torch.randn_like(rows_KE, dtype=torch.float32) * base.std() * 0.1
            rows_KE.copy_(base.mean(0, keepdim=True) + noise_KE)

    def embed(self, ids_BS: Tensor, base: nn.Module) -> Tensor:
        """Embeddings (B, S, E): base rows for base ids, own rows for the ids behind them."""
        own_BS = ids_BS >= self.base_vocabulary
        base_BSE = base(ids_BS.masked_fill(own_BS, 0))
        own_BSE = self.input_KE[(ids_BS - self.base_vocabulary).clamp_min(0)]
        return torch.where(own_BS[..., None], own_BSE.to(base_BSE.dtype), base_BSE)

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits (..., K) of the added tokens."""
        return hidden @ self.output_KE.to(hidden.dtype).T
