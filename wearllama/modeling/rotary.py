"""Rotary positions (Su et al. 2021, section 3.2): halves of a head turned by angles that grow with the place.

Shape suffixes: B batch, L frames, H heads, K head width.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def rotary_tables(length: int, head_width: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Cosine and sine tables (L, K) of rotary positions (Su et al. 2021, equation 34), always fp32."""
    inverse_K2 = 10_000.0 ** (-torch.arange(0, head_width, 2, device=device, dtype=torch.float32) / head_width)
    angles_LK2 = torch.arange(length, device=device, dtype=torch.float32)[:, None] * inverse_K2
    angles_LK = torch.cat([angles_LK2, angles_LK2], dim=-1)
    return angles_LK.cos(), angles_LK.sin()


def rotate(x_BHLK: Tensor, cos_LK: Tensor, sin_LK: Tensor) -> Tensor:
    first, second = x_BHLK.float().chunk(2, dim=-1)
    turned = x_BHLK * cos_LK + torch.cat([-second, first], dim=-1) * sin_LK
    return turned.to(x_BHLK.dtype)


def rotate_projected(qkv_BL3HK: Tensor, cos_LK: Tensor, sin_LK: Tensor) -> Tensor:
    """Queries and keys turned, values as they are, still side by side (B, L, 3, H, K)."""
    if qkv_BL3HK.dtype == torch.float32:
        turned: Tensor = _Rotation.apply(qkv_BL3HK, cos_LK, sin_LK)
        return turned
    qk_BL2HK = rotate(qkv_BL3HK[:, :, :2], cos_LK[:, None, None], sin_LK[:, None, None])
    return torch.cat((qk_BL2HK, qkv_BL3HK[:, :, 2:]), dim=2)


class _Rotation(torch.autograd.Function):
    """In a third of the passes over memory that ``rotate`` takes; the gradient turns the other way."""

    @staticmethod
    def forward(ctx: Any, qkv_BL3HK: Tensor, cos_LK: Tensor, sin_LK: Tensor) -> Tensor:
        ctx.save_for_backward(cos_LK, sin_LK)
        return _turned(qkv_BL3HK, cos_LK, sin_LK, 1)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, grad_BL3HK: Tensor) -> tuple[Tensor, None, None]:
        cos_LK, sin_LK = ctx.saved_tensors
        return _turned(grad_BL3HK, cos_LK, sin_LK, -1), None, None


def _turned(qkv_BL3HK: Tensor, cos_LK: Tensor, sin_LK: Tensor, sense: int) -> Tensor:
    """``sense``: 1 or, backwards, -1."""
    half = cos_LK.shape[-1] // 2
    cos, sin = cos_LK[:, None, None, :half], sin_LK[:, None, None, :half]
    turned_BL3HK = torch.empty_like(qkv_BL3HK, memory_format=torch.contiguous_format)
    first, second = qkv_BL3HK[:, :, :2].chunk(2, dim=-1)
    turned_first, turned_second = turned_BL3HK[:, :, :2].chunk(2, dim=-1)
    torch.mul(first, cos, out=turned_first).addcmul_(second, sin, value=-sense)
    torch.mul(second, cos, out=turned_second).addcmul_(first, sin, value=sense)
    turned_BL3HK[:, :, 2] = qkv_BL3HK[:, :, 2]
    return turned_BL3HK
