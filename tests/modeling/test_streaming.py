"""A clip heard in pieces: the same reply and the same P([Mute]) as from the whole clip with the same look-ahead."""

import pytest
import torch
from tiny_wearllama import ENCODER, HEARD, READ, SYSTEM, build, clip

from wearllama.audio.beamforming import select_channels
from wearllama.data.actions import parse_action
from wearllama.modeling.prompt_cache import Decoding, PromptCache
from wearllama.modeling.streaming import StreamingSession
from wearllama.training.grpo import without_dropout

STREAMING = {**ENCODER, "causal": True, "contexts": [[70, 13], [70, 6], [70, 1], [70, 0]]}


@pytest.fixture(scope="module")
def streaming():
    return build(encoder_config=STREAMING)


@torch.no_grad()
def from_whole(processor, model, audio, look_ahead=None, messages=HEARD, tokens=12):
    """Reply ids and first-token probabilities of the whole clip at once."""
    model.encoder.set_look_ahead(look_ahead)
    batch = processor([messages], [audio])
    ids = model.generate(**batch, max_new_tokens=tokens, do_sample=False)[0, batch["input_ids"].shape[1] :]
    logits_V = model(**batch, logits_to_keep=1).logits[0, -1]
    model.encoder.set_look_ahead(None)
    return ids.tolist(), logits_V.softmax(-1)


def in_pieces(processor, model, audio, piece, **settings):
    session = StreamingSession(model, processor, HEARD, max_new_tokens=12, **settings)
    for start in range(0, audio.shape[-1], piece):
        session.push(audio[..., start : start + piece])
    return session.finish()


@pytest.mark.parametrize("look_ahead", [13, 6, 1, 0])
@pytest.mark.parametrize("piece", [160, 5_328, 10**6])
def test_streamed_equals_whole(streaming, look_ahead, piece):
    processor, model = streaming
    audio = clip(2.77, seed=look_ahead)
    ids, probabilities = from_whole(processor, model, audio, look_ahead)
    result = in_pieces(processor, model, audio, piece, look_ahead=look_ahead)
    assert result.ids == ids
    assert result.text == processor.batch_decode([ids])[0]
    assert result.p_mute == pytest.approx(float(probabilities[processor.ids.mute]), abs=1e-6)
    assert result.positions == processor.encode_prompt(HEARD, [audio.shape[1]]).count(processor.ids.audio)


def test_sample_by_sample_and_random_pieces(streaming):
    processor, model = streaming
    audio = clip(0.31, seed=5)
    ids, probabilities = from_whole(processor, model, audio, 1)
    result = in_pieces(processor, model, audio, 1, look_ahead=1)
    assert result.ids == ids
    assert result.p_mute == pytest.approx(float(probabilities[processor.ids.mute]), abs=1e-6)
    session = StreamingSession(model, processor, HEARD, look_ahead=1, max_new_tokens=12)
    for part in torch.as_tensor(audio).split([0, 7, 1_000, 0, 2_953, 1_000], dim=1):
        session.push(part)
    assert session.finish().ids == ids


@pytest.mark.parametrize("samples", [1, 399, 1_600, 1_681, 16_000])
def test_short_clips(streaming, samples):
    processor, model = streaming
    audio = clip(1.0, seed=samples)[:, :samples]
    ids, probabilities = from_whole(processor, model, audio)
    result = in_pieces(processor, model, audio, 480)
    assert result.ids == ids
    assert result.p_mute == pytest.approx(float(probabilities[processor.ids.mute]), abs=1e-6)


@pytest.mark.parametrize("channels", ["sc_beam", "sc_c0"])
def test_single_channel_models(channels):
    processor, model = build(encoder_config=STREAMING, channels=channels, projector={"causal": True})
    audio = clip(1.9)
    ids, _ = from_whole(processor, model, audio, 6)
    assert in_pieces(processor, model, audio, 1_280, look_ahead=6).ids == ids


def test_a_recorded_beam_comes_as_a_pair(streaming):
    processor, model = streaming
    c0_N, cx_N = select_channels(torch.as_tensor(clip(1.4)), processor.array, processor.beam)
    ids, _ = from_whole(processor, model, (c0_N, cx_N))
    session = StreamingSession(model, processor, HEARD, max_new_tokens=12)
    session.push((c0_N[:9_000], cx_N[:9_000]))
    session.push((c0_N[9_000:], cx_N[9_000:]))
    assert session.finish().ids == ids


def test_pretrained_vocabulary_and_lora(tmp_path):
    processor, model = build(encoder_config=STREAMING, lora={"r": 2}, projector={"pieces": 5})
    audio = clip(1.6)
    ids, _ = from_whole(processor, model, audio, 6)
    assert in_pieces(processor, model, audio, 2_000, look_ahead=6).ids == ids


def test_sessions_share_a_prompt_and_nothing_else(streaming):
    processor, model = streaming
    prompts = PromptCache(model)
    sounds = [clip(1.3, seed) for seed in (1, 2, 3)]
    alone = [in_pieces(processor, model, audio, 4_000, look_ahead=1) for audio in sounds]
    assert len({tuple(result.ids) for result in alone}) == 3
    sessions = [StreamingSession(model, processor, HEARD, look_ahead=1, prompts=prompts, max_new_tokens=12)
                for _ in sounds]  # fmt: skip
    for start in range(0, sounds[0].shape[1], 4_000):  # in turn, as microphones of several wearers
        for session, audio in zip(sessions, sounds, strict=True):
            session.push(audio[:, start : start + 4_000])
    together = [session.finish() for session in sessions]
    again = StreamingSession(model, processor, HEARD, look_ahead=1, prompts=prompts, max_new_tokens=12)
    again.push(sounds[0])
    for first, second in zip([*alone, alone[0]], [*together, again.finish()], strict=True):
        assert first.ids == second.ids
        assert first.p_mute == pytest.approx(second.p_mute, abs=1e-6)
    assert len(prompts._kept) == 1


def test_prompts_are_forgotten_oldest_first(streaming):
    prompts = PromptCache(streaming[1], size=2)
    for ids in ([1, 2], [3], [1, 2], [4]):
        assert prompts.start(ids).length == len(ids)
    assert list(prompts._kept) == [(1, 2), (4,)]
    with pytest.raises(ValueError, match="another model"):
        StreamingSession(build(encoder_config=STREAMING)[1], streaming[0], HEARD, prompts=prompts)


def test_asking_for_the_gate_while_listening_changes_nothing(streaming):
    processor, model = streaming
    audio = clip(1.5, seed=8)
    ids, probabilities = from_whole(processor, model, audio, 0)
    session = StreamingSession(model, processor, HEARD, look_ahead=0, max_new_tokens=12)
    assert session.p_mute() is None
    heard = []
    for start in range(0, audio.shape[1], 3_000):
        session.push(audio[:, start : start + 3_000])
        heard.append(session.p_mute())
    result = session.finish()
    assert all(0.0 <= p <= 1.0 for p in heard) and len({round(p, 9) for p in heard}) > 1
    assert result.ids == ids
    assert result.p_mute == pytest.approx(float(probabilities[processor.ids.mute]), abs=1e-6)


def test_an_encoder_of_whole_clips_streams_only_when_told(tiny):
    processor, model = tiny
    with pytest.raises(ValueError, match="cannot stream; recompute=True"):
        StreamingSession(model, processor, HEARD)
    with pytest.raises(ValueError, match="look_ahead is 6, but recompute"):
        StreamingSession(model, processor, HEARD, look_ahead=6, recompute=True)
    audio = clip(1.7)
    ids, probabilities = from_whole(processor, model, audio)
    result = in_pieces(processor, model, audio, 1_234, recompute=True)
    assert result.ids == ids
    assert result.p_mute == pytest.approx(float(probabilities[processor.ids.mute]), abs=1e-6)


def test_misuse_is_named(streaming):
    processor, model = streaming
    two = [*HEARD, {"role": "assistant", "content": "[Mute]"}, HEARD[1]]
    for messages, found in ((READ, 0), (two, 2)):
        with pytest.raises(ValueError, match=f"messages have {found} audio parts"):
            StreamingSession(model, processor, messages)
    with pytest.raises(ValueError, match="look_ahead is 9, wanted one that was trained"):
        StreamingSession(model, processor, HEARD, look_ahead=9)
    model.train()
    with pytest.raises(ValueError, match="training mode"):
        StreamingSession(model, processor, HEARD)
    model.eval()
    session = StreamingSession(model, processor, HEARD, max_new_tokens=2)
    with pytest.raises(ValueError, match="at least one sample"):
        session.finish()
    with pytest.raises(ValueError, match=r"\(4, 4960\), wanted \(5, samples\)"):
        session.push(clip(0.31, channels=4))
    with pytest.raises(ValueError, match=r"31.00 s is longer than the model's limit of 30 s"):
        session.push(clip(31.0))
    session.push(clip(0.2))
    session.finish()
    with pytest.raises(ValueError, match="the session is finished"):
        session.finish()


def test_the_decoders_positions_are_a_limit(streaming):
    processor, model = streaming
    long = [{**SYSTEM, "content": "a " * 2_000}, HEARD[1]]
    prompt = len(processor.encode_prompt(long, [1]))
    session = StreamingSession(model, processor, long)
    room = (processor.tokenizer.model_max_length - prompt) // 2 + 1  # pairs of embeddings that fit
    assert room > 3
    with pytest.raises(ValueError, match="the decoder's limit is 2048"):
        session.push(clip(0.08 * (room + 2)))
    session.push(clip(0.08 * (room - 1)))
    with pytest.raises(ValueError, match="the prompt takes 21"):
        StreamingSession(model, processor, [{**SYSTEM, "content": "a " * 2_100}, HEARD[1]])


def test_the_gate_comes_before_the_reply(streaming):
    processor, model = streaming
    audio = clip(1.5, seed=3)
    wanted = in_pieces(processor, model, audio, 2_000, look_ahead=1)
    session = StreamingSession(model, processor, HEARD, look_ahead=1, max_new_tokens=12)
    session.push(audio)
    gate = session.end()
    assert gate == pytest.approx(wanted.p_mute, abs=1e-6)
    for act in (lambda: session.push(audio), session.end, session.p_mute):
        with pytest.raises(ValueError, match="speech has ended"):
            act()
    result = session.finish()
    assert result.ids == wanted.ids and result.p_mute == gate
    assert result.timings.first_token < result.timings.total


@pytest.mark.parametrize("last", [1, 2_000, 20_000])
def test_the_last_samples_may_come_with_the_end(streaming, last):
    processor, model = streaming
    audio = torch.as_tensor(clip(1.5, seed=3))
    wanted = in_pieces(processor, model, audio, 2_000, look_ahead=1)
    session = StreamingSession(model, processor, HEARD, look_ahead=1, max_new_tokens=12)
    session.push(audio[:, :-last])
    assert session.end(audio[:, -last:]) == pytest.approx(wanted.p_mute, abs=1e-6)
    assert session.finish().ids == wanted.ids
    short = StreamingSession(model, processor, HEARD, look_ahead=1)
    with pytest.raises(ValueError, match="max_audio_seconds"):
        short.end(clip(40.0))
    assert short.end(audio) == pytest.approx(wanted.p_mute, abs=1e-6), "a refused end changes nothing"


@pytest.mark.parametrize(
    ("said", "dialect", "kind"),
    [
        ("[Mute]", "wearvox", "mute"),
        ('<|TOOL|>[{"name": "call", "parameters": {"who": "Ann"}}]</|TOOL|>', "wearvox", "tool"),
        ('{"name": "call", "params": {"who": "Ann"}}', "vgbench", "tool"),
        ('{"name": "call", "params": {"who": "Ann"}}', "wearvox", "malformed"),
        ("It is noon.", "wearvox", "answer"),
    ],
)
def test_the_reply_is_read_as_an_action(streaming, monkeypatch, said, dialect, kind):
    processor, model = streaming
    ids = processor.encode_target(said)
    monkeypatch.setattr(Decoding, "greedy", lambda *_: iter(ids))
    session = StreamingSession(model, processor, HEARD, dialect=dialect)
    session.push(clip(0.5))
    action = session.finish().action
    assert action == parse_action(said, dialect) and action.kind == kind
    if kind == "tool":
        assert action.calls[0].arguments == {"who": "Ann"}
    with pytest.raises(ValueError, match="dialect is 'json'"):
        StreamingSession(model, processor, HEARD, dialect="json")


def test_reply_so_far_and_times(streaming):
    processor, model = streaming
    said = []
    session = StreamingSession(model, processor, HEARD, max_new_tokens=5)
    session.push(clip(1.25))
    result = session.finish(said.append)
    assert said[-1] == result.text and len(said) == len(result.ids)
    times = result.timings
    assert times.audio == 1.25 and 0 < times.first_token <= times.total and times.pushes > 0


def test_training_with_a_frozen_encoder_meets_every_look_ahead():
    processor, model = build(encoder_config=STREAMING)
    model.config.freeze = {"encoder": True}  # of an encoder from scratch, which the factory would train
    model.apply_freeze()
    audio = clip(1.9)
    batch = processor([HEARD], [audio], targets=["[Mute]"])
    model.train()
    with torch.no_grad():
        losses = {round(float(model(**batch).loss), 6) for _ in range(60)}
    assert len(losses) == 4


@torch.no_grad()
def test_training_keeps_the_chosen_look_ahead_where_it_is_told_to():
    """GRPO trains the policy that sampled: no context is drawn at random then."""
    processor, model = build(encoder_config=STREAMING)
    without_dropout(model)
    batch = processor([HEARD], [clip(1.0)])
    features, lengths = batch["input_features"], batch["feature_lengths"]
    chosen = model.eval().embed_audio(features, lengths)[0]
    model.train()
    for draws in (True, False):
        model.encoder.draws_look_ahead = draws
        trained = [model.embed_audio(features, lengths)[0] for _ in range(12)]
        assert all(torch.allclose(chosen, one, atol=1e-5) for one in trained) is not draws
