"""Adaptive MVDR: torchaudio's weights as the oracle, and what it does to a talker beside the wearer."""

import numpy as np
import pytest
import torch
import torchaudio.functional as oracle
from scipy.signal import lfilter

from wearllama.audio.adaptive import AdaptiveConfig, adaptive_mvdr, apply_weights, mvdr_weights
from wearllama.audio.array import load_array
from wearllama.audio.beamforming import apply_beam, design_beam
from wearllama.audio.head import HEAD_CENTRE, diffuse_covariance, mouth_transfer, point_transfer

GLASSES = load_array("glasses5")
FREQS_F = np.linspace(0, 8000, 257)


def _covariance() -> torch.Tensor:
    rng = np.random.default_rng(0)
    draws_FMK = rng.standard_normal((257, 5, 40)) + 1j * rng.standard_normal((257, 5, 40))
    return torch.from_numpy(draws_FMK @ draws_FMK.conj().swapaxes(1, 2) / 40)


def test_weights_are_torchaudios() -> None:
    noise_FMM = _covariance()
    transfer_FM = torch.from_numpy(mouth_transfer(GLASSES, FREQS_F))
    ours_FM = mvdr_weights(noise_FMM, transfer_FM)
    by_transfer = oracle.mvdr_weights_rtf(transfer_FM, noise_FMM, reference_channel=0, diagonal_loading=False)
    speech_FMM = transfer_FM[:, :, None] * transfer_FM[:, None, :].conj()
    by_souden = oracle.mvdr_weights_souden(speech_FMM, noise_FMM, 0, diagonal_loading=False)
    torch.testing.assert_close(ours_FM, by_transfer, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(ours_FM, by_souden, rtol=1e-4, atol=1e-5)


def test_own_voice_passes_whatever_the_noise_is() -> None:
    transfer_FM = torch.from_numpy(mouth_transfer(GLASSES, FREQS_F))
    weights_FM = mvdr_weights(_covariance(), transfer_FM, 0.1)
    torch.testing.assert_close((weights_FM.conj() * transfer_FM).sum(-1), torch.ones(257, dtype=torch.complex128))


def _through(transfer_FM: np.ndarray, signal_N: np.ndarray) -> np.ndarray:
    return np.fft.irfft(np.fft.rfft(signal_N)[:, None] * transfer_FM, axis=0).T


def _scene() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Own voice in the second half, and another talker at 90 degrees all the time, each alone, then together."""
    rng = np.random.default_rng(1)
    samples = 4 * 16_000
    freqs_F = np.linspace(0, 8000, samples // 2 + 1)
    voice_N, other_N = lfilter([1.0], [1.0, -0.9], rng.standard_normal((2, samples)))
    voice_N[: samples // 2] = 0.0
    side_3 = np.asarray(HEAD_CENTRE) + np.array([1.0, 0.0, 0.0])
    side_FM = point_transfer(side_3, GLASSES.positions_M3, freqs_F)
    own_MN = _through(mouth_transfer(GLASSES, freqs_F), voice_N)
    other_MN = 0.3 * _through(side_FM / side_FM[:, :1], other_N)
    return torch.from_numpy(own_MN).float(), torch.from_numpy(other_MN).float(), torch.from_numpy(own_MN + other_MN)


def test_it_rejects_a_talker_beyond_the_fixed_beam_and_spares_the_wearer() -> None:
    own_MN, other_MN, both_MN = _scene()
    output = adaptive_mvdr(both_MN, GLASSES)
    later = slice(int(2.5 * 16_000), int(3.9 * 16_000))

    def level_db(signal_N: torch.Tensor) -> float:
        return float(10 * torch.log10(signal_N[later].square().mean()))

    own_db = level_db(apply_weights(own_MN, output.weights_TFM)) - level_db(own_MN[0])
    other_db = level_db(apply_weights(other_MN, output.weights_TFM)) - level_db(other_MN[0])
    fixed_db = level_db(apply_beam(other_MN, design_beam(GLASSES))) - level_db(other_MN[0])
    assert abs(own_db) < 0.5
    assert other_db < fixed_db - 5.0
    frames = output.speaks_T.shape[0]
    assert not output.speaks_T[4 : frames // 2 - 2].any() and output.speaks_T[frames // 2 + 2 :].float().mean() > 0.95


def test_weights_of_one_give_c0_back_aligned() -> None:
    audio_MN = torch.randn(5, 5000)
    weights_TFM = torch.zeros(20, 257, 5, dtype=torch.complex64)
    weights_TFM[..., 0] = 1.0
    torch.testing.assert_close(apply_weights(audio_MN, weights_TFM), audio_MN[0], atol=1e-5, rtol=0)


def test_silence_gives_silence_and_bad_input_is_refused() -> None:
    output = adaptive_mvdr(torch.zeros(5, 4000), GLASSES)
    assert torch.equal(output.cx_N, torch.zeros(4000)) and torch.isfinite(torch.view_as_real(output.weights_TFM)).all()
    with pytest.raises(ValueError, match=r"wanted \(5, samples\)"):
        adaptive_mvdr(torch.zeros(4, 4000), GLASSES)
    with pytest.raises(ValueError, match="n_fft 63"):
        AdaptiveConfig(n_fft=63)


def test_the_diffuse_start_is_the_fixed_design() -> None:
    """Before anything is heard the weights are those of a diffuse field."""
    output = adaptive_mvdr(torch.randn(5, 2000), GLASSES)
    diffuse_FMM = torch.from_numpy(diffuse_covariance(GLASSES.positions_M3, FREQS_F)).to(torch.complex64)
    transfer_FM = torch.from_numpy(mouth_transfer(GLASSES, FREQS_F)).to(torch.complex64)
    torch.testing.assert_close(
        output.weights_TFM[0], mvdr_weights(diffuse_FMM, transfer_FM, 0.01), atol=1e-2, rtol=0.02
    )
