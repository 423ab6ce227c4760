"""The beam: 0 dB towards the mouth, bystanders weaker, the white-noise bound kept, c_x aligned with c_0."""

from dataclasses import replace
from json import dumps, loads

import numpy as np
import pytest
import torch
from scipy.signal import fftconvolve

from wearllama.audio.array import ArrayGeometry, load_array
from wearllama.audio.beam_metrics import diffuse_gain_db, own_voice_field, white_noise_gain_db
from wearllama.audio.beamforming import (
    Beam,
    apply_beam,
    beam_response,
    delay_and_sum,
    design_beam,
    design_freqs_hz,
    select_channels,
)
from wearllama.audio.head import HEAD_CENTRE, mouth_transfer, point_transfer

GLASSES = load_array("glasses5")
CENTRE_3 = np.asarray(HEAD_CENTRE)
BEAM = design_beam(GLASSES)
FREQS_F = np.linspace(100, 7800, 200)
FIELD = own_voice_field(GLASSES, FREQS_F)


def _band(low_hz: float, high_hz: float) -> np.ndarray:
    return (low_hz <= FREQS_F) & (high_hz > FREQS_F)


def _ratio_db(beam: Beam, array: ArrayGeometry, azimuth_deg: float, band_F: np.ndarray) -> float:
    """|c_x| / |c_0| of a talker one metre from the head."""
    angle = np.radians(azimuth_deg)
    source = CENTRE_3 + np.array([np.sin(angle), 0.0, np.cos(angle)])
    transfer_FM = point_transfer(source, array.positions_M3, FREQS_F)
    beam_F = np.abs(beam_response(beam, transfer_FM, FREQS_F)) ** 2
    return float(10 * np.log10(beam_F[band_F].mean() / (np.abs(transfer_FM[:, array.reference]) ** 2)[band_F].mean()))


@pytest.mark.parametrize("name", ["glasses5", "aria7", "easycom4"])
@pytest.mark.parametrize("design", [design_beam, delay_and_sum])
def test_own_voice_passes_unchanged(name: str, design) -> None:
    array = load_array(name)
    response_F = beam_response(design(array), mouth_transfer(array, FREQS_F), FREQS_F)
    assert np.abs(20 * np.log10(np.abs(response_F))).max() < 0.5
    assert np.abs(np.angle(response_F)).max() < 0.1


@pytest.mark.parametrize("floor_db", [-6.0, 0.0, 3.0])
def test_white_noise_bound_is_kept_and_used(floor_db: float) -> None:
    gain_F = white_noise_gain_db(design_beam(GLASSES, wng_floor_db=floor_db), FIELD)
    assert gain_F.min() > floor_db - 0.1
    assert gain_F.min() < floor_db + 1.0


def test_a_looser_bound_buys_directivity() -> None:
    low_F = _band(150, 1000)
    gains = [diffuse_gain_db(design_beam(GLASSES, wng_floor_db=floor), FIELD)[low_F].mean() for floor in (0, -6)]
    assert gains[1] > gains[0] + 2.0


def test_gain_over_the_nose_microphone_and_over_delay_and_sum() -> None:
    gain_F = diffuse_gain_db(BEAM, FIELD)
    simple_F = diffuse_gain_db(delay_and_sum(GLASSES), FIELD)
    for band_F, least_db in [(_band(150, 500), 9.0), (_band(500, 1000), 6.0), (_band(1000, 2000), 4.0)]:
        assert gain_F[band_F].mean() > least_db
        assert gain_F[band_F].mean() > simple_F[band_F].mean() + 3.0


@pytest.mark.parametrize("azimuth_deg", range(0, 360, 45))
def test_bystanders_are_weaker_in_the_beam(azimuth_deg: int) -> None:
    assert _ratio_db(BEAM, GLASSES, azimuth_deg, _band(150, 500)) < -5.5
    assert _ratio_db(BEAM, GLASSES, azimuth_deg, _band(500, 1000)) < -4.0
    assert _ratio_db(BEAM, GLASSES, azimuth_deg, _band(1000, 2000)) < 0.5


def test_bystanders_on_average_keep_the_cue_up_to_2_khz() -> None:
    for (low_hz, high_hz), most_db in {(150, 500): -8.5, (500, 1000): -6.0, (1000, 2000): -2.0}.items():
        ratios = [_ratio_db(BEAM, GLASSES, azimuth, _band(low_hz, high_hz)) for azimuth in range(0, 360, 45)]
        assert np.mean(ratios) < most_db


def test_the_cue_survives_moved_microphones_and_mouth() -> None:
    """2 mm on the microphones and 8 mm on the mouth: own voice and bystander stay apart in the nominal beam."""
    generator = np.random.default_rng(0)
    for _ in range(5):
        moved = replace(
            GLASSES,
            positions=tuple(map(tuple, GLASSES.positions_M3 + generator.normal(0, 0.002, (5, 3)))),
            mouth=tuple(GLASSES.mouth_3 + generator.uniform(-0.008, 0.008, 3)),
        )
        low_F = _band(150, 1000)
        own_F = np.abs(beam_response(BEAM, mouth_transfer(moved, FREQS_F), FREQS_F)) ** 2
        own_db = 10 * np.log10(own_F[low_F].mean())
        assert abs(own_db) < 2.5
        assert np.mean([_ratio_db(BEAM, moved, azimuth, low_F) for azimuth in range(0, 360, 45)]) < own_db - 5.0


def test_applied_beam_equals_plain_convolution_and_its_delay_is_gone() -> None:
    audio_MN = torch.randn(5, 5000)
    full_N = sum(fftconvolve(audio_MN[mic].double().numpy(), BEAM.fir_MK[mic]) for mic in range(5))
    expected_N = full_N[BEAM.delay_samples :][:5000]
    np.testing.assert_allclose(apply_beam(audio_MN, BEAM).numpy(), expected_N, atol=1e-5)


def test_channels_are_aligned_for_own_voice() -> None:
    """Speech-like noise sent through the mouth's transfer: c_x is c_0, sample by sample."""
    freqs_F = np.linspace(0, 8000, 4097)
    spectrum_F = np.fft.rfft(np.random.default_rng(0).standard_normal(8192)) * (freqs_F > 100)
    audio_MN = np.fft.irfft(spectrum_F[:, None] * mouth_transfer(GLASSES, freqs_F), axis=0).T
    c0_N, cx_N = select_channels(torch.from_numpy(audio_MN), GLASSES, BEAM)
    assert c0_N.shape == cx_N.shape == (8192,)
    error_N = (c0_N - cx_N)[300:-300]
    assert error_N.square().mean() < 1e-3 * c0_N.square().mean()


@pytest.mark.parametrize("samples", [1, 80, 1872, 1873, 4000])
def test_alone_equals_batched_and_padded(samples: int) -> None:
    audio_MN = torch.randn(5, samples)
    alone_N = apply_beam(audio_MN, BEAM)
    padded_BMN = torch.stack([torch.nn.functional.pad(audio_MN, (0, 3000)), torch.randn(5, samples + 3000)])
    assert alone_N.shape == (samples,)
    torch.testing.assert_close(apply_beam(padded_BMN, BEAM)[0, :samples], alone_N, atol=1e-5, rtol=0)


def test_beam_survives_json() -> None:
    again = Beam.from_dict(loads(dumps(BEAM.to_dict())))
    assert np.array_equal(again.fir_MK, BEAM.fir_MK)
    assert (again.delay_samples, again.array) == (BEAM.delay_samples, "glasses5")


def test_given_responses_replace_the_model() -> None:
    """A source that only microphone 1 hears beside c_0: the beam must be distortionless for that transfer instead."""
    transfer_FM = np.tile(np.array([1.0, 0.5, 0.1, 0.1, 0.1], dtype=complex), (len(design_freqs_hz()), 1))
    beam = design_beam(GLASSES, mouth_transfer_FM=transfer_FM)
    response_F = beam_response(beam, transfer_FM, design_freqs_hz())
    assert np.abs(np.abs(response_F[10:-10]) - 1).max() < 0.05


def test_refusals() -> None:
    with pytest.raises(ValueError, match=r"wanted \(\.\.\., 5, samples\)"):
        apply_beam(torch.zeros(4, 100), BEAM)
    with pytest.raises(ValueError, match="found 6 channels, wanted 5 of array 'glasses5'"):
        select_channels(torch.zeros(6, 100), GLASSES, BEAM)
    with pytest.raises(ValueError, match=r"wanted \(513, 5\)"):
        design_beam(GLASSES, mouth_transfer_FM=np.ones((513, 4), dtype=complex))
    with pytest.raises(ValueError, match=r"5 microphones reach at most 6\.99"):
        design_beam(GLASSES, wng_floor_db=8.0)
    with pytest.raises(ValueError, match="odd number"):
        design_beam(GLASSES, taps=128)
    with pytest.raises(ValueError, match="delay_samples is 9"):
        Beam(fir_MK=np.zeros((5, 9), dtype=np.float32), delay_samples=9, array="x")
