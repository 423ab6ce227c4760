import pytest
import torch
from tiny_wearllama import HEARD, READ, build, clip
from torch.nn import functional as F

from wearllama.audio.timebase import num_embeddings, num_mel_frames
from wearllama.modeling.conformer import ConformerConfig, ConformerEncoder


def final_logits(model, batch):
    with torch.no_grad():
        return model(**batch, logits_to_keep=1).logits[:, 0]


def test_alone_equals_padded_equals_permuted(tiny):
    processor, model = tiny
    rows = [(HEARD, clip(0.31, 1)), (READ, None), (HEARD, clip(2.2, 2)), (HEARD, clip(1.0, 3))]
    alone = torch.cat([final_logits(model, processor([m], [a])) for m, a in rows])
    order = [2, 0, 3, 1]
    batch = processor([rows[i][0] for i in order], [rows[i][1] for i in order])
    padded = final_logits(model, batch)
    assert (alone[0] - alone[2]).abs().max() > 0.1  # it does hear a difference
    torch.testing.assert_close(padded, alone[order], atol=1e-5, rtol=1e-5)


def test_right_and_left_padding_agree(tiny):
    processor, model = tiny
    conversations, audio = [HEARD, READ], [clip(0.9), None]
    left, right = (processor(conversations, audio, padding_side=side) for side in ("left", "right"))
    with torch.no_grad():
        at_end = model(**right).logits[torch.arange(2), right["attention_mask"].sum(1) - 1]
    torch.testing.assert_close(final_logits(model, left), at_end, atol=1e-5, rtol=1e-5)


def test_embeddings_equal_the_time_base_for_every_length():
    # One mel bin and a narrow encoder: all 2,991 lengths from .1 to 30 s in hops of 10 ms pass the real subsampling.
    samples = torch.arange(1_600, 480_001, 160)
    mels = torch.tensor([num_mel_frames(int(n)) for n in samples])
    narrow = ConformerConfig(n_mels=1, subsampling_width=2, width=4, layers=1, heads=1, ff_mult=1, kernel=3)
    encoder = ConformerEncoder(narrow)
    for part_samples, part_mels in zip(samples.split(150), mels.split(150), strict=True):
        with torch.no_grad():
            embedded, lengths = encoder.subsampling(torch.zeros(len(part_mels), int(part_mels.max()), 1), part_mels)
        assert lengths.tolist() == [num_embeddings(int(n), 1) for n in part_samples]
        assert embedded.shape[1] == lengths.max()


@pytest.mark.parametrize("channels", ["mc", "sc_beam", "sc_c0"])
def test_placeholders_equal_embeddings(channels):
    processor, model = build(channels=channels)
    for samples in (1, 399, 400, 401, 1_600, 1_681, 16_000, 99_999, 480_000):
        ids = processor.encode_prompt(HEARD, [samples])
        features, lengths = processor.features([torch.full((5, samples), 0.01)])
        with torch.no_grad():
            embeds, positions = model.embed_audio(features, lengths)
        assert ids.count(processor.ids.audio) == int(positions) == embeds.shape[1], samples
        assert int(positions) == num_embeddings(samples, processor.num_channels)


def test_wrong_placeholder_counts_raise(tiny):
    processor, model = tiny
    batch = processor([HEARD, HEARD], [clip(1.0), clip(2.0)])
    swapped = {**batch, "feature_lengths": batch["feature_lengths"].flip(0)}  # same total, both clips wrong
    with pytest.raises(ValueError, match="clip 0 gives 50 embeddings, but its prompt has 26"):
        model(**swapped)
    with pytest.raises(ValueError, match="2 audio spans, but there are 1 clips"):
        first = {key: batch[key][:1] for key in ("input_features", "feature_lengths")}
        model(**{**batch, **first})
    with pytest.raises(ValueError, match="placeholders but there is no audio"):
        model(input_ids=batch["input_ids"])
    with pytest.raises(ValueError, match="encodes 2 channel"):
        model(**{**batch, "input_features": batch["input_features"][:, :1]})


def test_loss_counts_target_tokens_globally(tiny):
    processor, model = tiny
    batch = processor([HEARD, READ], [clip(0.5), None], targets=["[Mute]", "Paris is a city."])
    with torch.no_grad():
        out = model(**batch)
        logits = model(**{key: value for key, value in batch.items() if key != "labels"}).logits
        by_row = [
            model(**processor([m], [a], targets=[t]), num_items_in_batch=10).loss
            for m, a, t in ((HEARD, clip(0.5), "[Mute]"), (READ, None, "Paris is a city."))
        ]
    expected = F.cross_entropy(logits[:, :-1].flatten(0, 1), batch["labels"][:, 1:].flatten(), ignore_index=-100)
    torch.testing.assert_close(out.loss, expected)
    targets = int((batch["labels"] != -100).sum())
    torch.testing.assert_close(sum(by_row) * 10 / targets, expected)
    assert out.logits is None


@pytest.mark.parametrize("frozen", [True, False])
def test_text_only_batches_touch_every_trained_parameter(frozen):
    processor, model = build()
    model.config.freeze = {"encoder": frozen}
    model.apply_freeze()
    model.train()
    assert model.encoder.training is not frozen
    model(**processor([READ], None, targets=["yes"])).loss.backward()
    untouched = [name for name, p in model.named_parameters() if p.requires_grad and p.grad is None]
    assert untouched == []
    assert (next(model.encoder.parameters()).grad is None) is frozen
    assert model.projector.out.weight.grad.abs().max() == 0
    model.eval()
    with torch.no_grad():  # the visit changes no output
        out = model(**processor([READ], None)).logits
    assert torch.isfinite(out).all()


def test_generation_in_a_batch_equals_one_by_one(tiny):
    processor, model = tiny
    rows = [(HEARD, clip(0.4, 1)), (READ, None), (HEARD, clip(1.7, 2))]
    settings = {"max_new_tokens": 12, "do_sample": False}
    batch = processor([m for m, _ in rows], [a for _, a in rows])
    together = model.generate(**batch, **settings)[:, batch["input_ids"].shape[1] :]
    for row, (messages, audio) in enumerate(rows):
        single = processor([messages], [audio])
        alone = model.generate(**single, **settings)[0, single["input_ids"].shape[1] :]
        assert together[row, : len(alone)].tolist() == alone.tolist()
    assert len({tuple(row.tolist()) for row in together}) == 3


def test_generation_with_cache_equals_without(tiny):
    processor, model = tiny
    batch = processor([HEARD], [clip(0.6)])
    outputs = [model.generate(**batch, max_new_tokens=10, do_sample=False, use_cache=cache) for cache in (True, False)]
    assert outputs[0].tolist() == outputs[1].tolist()


def test_several_samples_keep_their_own_clip(tiny):
    processor, model = tiny
    two = [*HEARD, {"role": "assistant", "content": "[Mute]"}, HEARD[1]]
    batch = processor([HEARD, READ, two], [clip(0.4, 1), None, [clip(0.3, 2), clip(0.5, 3)]])
    ids, kwargs = model._expand_inputs_for_generation(expand_size=2, **batch)
    expanded = {key: kwargs[key] for key in ("attention_mask", "input_features", "feature_lengths")}
    with torch.no_grad():
        repeated = model(input_ids=ids, **expanded, logits_to_keep=1).logits[:, 0]
    once = final_logits(model, batch)
    torch.testing.assert_close(repeated, once.repeat_interleave(2, dim=0), atol=1e-5, rtol=1e-5)


def test_half_precision_stays_close(tiny):
    processor, model = tiny
    batch = processor([HEARD, READ], [clip(0.6), None])
    full = final_logits(model, batch)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        autocast = final_logits(model, batch)
    _, half = build(dtype="bfloat16")
    half.load_state_dict(model.state_dict())
    for other in (autocast, final_logits(half, batch)):
        assert F.cosine_similarity(full, other.float()).min() > 0.99
