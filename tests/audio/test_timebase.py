"""The time base covers every sample once and never jumps."""

import pytest

from wearllama.audio.timebase import num_embeddings, num_encoder_frames, num_mel_frames


@pytest.mark.parametrize(
    ("samples", "frames"), [(1, 1), (80, 1), (400, 1), (401, 2), (560, 2), (561, 3), (1280, 7), (16_000, 99)]
)
def test_mel_frames(samples: int, frames: int) -> None:
    assert num_mel_frames(samples) == frames


def test_last_frame_reaches_the_last_sample_and_no_frame_is_empty() -> None:
    for samples in range(1, 5000):
        frames = num_mel_frames(samples)
        assert 160 * (frames - 1) + 400 >= samples
        assert 160 * (frames - 1) < samples


def test_embeddings_are_80_ms_a_channel() -> None:
    assert num_embeddings(80, 2) == 2
    assert num_embeddings(1280, 1) == 1
    assert num_embeddings(30 * 16_000, 2) == 2 * 375
    assert num_encoder_frames(8) == 1
    assert num_encoder_frames(9) == 2


def test_refusals() -> None:
    for call in (lambda: num_mel_frames(0), lambda: num_encoder_frames(0), lambda: num_embeddings(400, 3)):
        with pytest.raises(ValueError, match=r"found 0|asked for 3"):
            call()
