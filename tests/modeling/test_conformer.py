"""The encoder gives the same embeddings alone, padded and permuted."""

import pytest
import torch

from wearllama.audio.timebase import num_encoder_frames
from wearllama.modeling.conformer import ConformerConfig, ConformerEncoder

TINY = ConformerConfig(subsampling_width=16, width=32, layers=2, heads=2, kernel=5)


@pytest.fixture()
def encoder() -> ConformerEncoder:
    torch.manual_seed(0)
    return ConformerEncoder(TINY).eval()


@torch.no_grad()
def test_alone_equals_padded_equals_permuted(encoder: ConformerEncoder) -> None:
    lengths_B = torch.tensor([7, 8, 9, 63, 200])
    clips = [torch.randn(int(n), 80) for n in lengths_B]
    feats_BTF = torch.full((5, 200, 80), 37.0)  # what lies in the padding must not matter
    for row, clip in enumerate(clips):
        feats_BTF[row, : len(clip)] = clip
    batch = encoder(feats_BTF, lengths_B)
    order = torch.tensor([3, 0, 4, 2, 1])
    permuted = encoder(feats_BTF[order], lengths_B[order])
    for row, clip in enumerate(clips):
        alone = encoder(clip[None], lengths_B[row : row + 1])
        frames = int(alone.lengths_B[0])
        assert frames == num_encoder_frames(len(clip)) == int(batch.lengths_B[row])
        torch.testing.assert_close(batch.embeddings_BLD[row, :frames], alone.embeddings_BLD[0], atol=1e-5, rtol=0)
        assert not batch.embeddings_BLD[row, frames:].any()
    torch.testing.assert_close(permuted.embeddings_BLD, batch.embeddings_BLD[order], atol=1e-5, rtol=0)


@torch.no_grad()
def test_position_matters(encoder: ConformerEncoder) -> None:
    feats_BTF = torch.randn(1, 160, 80)
    forward = encoder(feats_BTF, torch.tensor([160])).embeddings_BLD
    backward = encoder(feats_BTF.flip(1), torch.tensor([160])).embeddings_BLD
    assert not torch.allclose(forward, backward.flip(1), atol=1e-2)


def test_gradient_reaches_every_parameter(encoder: ConformerEncoder) -> None:
    encoder.train()(torch.randn(2, 50, 80), torch.tensor([50, 30])).embeddings_BLD.square().sum().backward()
    silent = [name for name, p in encoder.named_parameters() if p.grad is None or not p.grad.any()]
    assert not silent


@pytest.mark.parametrize("field,value", [("width", 33), ("kernel", 4), ("dropout", 1.0), ("layers", 0)])
def test_bad_sizes_are_named(field: str, value: float) -> None:
    with pytest.raises(ValueError, match=field):
        ConformerConfig(**{field: value})


def test_wrong_mel_count(encoder: ConformerEncoder) -> None:
    with pytest.raises(ValueError, match="80 mel bins, found 64"):
        encoder(torch.randn(1, 20, 64), torch.tensor([20]))
