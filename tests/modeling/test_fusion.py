"""Every way of putting channels together: positions, placeholders, order, checkpoints."""

from pathlib import Path

import pytest
import torch
from tiny_wearllama import HEARD, build, clip

from wearllama.audio.timebase import num_encoder_frames, num_mel_frames
from wearllama.data.dataset import ExampleDataset
from wearllama.data.manifest import Example
from wearllama.modeling.factory import load_checkpoint
from wearllama.modeling.fusion import FusionConfig
from wearllama.training.data import row_lengths

WAYS = {
    "interleave": FusionConfig(),
    "swapped": FusionConfig(swap=True),
    "unmarked": FusionConfig(channel_embedding=False),
    "concat": FusionConfig(kind="concat"),
    "concat swapped": FusionConfig(kind="concat", swap=True),
    "sum": FusionConfig(kind="sum"),
}
SECONDS = 1.3
FRAMES = num_encoder_frames(num_mel_frames(int(SECONDS * 16_000)))


@pytest.mark.parametrize("name", WAYS)
def test_placeholders_follow_the_fusion_everywhere(name: str, tmp_path: Path) -> None:
    processor, model = build(fusion=WAYS[name])
    wanted = FRAMES * (2 if WAYS[name].kind == "interleave" else 1)
    batch = processor([HEARD, HEARD], [clip(SECONDS), clip(0.4, seed=1)], targets=["yes", "no"])
    assert int((batch["input_ids"][0] == processor.ids.audio).sum()) == wanted
    loss = model.train()(**batch).loss
    loss.backward()
    model.eval().save_pretrained(tmp_path)
    processor.save_pretrained(tmp_path)
    loaded, its_processor = load_checkpoint(tmp_path)
    assert its_processor.fusion == WAYS[name] == loaded.config.channel_fusion()
    assert its_processor.positions_per_frame == loaded.config.positions_per_frame == wanted // FRAMES
    with torch.no_grad():
        torch.testing.assert_close(loaded(**batch).loss, model(**batch).loss, atol=1e-6, rtol=0)


@pytest.mark.parametrize("name", WAYS)
def test_lengths_for_batching_are_those_of_the_batch(name: str) -> None:
    processor, _ = build(fusion=WAYS[name])
    row = Example(
        id="a", task="tool_call", messages=HEARD, target="yes", split="train",
        audio={"mc": "a.wav"}, metadata={"seconds": SECONDS},
    )  # fmt: skip
    dataset = ExampleDataset([row], root=".", array=processor.array, beam=processor.beam)
    lengths = row_lengths(dataset, processor, processor.positions_per_frame)
    prompt = processor([HEARD], [clip(SECONDS)], targets=["yes"])["input_ids"]
    assert lengths.embeddings[0] + lengths.tokens[0] == prompt.shape[1]


@torch.no_grad()
def test_swapped_order_is_the_other_order() -> None:
    (_, model), (processor, swapped) = build(), build(fusion=FusionConfig(swap=True))
    swapped.load_state_dict(model.state_dict())
    features, lengths = processor.features([clip(SECONDS)])
    one, positions = model.embed_audio(features, lengths)
    other, _ = swapped.embed_audio(features, lengths)
    assert int(positions) == 2 * FRAMES
    assert torch.equal(one[:, 0::2], other[:, 1::2]) and torch.equal(one[:, 1::2], other[:, 0::2])


@torch.no_grad()
@pytest.mark.parametrize("kind", ["concat", "sum"])
def test_both_channels_are_heard_and_padding_reaches_no_position(kind: str) -> None:
    processor, model = build(fusion=FusionConfig(kind=kind))
    alone, _ = model.embed_audio(*processor.features([clip(0.5)]))
    padded, _ = model.embed_audio(*processor.features([clip(0.5), clip(2.0, seed=3)]))
    torch.testing.assert_close(padded[0, : alone.shape[1]], alone[0], atol=1e-5, rtol=0)
    for channel in (0, 1):
        features, lengths = processor.features([clip(0.5)])
        features[:, channel] += 0.5
        assert not torch.allclose(model.embed_audio(features, lengths)[0], alone, atol=1e-3)


def test_a_marker_only_where_a_position_has_one_channel() -> None:
    marked = {name: any(key.endswith("projector.channel") for key in build(fusion=way)[1].state_dict())
              for name, way in WAYS.items()}  # fmt: skip
    assert [name for name, found in marked.items() if found] == ["interleave", "swapped"]


@pytest.mark.parametrize(
    ("channels", "fields", "words"),
    [
        ("sc_beam", {"kind": "sum"}, "needs channels=mc"),
        ("sc_c0", {"swap": True}, "needs channels=mc"),
        ("mc", {"kind": "mean"}, "wanted one of interleave, concat, sum"),
        ("mc", {"kind": "sum", "swap": True}, "no effect"),
    ],
)
def test_fusions_without_meaning_are_refused(channels: str, fields: dict, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        build(channels=channels, fusion=FusionConfig(**fields))
