"""The quick convolution and the quick rotation: torch's own results and gradients."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from wearllama.modeling.frame_conv import FrameConv, _Convolution
from wearllama.modeling.rotary import rotary_tables, rotate, rotate_projected


@pytest.fixture(autouse=True)
def one_seed() -> Iterator[None]:
    torch.manual_seed(0)
    yield


def outcome(conv: nn.Conv1d, x_BTC: Tensor) -> list[Tensor]:
    """Output, gradient of the input, gradients of the parameters."""
    x_BTC = x_BTC.clone().requires_grad_()
    y_BDM = conv(x_BTC.transpose(1, 2))
    weights = torch.linspace(-1, 1, y_BDM[0].numel()).view(y_BDM[0].shape)
    return [y_BDM, *torch.autograd.grad((y_BDM * weights).sum(), [x_BTC, *conv.parameters()])]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("stride", "padding", "groups"), [(2, 2, 1), (2, 0, 1), (1, 2, 6), (1, 0, 6), (2, 1, 3)])
@pytest.mark.parametrize("frames", [8, 31])
def test_gradients_are_torchs_own(stride: int, padding: int, groups: int, bias: bool, frames: int) -> None:
    quick = FrameConv(6, 6, 5, stride=stride, padding=padding, groups=groups, bias=bias)
    plain = nn.Conv1d(6, 6, 5, stride=stride, padding=padding, groups=groups, bias=bias)
    plain.load_state_dict(quick.state_dict())
    quick.channels_last = True
    x_BTC = torch.randn(3, frames, 6)
    assert isinstance(quick(x_BTC.transpose(1, 2)).grad_fn, _Convolution._backward_cls), "the path that is tested"  # type: ignore[attr-defined]
    for found, wanted in zip(outcome(quick, x_BTC), outcome(plain, x_BTC), strict=True):
        torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)


def test_only_what_is_asked_for_gets_a_gradient() -> None:
    conv = FrameConv(4, 4, 5, stride=2, padding=2)
    conv.channels_last = True
    conv.bias.requires_grad_(False)  # type: ignore[union-attr]
    conv(torch.randn(1, 9, 4).transpose(1, 2)).sum().backward()
    assert conv.weight.grad is not None and conv.bias is not None and conv.bias.grad is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rotation_of_queries_and_keys_side_by_side(dtype: torch.dtype) -> None:
    qkv_BL3HK = torch.randn(2, 7, 3, 2, 8, dtype=dtype, requires_grad=True)
    cos_LK, sin_LK = rotary_tables(7, 8, qkv_BL3HK.device)
    q_BHLK, k_BHLK, v_BHLK = qkv_BL3HK.permute(2, 0, 3, 1, 4)
    wanted = torch.stack((rotate(q_BHLK, cos_LK, sin_LK), rotate(k_BHLK, cos_LK, sin_LK), v_BHLK))
    found = rotate_projected(qkv_BL3HK, cos_LK, sin_LK).permute(2, 0, 3, 1, 4)
    torch.testing.assert_close(found, wanted, atol=1e-6, rtol=0)
    gradient = torch.randn_like(wanted)
    (wanted_gradient,) = torch.autograd.grad(wanted, qkv_BL3HK, gradient)
    (found_gradient,) = torch.autograd.grad(found, qkv_BL3HK, gradient)
    torch.testing.assert_close(found_gradient, wanted_gradient, atol=1e-6, rtol=1e-6)
