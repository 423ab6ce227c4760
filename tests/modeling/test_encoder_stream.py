"""Streamed embeddings are those of the whole clip with the same look-ahead, and no frame sees past its chunk."""

import numpy as np
import pytest
import torch
from torch import Tensor

from wearllama.audio.timebase import num_encoder_frames
from wearllama.modeling.conformer import ConformerConfig, ConformerEncoder
from wearllama.modeling.contexts import attention_mask
from wearllama.modeling.encoder_stream import EncoderStream, ProjectorStream
from wearllama.modeling.projector import Projector, ProjectorConfig

CONTEXTS = [[6, 4], [6, 2], [5, 1], [6, 0], [0, 3]]
SIZES = {"subsampling_width": 16, "width": 32, "layers": 3, "heads": 2, "kernel": 5, "causal": True}


@pytest.fixture()
def encoder() -> ConformerEncoder:
    torch.manual_seed(0)
    return ConformerEncoder(ConformerConfig(**SIZES, contexts=CONTEXTS)).eval()


def whole(encoder: ConformerEncoder, feats_BTF: Tensor, look_ahead: int) -> Tensor:
    lengths_B = torch.full((len(feats_BTF),), feats_BTF.shape[1])
    return encoder(feats_BTF, lengths_B, look_ahead).embeddings_BLD


@torch.no_grad()
@pytest.mark.parametrize("look_ahead", [ahead for _, ahead in CONTEXTS])
def test_pieces_equal_the_whole_clip(encoder: ConformerEncoder, look_ahead: int) -> None:
    rng = np.random.default_rng(look_ahead)
    for mel_frames in (1, 7, 8, 9, 81, 333):
        feats_BTF = torch.randn(2, mel_frames, 80)
        expected = whole(encoder, feats_BTF, look_ahead)
        random_cuts = np.diff([0, *sorted(rng.integers(0, mel_frames + 1, size=9)), mel_frames]).tolist()
        for cuts in ([1] * mel_frames, [mel_frames], random_cuts):
            stream = EncoderStream(encoder, 2, look_ahead)
            parts = [stream.push(part_BTF) for part_BTF in feats_BTF.split(cuts, dim=1)]
            found = torch.cat([*parts, stream.finish()], dim=1)
            assert found.shape[1] == num_encoder_frames(mel_frames) == stream.num_frames
            torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


@torch.no_grad()
def test_a_chunk_is_given_out_when_it_is_complete(encoder: ConformerEncoder) -> None:
    stream = EncoderStream(encoder, 1, 2)
    feats_BTF = torch.randn(1, 49, 80)
    assert [stream.push(part).shape[1] for part in feats_BTF.split([23, 1, 23, 1, 1], dim=1)] == [0, 3, 0, 3, 0]
    assert stream.finish().shape[1] == 1


@torch.no_grad()
@pytest.mark.parametrize("look_ahead", [4, 1, 0])
def test_a_frame_sees_its_chunk_and_nothing_after_it(encoder: ConformerEncoder, look_ahead: int) -> None:
    feats_BTF = torch.randn(1, 160, 80)
    before = whole(encoder, feats_BTF, look_ahead)
    chunk = look_ahead + 1
    changed = feats_BTF.clone()
    changed[:, 8 * chunk * 2 :] += 1.0  # from the third chunk on
    after = whole(encoder, changed, look_ahead)
    assert torch.equal(before[:, : 2 * chunk], after[:, : 2 * chunk])
    assert not torch.allclose(before[:, 2 * chunk], after[:, 2 * chunk], atol=1e-3)
    changed = feats_BTF.clone()
    changed[:, 8 * (2 * chunk - 1) :] += 1.0  # the last frame of the second chunk reaches the chunk's first
    after = whole(encoder, changed, look_ahead)
    assert torch.equal(before[:, :chunk], after[:, :chunk])
    assert not torch.allclose(before[:, chunk], after[:, chunk], atol=1e-4)


def test_the_past_is_limited(encoder: ConformerEncoder) -> None:
    mask_LL = attention_mask(torch.ones(1, 20, dtype=torch.bool), (6, 2))[0, 0]
    assert mask_LL[10].nonzero().flatten().tolist() == list(range(3, 12))  # chunk 9..11 and six frames before it
    narrow = attention_mask(torch.tensor([[True] * 2 + [False] * 18]), (3, 0))[0, 0]
    assert narrow.any(dim=1).all()  # frames far behind a clip still see something: no NaN


@torch.no_grad()
def test_alone_equals_padded(encoder: ConformerEncoder) -> None:
    lengths_B = torch.tensor([9, 200, 63])
    feats_BTF = torch.randn(3, 200, 80)
    for look_ahead in (4, 0):
        batch = encoder(feats_BTF, lengths_B, look_ahead)
        for row, length in enumerate(lengths_B.tolist()):
            alone = whole(encoder, feats_BTF[row : row + 1, :length], look_ahead)[0]
            torch.testing.assert_close(batch.embeddings_BLD[row, : len(alone)], alone, atol=1e-5, rtol=0)
        assert batch.embeddings_BLD.isfinite().all()


@torch.no_grad()
def test_look_aheads_differ_and_are_chosen(encoder: ConformerEncoder) -> None:
    feats_BTF, lengths_B = torch.randn(1, 200, 80), torch.tensor([200])
    first = encoder(feats_BTF, lengths_B).embeddings_BLD
    assert torch.equal(first, whole(encoder, feats_BTF, 4))
    encoder.set_look_ahead(0)
    chosen = encoder(feats_BTF, lengths_B).embeddings_BLD
    assert torch.equal(chosen, whole(encoder, feats_BTF, 0))
    assert not torch.allclose(first, chosen, atol=1e-3)
    assert EncoderStream(encoder, 1).context == (6, 0)
    with pytest.raises(ValueError, match=r"look_ahead is 7, wanted one that was trained: \[4, 2, 1, 0, 3\]"):
        encoder.set_look_ahead(7)


def test_training_draws_every_look_ahead(encoder: ConformerEncoder) -> None:
    assert {encoder.draw_look_ahead() for _ in range(200)} == {ahead for _, ahead in CONTEXTS}
    feats_BTF, lengths_B = torch.randn(1, 200, 80), torch.tensor([200])
    for block in encoder.modules():
        if isinstance(block, torch.nn.Dropout):
            block.p = 0.0
    encoder.train()
    with torch.no_grad():
        outputs = {round(float(encoder(feats_BTF, lengths_B).embeddings_BLD.abs().sum()), 2) for _ in range(40)}
    assert len(outputs) == len(CONTEXTS)
    plain = ConformerEncoder(ConformerConfig(**{**SIZES, "causal": False})).train()
    state = torch.get_rng_state()
    assert plain.draw_look_ahead() is None
    assert torch.equal(state, torch.get_rng_state())  # whole-clip encoders keep their streams of random numbers


def test_gradient_reaches_every_parameter(encoder: ConformerEncoder) -> None:
    encoder.train()(torch.randn(2, 50, 80), torch.tensor([50, 30])).embeddings_BLD.square().sum().backward()
    assert not [name for name, p in encoder.named_parameters() if p.grad is None or not p.grad.any()]


@torch.no_grad()
@pytest.mark.parametrize("kernel,causal", [(3, False), (5, False), (3, True), (1, False)])
@pytest.mark.parametrize("pieces", [0, 7])
def test_projector_in_pieces(kernel: int, causal: bool, pieces: int) -> None:
    torch.manual_seed(0)
    projector = Projector(ProjectorConfig(kernel=kernel, causal=causal, pieces=pieces), 8, 12, 2).eval()
    for size in (1, 2, 3, 11):
        x_BCLD = torch.randn(1, 2, size, 8)
        expected = projector(x_BCLD, torch.ones(1, size, dtype=torch.bool))
        for step in (1, 2, size):
            stream = ProjectorStream(projector)
            parts = [stream.push(part) for part in x_BCLD.split(step, dim=2)]
            assert parts[0].shape[2] == max(0, min(step, size) - stream.ahead)
            parts.append(stream.push(x_BCLD[:, :, :0], last=True))
            torch.testing.assert_close(torch.cat(parts, dim=2), expected, atol=1e-6, rtol=0)


def test_wrong_contexts_are_named() -> None:
    for contexts, words in (([[6]], r"holds \[6\]"), ([[6, -1]], "0 or more"), ([[6, 1], [4, 1]], "each once")):
        with pytest.raises(ValueError, match=words):
            ConformerConfig(**{**SIZES, "contexts": contexts})
    with pytest.raises(ValueError, match="causal=true"):
        ConformerConfig(contexts=[[6, 1]])
    with pytest.raises(ValueError, match="attends to whole clips"):
        EncoderStream(ConformerEncoder(ConformerConfig(layers=1)), 1)
