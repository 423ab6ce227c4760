"""P([Mute]) over time equals what the model says of each beginning, and what a streaming session sees at the end."""

import pytest
import torch
from tiny_wearllama import ENCODER, HEARD, build, clip

from wearllama.modeling.gate import mute_curve
from wearllama.modeling.streaming import StreamingSession


@torch.no_grad()
def test_whole_clips_are_heard_anew_from_each_beginning(tiny):
    processor, model = tiny
    audio_MN = torch.from_numpy(clip(1.0))
    curve = mute_curve(model, processor, HEARD, audio_MN, step_s=0.4, rows=2)
    assert [point.seconds for point in curve] == [0.4, 0.8, 1.0]
    for point in curve:
        batch = processor([HEARD], [audio_MN[:, : int(point.seconds * 16_000)]])
        logits_V = model(**batch).logits[0, -1]
        assert point.p_mute == pytest.approx(float(logits_V.softmax(-1)[processor.ids.mute]), abs=1e-5)
    assert len({round(point.p_mute, 6) for point in curve}) == 3


def test_a_streaming_encoder_is_asked_while_it_listens():
    processor, model = build(encoder_config={**ENCODER, "causal": True, "contexts": [[70, 1], [70, 0]]})
    audio_MN = torch.from_numpy(clip(1.1))
    curve = mute_curve(model, processor, HEARD, audio_MN, step_s=0.2)
    session = StreamingSession(model, processor, HEARD, max_new_tokens=1)
    session.push(audio_MN)
    assert curve[-1].p_mute == pytest.approx(session.finish().p_mute, abs=1e-6)
    assert [round(point.seconds, 2) for point in curve][-3:] == [0.8, 1.0, 1.1]


def test_wrong_steps_are_refused(tiny):
    processor, model = tiny
    with pytest.raises(ValueError, match="step_s is 0"):
        mute_curve(model, processor, HEARD, torch.zeros(5, 1600), step_s=0.0)
