"""The front end: same frames alone and padded, level-sensitive, on the time base, on Slaney's scale."""

import numpy as np
import pytest
import torch
import torchaudio

from wearllama.audio.frontend import LogMel, LogMelConfig, mel_power, mel_weights
from wearllama.audio.timebase import num_mel_frames


@pytest.mark.parametrize("samples", [1, 80, 399, 400, 401, 1280, 4321])
def test_alone_equals_padded(samples: int) -> None:
    audio_N = torch.randn(samples) * 0.05
    frames = num_mel_frames(samples)
    alone_TF = LogMel()(audio_N)
    padded_BTF = LogMel()(torch.stack([torch.cat([audio_N, torch.zeros(5000)]), torch.randn(samples + 5000)]))
    assert alone_TF.shape == (frames, 80)
    torch.testing.assert_close(padded_BTF[0, :frames], alone_TF, atol=1e-5, rtol=0)


def test_a_frame_sees_its_own_window_only() -> None:
    audio_N = torch.randn(4000) * 0.05
    changed_N = audio_N.clone()
    changed_N[160 * 5 + 400 :] = 0.3
    torch.testing.assert_close(LogMel()(changed_N)[:6], LogMel()(audio_N)[:6], atol=1e-5, rtol=0)
    changed_N = audio_N.clone()
    changed_N[: 160 * 6] = 0.3
    torch.testing.assert_close(LogMel()(changed_N)[6:], LogMel()(audio_N)[6:], atol=1e-5, rtol=0)


def test_level_survives() -> None:
    """10 dB less sound is the same step in every bin: nothing normalises a clip by itself."""
    audio_N = torch.randn(16_000) * 0.05
    step = (LogMel()(audio_N) - LogMel()(audio_N * 10**-0.5)) * LogMelConfig().std[0]
    torch.testing.assert_close(step, torch.full_like(step, np.log(10.0)), atol=0.02, rtol=0)


def test_power_matches_torchaudio() -> None:
    """Oracle: torchaudio's spectrogram and Slaney filters on the same windows."""
    audio_N = torch.randn(16_000) * 0.05
    frames_TW = audio_N.unfold(0, 400, 160) * torch.hann_window(400)
    power_TK = torch.fft.rfft(frames_TW, 512).abs() ** 2
    filters_KF = torchaudio.functional.melscale_fbanks(257, 0.0, 8000.0, 80, 16_000, norm=None, mel_scale="slaney")
    expected_TF = power_TK @ filters_KF
    torch.testing.assert_close(
        mel_power(audio_N, LogMelConfig())[: len(expected_TF)], expected_TF, rtol=1e-3, atol=1e-4
    )


def test_no_filter_is_empty() -> None:
    assert mel_weights(LogMelConfig()).sum(axis=0).min() > 0.5


def test_silence_is_finite_and_the_statistics_centre_speech_levels() -> None:
    assert LogMel()(torch.zeros(8000)).isfinite().all()
    generator = torch.Generator().manual_seed(0)
    features = LogMel()(torch.randn(16_000, generator=generator) * 10 ** (-40 / 20))
    assert -1.5 < features.mean() < 1.5


def test_float32_whatever_surrounds_it() -> None:
    module = LogMel().to(torch.bfloat16)
    audio_N = torch.randn(8000) * 0.05
    with torch.autocast("cpu", dtype=torch.bfloat16):
        features = module(audio_N)
    assert features.dtype == torch.float32
    assert torch.equal(features, LogMel()(audio_N))
    assert not module.state_dict()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"n_fft": 256}, "n_fft is 256"),
        ({"f_max_hz": 9000.0}, "0..8000"),
        ({"mean": (0.0, 1.0)}, "mean has 2 values, wanted 1 or n_mels = 80"),
        ({"n_mels": 40}, "mean has 80 values"),
        ({"std": (0.0,)}, "above zero"),
        ({"log_floor": 0.0}, "log_floor"),
    ],
)
def test_config_refusals(fields: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LogMelConfig(**fields)


def test_lists_from_json_work() -> None:
    assert LogMelConfig(mean=[0.0], std=[1.0]) == LogMelConfig(mean=(0.0,), std=(1.0,))


def test_integer_samples_are_refused() -> None:
    with pytest.raises(ValueError, match="float samples"):
        LogMel()(torch.zeros(400, dtype=torch.int16))
    with pytest.raises(ValueError, match="at least one sample"):
        LogMel()(torch.zeros(0))
