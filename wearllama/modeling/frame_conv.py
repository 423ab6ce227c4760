"""Convolutions over frames whose channels lie last in memory, with a backward pass to match.

Shape suffixes: B batch, T frames in, M frames out, C channels in, D channels out, X taps of the kernel.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable


class FrameConv(nn.Conv1d):
    """``nn.Conv1d`` that makes no copies of (B, C, T) whose channels lie last: on a CPU 2 to 8 times as fast."""

    channels_last = False

    def forward(self, input: Tensor) -> Tensor:
        if not self.channels_last or input.device.type != "cpu":
            return super().forward(input)
        stride, padding = self.stride[0], int(self.padding[0])
        if self._trains(input):
            convolved: Tensor = _Convolution.apply(input, self.weight, self.bias, stride, padding, self.groups)
            return convolved
        return _convolve(input, self.weight, self.bias, stride, padding, self.groups)

    def _trains(self, input: Tensor) -> bool:
        """Whether gradients will be wanted that are quicker here: in fp32, of code that is not compiled."""
        if torch.compiler.is_compiling() or torch.is_autocast_enabled("cpu"):
            return False
        return torch.is_grad_enabled() and self.weight.requires_grad and input.dtype == torch.float32


def _convolve(
    x_BCT: Tensor, weight_DCX: Tensor, bias_D: Tensor | None, stride: int, padding: int, groups: int
) -> Tensor:
    y_BD1M = F.conv2d(x_BCT.unsqueeze(2), weight_DCX.unsqueeze(2), bias_D, (1, stride), (0, padding), groups=groups)
    return y_BD1M.squeeze(2)


class _Convolution(torch.autograd.Function):
    """The library's own backward pass takes three times as long: most of it for weights and, if asked, for the bias."""

    @staticmethod
    def forward(
        ctx: Any, x_BCT: Tensor, weight_DCX: Tensor, bias_D: Tensor | None, stride: int, padding: int, groups: int
    ) -> Tensor:
        ctx.save_for_backward(x_BCT, weight_DCX)
        ctx.geometry = stride, padding, groups
        return _convolve(x_BCT, weight_DCX, bias_D, stride, padding, groups)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, grad_BDM: Tensor) -> tuple[Tensor | None, ...]:
        x_BCT, weight_DCX = ctx.saved_tensors
        stride, padding, groups = ctx.geometry
        wants_x, wants_weight, wants_bias = ctx.needs_input_grad[:3]
        dense = groups == 1
        grad_x, grad_weight, _ = torch.ops.aten.convolution_backward(
            grad_BDM.unsqueeze(2), x_BCT.unsqueeze(2), weight_DCX.unsqueeze(2), None, (1, stride), (0, padding),
            (1, 1), False, (0, 0), groups, (wants_x, wants_weight and not dense, False),
        )  # fmt: skip
        if wants_weight:
            taps = weight_DCX.shape[-1]
            grad_weight = _weight_gradient(x_BCT, grad_BDM, taps, stride, padding) if dense else grad_weight.squeeze(2)
        return (
            grad_x.squeeze(2) if wants_x else None,
            grad_weight if wants_weight else None,
            grad_BDM.sum((0, 2)) if wants_bias else None,
            None,
            None,
            None,
        )


def _weight_gradient(x_BCT: Tensor, grad_BDM: Tensor, taps: int, stride: int, padding: int) -> Tensor:
    """One product a clip and tap: every ``stride``-th frame of the input, from the tap's place, with the gradient."""
    frames = x_BCT.shape[2]
    sum_XCD = x_BCT.new_zeros(taps, x_BCT.shape[1], grad_BDM.shape[1])
    for x_CT, grad_DM in zip(x_BCT, grad_BDM, strict=True):
        for tap, sum_CD in enumerate(sum_XCD):
            shift = tap - padding  # frame of the input under this tap at the first frame of the output
            first = max(0, -(shift // stride))
            last = min(grad_DM.shape[1], (frames - 1 - shift) // stride + 1)
            if first < last:
                seen_CM = x_CT[:, stride * first + shift : stride * (last - 1) + shift + 1 : stride]
                sum_CD.addmm_(seen_CM, grad_DM[:, first:last].t())
    return sum_XCD.permute(2, 1, 0)
