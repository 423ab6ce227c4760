"""A streaming encoder starts from one of whole clips: what its taps keep, and what is refused; shards are read too."""

import json
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from tiny_wearllama import ENCODER, HEARD, build, clip, tiny_config

from wearllama.audio.frontend import LogMel
from wearllama.audio.io import read_audio
from wearllama.modeling.conformer import ConformerConfig, ConformerEncoder
from wearllama.modeling.encoder_io import encoder_config, find_encoder, load_encoder, load_encoder_weights, look_back
from wearllama.modeling.factory import build_model, build_processor, load_checkpoint
from wearllama.modeling.streaming import StreamingSession

CONTEXTS = [[70, 6], [70, 1]]
SPEECH = sorted((Path(__file__).parents[1] / "fixtures" / "speech").glob("*.flac"))[0]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A checkpoint whose encoder attends to whole clips, in one file and in shards."""
    folder = tmp_path_factory.mktemp("whole")
    processor, model = build()
    for name, size in (("one", "5GB"), ("shards", "40KB")):
        model.save_pretrained(folder / name, max_shard_size=size)
        processor.save_pretrained(folder / name)
    assert not (folder / "shards" / "model.safetensors").exists()
    return folder, processor, model


@torch.no_grad()
def test_taps_stay_with_their_frames():
    torch.manual_seed(0)
    centred = ConformerEncoder(ConformerConfig(**ENCODER))
    causal = ConformerEncoder(ConformerConfig(**{**ENCODER, "causal": True}))
    causal.load_state_dict(look_back(centred.state_dict()))
    frame = 4
    for before, after in zip(centred.subsampling.convs, causal.subsampling.convs, strict=True):
        x_1CT = torch.randn(1, before.in_channels, 20)
        x_1CT[:, :, 2 * frame + 2 :] = 0.0  # what a causal frame does not hear
        wanted_C, found_C = before(x_1CT)[0, :, frame], after(F.pad(x_1CT, (3, 1)))[0, :, frame]
        torch.testing.assert_close(found_C, wanted_C, atol=1e-6, rtol=0)
    for before, after in zip(centred.blocks, causal.blocks, strict=True):
        x_1DL = torch.randn(1, ENCODER["width"], 20)
        x_1DL[:, :, frame + 1 :] = 0.0
        past = ENCODER["kernel"] - 1
        wanted_D = before.convolution.depthwise(x_1DL)[0, :, frame]
        found_D = after.convolution.depthwise(F.pad(x_1DL, (past, 0)))[0, :, frame]
        torch.testing.assert_close(found_D, wanted_D, atol=1e-6, rtol=0)
    same = [name for name, weight in causal.state_dict().items() if torch.equal(weight, centred.state_dict()[name])]
    assert len(same) == len(causal.state_dict()) - 3 - ENCODER["layers"]


@torch.no_grad()
def test_the_packaged_encoder_gives_a_nearer_start_than_its_bare_weights():
    packaged = load_encoder("packaged").eval()
    sizes = {**vars(encoder_config("packaged")), "causal": True, "contexts": CONTEXTS}
    starts = [ConformerEncoder(ConformerConfig(**sizes)).eval() for _ in range(2)]
    load_encoder_weights(starts[0], "packaged")
    starts[1].load_state_dict(packaged.state_dict())
    feats_1TF = LogMel()(read_audio(SPEECH)[:1] * 0.1)
    lengths_1 = torch.tensor([feats_1TF.shape[1]])
    wanted_LD = packaged(feats_1TF, lengths_1).embeddings_BLD[0]
    near, bare = (
        F.cosine_similarity(start(feats_1TF, lengths_1).embeddings_BLD[0], wanted_LD, dim=-1).mean() for start in starts
    )
    assert near > bare + 0.1, (float(near), float(bare))


def test_sft_may_train_a_streaming_encoder_from_a_stored_one(whole):
    folder = whole[0] / "one"
    config = tiny_config(
        encoder=str(folder), encoder_config={"causal": True, "contexts": CONTEXTS}, freeze={"encoder": False},
        projector={"causal": True},
    )  # fmt: skip
    processor = build_processor(config)
    model = build_model(config, processor).eval()
    assert model.config.encoder["contexts"] == CONTEXTS and not model.encoder_frozen
    session = StreamingSession(model, processor, HEARD, max_new_tokens=2)
    assert session.push(clip(1.3)) > 0
    model.train()(**processor([HEARD], [clip(0.9)], targets=["[Mute]"])).loss.backward()
    assert model.encoder.blocks[0].convolution.depthwise.weight.grad.any()


def test_a_frozen_encoder_cannot_be_told_to_stream(whole):
    folder = whole[0] / "one"
    for changed, found in (({"causal": True}, "False"), ({"contexts": CONTEXTS}, r"\[\]")):
        config = tiny_config(encoder=str(folder), encoder_config=changed, freeze={"encoder": True})
        with pytest.raises(
            ValueError, match=rf"was trained with {found}: a streaming encoder that starts from it must"
        ):
            build_model(config, build_processor(config))
    config = tiny_config(
        encoder=str(folder), encoder_config={"causal": False, "contexts": []}, freeze={"encoder": True}
    )
    assert build_model(config, build_processor(config)).encoder_frozen


def test_shards_are_read_as_an_encoder(whole):
    folder, _, model = whole
    loaded = load_encoder(folder / "shards")
    for name, weight in model.encoder.state_dict().items():
        torch.testing.assert_close(loaded.state_dict()[name], weight)
    assert find_encoder(folder / "shards").name == "model.safetensors.index.json"
    again, _ = load_checkpoint(folder / "shards")
    assert torch.equal(again.encoder.state_dict()["subsampling.out.weight"], loaded.subsampling.out.weight)


def test_a_missing_shard_is_named(whole, tmp_path):
    index = json.loads((whole[0] / "shards" / "model.safetensors.index.json").read_text())
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    (tmp_path / "config.json").write_text((whole[0] / "shards" / "config.json").read_text())
    with pytest.raises(ValueError, match=r"shards, but model-00001-of-\d+\.safetensors, .* is not there"):
        load_encoder(tmp_path)
