import pytest
import torch

from wearllama.modeling.interleave import interleave, interleave_channels, split_channels
from wearllama.modeling.projector import Projector, ProjectorConfig


def test_channels_alternate_and_come_apart_again():
    c0, cx = torch.arange(6.0).view(1, 3, 2), 100 + torch.arange(6.0).view(1, 3, 2)
    both = interleave(c0, cx)
    assert both[0, :, 0].tolist() == [0, 100, 2, 102, 4, 104]
    assert torch.equal(interleave_channels(torch.stack((c0, cx), dim=1)), both)
    assert torch.equal(split_channels(both, 2), torch.stack((c0, cx), dim=1))
    assert torch.equal(interleave_channels(c0[:, None]), c0)


def test_misaligned_channels_raise():
    with pytest.raises(ValueError, match="aligned"):
        interleave(torch.zeros(1, 3, 2), torch.zeros(1, 4, 2))
    with pytest.raises(ValueError, match="do not split"):
        split_channels(torch.zeros(1, 3, 2), 2)


def test_projector_ignores_padding_and_tells_channels_apart():
    torch.manual_seed(0)
    projector = Projector(ProjectorConfig(init_rms=0.05), encoder_width=8, decoder_width=12, channels=2).eval()
    x_BCLD = torch.randn(1, 1, 5, 8).expand(1, 2, 5, 8)
    alone = projector(x_BCLD, torch.ones(1, 5, dtype=torch.bool))
    padded = projector(torch.cat((x_BCLD, 9 + torch.randn(1, 2, 3, 8)), dim=2), (torch.arange(8) < 5)[None])
    torch.testing.assert_close(padded[:, :, :5], alone)
    assert (alone[:, 0] - alone[:, 1]).abs().max() > 0.01
    no_marker = alone - projector.channel[None, :, None]
    assert no_marker.square().mean().sqrt().item() == pytest.approx(0.05, rel=0.05)


def test_projector_is_silent_and_close_under_autocast(recwarn):
    torch.manual_seed(0)
    projector = Projector(ProjectorConfig(), encoder_width=8, decoder_width=12, channels=2)
    x_BCLD, mask_BL = torch.randn(2, 2, 5, 8), torch.ones(2, 5, dtype=torch.bool)
    exact = projector(x_BCLD, mask_BL)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rounded = projector(x_BCLD, mask_BL)
        rounded.sum().backward()
    assert not [str(warning.message) for warning in recwarn]
    assert rounded.dtype == torch.float32
    torch.testing.assert_close(rounded, exact, atol=2e-3, rtol=0.05)
    assert projector.to(torch.bfloat16)(x_BCLD.bfloat16(), mask_BL).dtype == torch.bfloat16
