"""Measured responses as transfers: known delays and levels come back, and beams can be designed on them."""

from pathlib import Path

import numpy as np
import pytest
import torch

from wearllama.audio.array import ArrayGeometry
from wearllama.audio.beam_metrics import band_means, diffuse_gain_db, gains_under_mismatch_db, white_noise_gain_db
from wearllama.audio.beamforming import design_beam, design_freqs_hz
from wearllama.audio.io import write_audio
from wearllama.audio.measured import measured_field, read_directions, read_mouth, transfer_of

FREQS_F = design_freqs_hz()
POSITIONS = ((0.0, 0.0, 0.0), (0.06, 0.0, 0.0), (-0.06, 0.0, 0.0))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three microphones in a free field, measured on channels 2, 0, 1 of four; own voice near microphone 0."""
    angle_D = np.deg2rad(np.arange(0, 360, 10))
    freqs_F = np.linspace(0, 8000, 65)
    response_DKM = np.zeros((36, 128, 4))
    for mic, (x, _, _) in enumerate(POSITIONS):
        delay_D1 = 40 / 16_000 - x * np.sin(angle_D)[:, None] / 343.0
        response_DKM[:, :, (2, 0, 1)[mic]] = np.fft.irfft(np.exp(-2j * np.pi * freqs_F * delay_D1), 128)
    np.savez(tmp_path / "around.npz", responses=response_DKM, azimuth_deg=np.arange(0, 360, 10), sample_rate=[16_000])
    mouth_KM = np.zeros((4, 3000))
    mouth_KM[2, 100], mouth_KM[0, 103], mouth_KM[1, 103] = 0.8, 0.4, 0.4
    mouth_KM[:3, 1000] = 0.3  # a wall
    write_audio(tmp_path / "mouth.wav", torch.from_numpy(mouth_KM).float(), subtype="FLOAT")
    return tmp_path


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_own_voice_is_relative_to_c0_and_without_the_room(folder: Path) -> None:
    field = measured_field(
        read_mouth(folder / "mouth.wav", (2, 0, 1)), read_directions(folder / "around.npz", (2, 0, 1)), FREQS_F
    )
    np.testing.assert_allclose(np.abs(field.target_FM), np.broadcast_to([1.0, 0.5, 0.5], (513, 3)), rtol=1e-6)
    expected_F = np.exp(-2j * np.pi * FREQS_F * 3 / 16_000)
    np.testing.assert_allclose(field.target_FM[:, 1] / 0.5, expected_F, atol=1e-6)
    powers_FM = np.einsum("fmm->fm", field.diffuse_FMM).real
    np.testing.assert_allclose(powers_FM[8:400], 1.0, atol=0.02)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_beam_on_measured_responses_beats_delay_and_sum_and_mismatch_costs(folder: Path) -> None:
    around = read_directions(folder / "around.npz", (2, 0, 1))
    field = measured_field(read_mouth(folder / "mouth.wav", (2, 0, 1)), around, FREQS_F)
    array = ArrayGeometry(name="three", positions=POSITIONS)
    beam = design_beam(
        array, mouth_transfer_FM=field.target_FM, diffuse_FMM=field.diffuse_FMM, wng_floor_db=-6.0, taps=255
    )
    gain = band_means(FREQS_F, diffuse_gain_db(beam, field))
    white, worse = gains_under_mismatch_db(beam, field, gain_sd_db=2.0, phase_deg=10.0, draws=50)
    assert gain[0] > 3.0 and white_noise_gain_db(beam, field)[10:480].min() > -6.5
    assert band_means(FREQS_F, worse.mean(axis=0))[0] < gain[0] - 0.5 and white.shape == worse.shape == (50, 513)


def test_transfers_are_the_fourier_transform() -> None:
    response_KM = np.random.default_rng(0).standard_normal((64, 3))
    freqs_F = np.fft.rfftfreq(64, 1 / 16_000)
    np.testing.assert_allclose(transfer_of(response_KM, freqs_F), np.fft.rfft(response_KM, axis=0), atol=1e-9)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_what_does_not_fit_is_named(folder: Path) -> None:
    with pytest.raises(ValueError, match=r"channels \[0, 7\].*0\.\.3"):
        read_mouth(folder / "mouth.wav", (0, 7))
    np.savez(folder / "bad.npz", responses=np.zeros((3, 4, 5)))
    with pytest.raises(ValueError, match="azimuth_deg"):
        read_directions(folder / "bad.npz", (0,))
    np.savez(folder / "rate.npz", responses=np.zeros((3, 4, 5)), azimuth_deg=[0, 1, 2], sample_rate=[48_000])
    with pytest.raises(ValueError, match="48000 Hz, wanted 16000"):
        read_directions(folder / "rate.npz", (0,))
