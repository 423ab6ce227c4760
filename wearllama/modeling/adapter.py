"""The papers' adapter: encoder frames of 40 ms -> decoder positions of 80 ms (Llama 3, section 8.1).

A convolution of kernel 3 and stride 2, one rotary Transformer layer and a linear layer: 83 M parameters for a decoder
of width 2048, 102 M for 8192, behind an encoder of width 1536.

Shape suffixes: N clips times streams, L encoder frames, M = ceil(L / 2) adapter frames, D encoder width, A adapter
width, E decoder width, H heads, K head width.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from wearllama.modeling.rotary import rotary_tables, rotate

ADAPTER_STRIDE = 2


class Adapter(nn.Module):
    """(N, L, D) -> (N, M, E); padded frames reach no other."""

    def __init__(self, encoder_width: int, width: int, heads: int, ff_width: int, decoder_width: int) -> None:
        super().__init__()
        self.heads = heads
        self.conv = nn.Conv1d(encoder_width, width, kernel_size=3, stride=ADAPTER_STRIDE, padding=1)
        self.norm_attention = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.mix = nn.Linear(width, width)
        self.norm_ff = nn.LayerNorm(width)
        self.up = nn.Linear(width, ff_width)
        self.down = nn.Linear(ff_width, width)
        self.out = nn.Linear(width, decoder_width)

    def forward(self, x_NLD: Tensor, mask_NL: Tensor) -> Tensor:
        x_NLD = x_NLD * mask_NL[..., None].to(x_NLD.dtype)
        x_NMA = self.conv(x_NLD.transpose(1, 2)).transpose(1, 2)
        x_NMA = x_NMA + self._attend(self.norm_attention(x_NMA), mask_NL[:, ::ADAPTER_STRIDE])
        x_NMA = x_NMA + self.down(F.silu(self.up(self.norm_ff(x_NMA))))
        return self.out(x_NMA)

    def _attend(self, x_NMA: Tensor, mask_NM: Tensor) -> Tensor:
        qkv = self.qkv(x_NMA).unflatten(-1, (3, self.heads, -1))
        q_NHMK, k_NHMK, v_NHMK = qkv.permute(2, 0, 3, 1, 4)
        cos_MK, sin_MK = rotary_tables(x_NMA.shape[1], q_NHMK.shape[-1], x_NMA.device)
        mixed_NHMK = F.scaled_dot_product_attention(
            rotate(q_NHMK, cos_MK, sin_MK), rotate(k_NHMK, cos_MK, sin_MK), v_NHMK, attn_mask=mask_NM[:, None, None, :]
        )
        return self.mix(mixed_NHMK.transpose(1, 2).flatten(2))


def adapter_frames(lengths_B: Tensor) -> Tensor:
    """Adapter frames of clips of ``lengths_B`` encoder frames; a last single frame counts."""
    return torch.div(lengths_B + 1, ADAPTER_STRIDE, rounding_mode="floor")
