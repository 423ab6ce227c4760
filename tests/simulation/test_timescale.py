"""Tempo and pitch change what they should, and leave delays and levels between channels alone."""

from pathlib import Path

import numpy as np
import pytest

from wearllama.audio.io import read_audio
from wearllama.simulation.timescale import shift_pitch, stretch

SPEECH = Path(__file__).resolve().parents[1] / "fixtures" / "speech"


def array_recording(name: str = "flite_rms_4579.flac") -> np.ndarray:
    """Real speech on three microphones: 0, +6 and -4 samples, 0, -5 and -12 dB."""
    speech_N = read_audio(SPEECH / name)[0].numpy()
    return np.stack([speech_N, 0.56 * np.roll(speech_N, 6), 0.25 * np.roll(speech_N, -4)]).astype(np.float32)


def lag_and_level(audio_MN: np.ndarray, channel: int) -> tuple[int, float]:
    n_fft = 2 ** int(np.ceil(np.log2(2 * audio_MN.shape[1])))
    cross = np.fft.rfft(audio_MN[channel], n_fft) * np.fft.rfft(audio_MN[0], n_fft).conj()
    peak = int(np.argmax(np.fft.irfft(cross)))
    return peak if peak < n_fft // 2 else peak - n_fft, 10 * np.log10(
        np.sum(audio_MN[channel] ** 2) / np.sum(audio_MN[0] ** 2)
    )


def pitch_hz(audio_N: np.ndarray) -> float:
    """Median pitch of voiced frames, by cepstrum (not what the code under test uses)."""
    pitches = []
    for start in range(0, len(audio_N) - 1024, 256):
        frame_N = audio_N[start : start + 1024] * np.hanning(1024)
        cepstrum = np.fft.irfft(np.log(np.abs(np.fft.rfft(frame_N, 4096)) + 1e-3))
        peak = 40 + int(np.argmax(cepstrum[40:290]))
        if cepstrum[peak] > 0.12:
            pitches.append(16_000 / peak)
    return float(np.median(pitches))


@pytest.mark.parametrize("tempo", [0.5, 0.8, 1.5, 2.0])
def test_tempo_changes_length_and_nothing_between_channels(tempo: float) -> None:
    before_MN = array_recording()
    after_MN = stretch(before_MN, tempo)
    assert after_MN.shape == (3, round(before_MN.shape[1] / tempo)) and after_MN.dtype == np.float32
    for channel, (lag, level) in {1: (6, -5.04), 2: (-4, -12.04)}.items():
        found_lag, found_level = lag_and_level(after_MN, channel)
        assert found_lag == lag and found_level == pytest.approx(level, abs=0.15)
    assert pitch_hz(after_MN[0]) == pytest.approx(pitch_hz(before_MN[0]), rel=0.04)
    levels = [10 * np.log10(np.mean(x_MN[0] ** 2)) for x_MN in (before_MN, after_MN)]
    assert levels[0] == pytest.approx(levels[1], abs=1.0)


@pytest.mark.parametrize("name", ["flite_rms_4579.flac", "flite_slt_f892.flac"])
@pytest.mark.parametrize("semitones", [-5.0, -3.0, 3.0, 5.0])
def test_pitch_changes_pitch_and_nothing_between_channels(name: str, semitones: float) -> None:
    before_MN = array_recording(name)
    after_MN = shift_pitch(before_MN, semitones)
    assert after_MN.shape == before_MN.shape and np.isfinite(after_MN).all()
    for channel, (lag, level) in {1: (6, -5.04), 2: (-4, -12.04)}.items():
        found_lag, found_level = lag_and_level(after_MN, channel)
        assert found_lag == lag and found_level == pytest.approx(level, abs=0.3)
    found = 12 * np.log2(pitch_hz(after_MN[0]) / pitch_hz(before_MN[0]))
    assert found == pytest.approx(semitones, abs=0.8)


def test_unchanged_is_nearly_the_same() -> None:
    before_MN = array_recording()
    for after_MN in (stretch(before_MN, 1.0), shift_pitch(before_MN, 0.0)):
        error = np.mean((after_MN - before_MN)[:, 800:-800] ** 2) / np.mean(before_MN**2)
        assert error < 0.01


@pytest.mark.parametrize("samples", [1, 100, 5000])
def test_short_and_silent_recordings(samples: int) -> None:
    silent_MN = np.zeros((2, samples), np.float32)
    assert stretch(silent_MN, 2.0).shape == (2, max(round(samples / 2), 1))
    assert not shift_pitch(silent_MN, 4.0).any() and shift_pitch(silent_MN, 4.0).shape == (2, samples)


def test_out_of_range_is_refused() -> None:
    with pytest.raises(ValueError, match=r"tempo is 9"):
        stretch(np.zeros((1, 10), np.float32), 9)
    with pytest.raises(ValueError, match="13 semitones"):
        shift_pitch(np.zeros((1, 10), np.float32), 13)
