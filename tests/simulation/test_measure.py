"""Measures on responses whose values are known."""

import numpy as np
import pytest

from wearllama.audio.array import load_array
from wearllama.audio.beamforming import design_beam
from wearllama.simulation.measure import (
    band_energy,
    beam_ratio_db,
    delays_s,
    direct_sound,
    drr_db,
    first_arrival,
    levels_db,
    octave,
    reverberation_s,
)

ARRAY = load_array("glasses5")


def pulses(
    delays: list[float], gains: list[float], taps: int = 4000, tail: float = 0.0, rt60: float = 0.3
) -> np.ndarray:
    rng = np.random.default_rng(0)
    time_K = np.arange(taps)
    decay_K = np.where(time_K > 110, 10 ** (-3 * (time_K - 110) / 16_000 / rt60), 0.0)
    window_K = np.cos(np.clip(time_K[:, None] - np.array(delays), -20, 20).T * np.pi / 41) ** 2
    rir_MK = np.sinc(time_K - np.array(delays)[:, None]) * window_K * np.array(gains)[:, None]
    return rir_MK + tail * rng.standard_normal((len(delays), taps)) * decay_K


def test_arrivals_delays_and_levels_are_found() -> None:
    rir_MK = pulses([60.0, 58.25, 66.5], [1.0, 0.5, 0.25], tail=0.005)
    assert first_arrival(rir_MK[1]) == pytest.approx(58.25, abs=0.07)
    np.testing.assert_allclose(delays_s(rir_MK, 0) * 16_000, [0.0, -1.75, 6.5], atol=0.1)
    np.testing.assert_allclose(levels_db(rir_MK, 0).mean(axis=1), [0.0, -6.02, -12.04], atol=0.4)
    assert not direct_sound(rir_MK, 0)[:, 120:].any()


def test_an_early_reflection_is_not_the_arrival() -> None:
    rir_K = pulses([60.0], [0.7])[0] + pulses([100.0], [1.0])[0]
    assert first_arrival(rir_K) == pytest.approx(60.0, abs=0.07)


def test_direct_to_reverberant_ratio_is_that_of_the_parts() -> None:
    rir_MK = pulses([60.0, 62.0], [1.0, 0.5], tail=0.01)
    late = np.sum(rir_MK[:, 111:] ** 2, axis=1)
    np.testing.assert_allclose(drr_db(rir_MK, 0), 10 * np.log10(np.array([1.0, 0.25]) / late), atol=0.3)


@pytest.mark.parametrize("rt60", [0.15, 0.3])
def test_reverberation_time_is_found_per_octave(rt60: float) -> None:
    rir_K = pulses([60.0], [1.0], taps=8000, tail=0.05, rt60=rt60)[0]
    assert reverberation_s(rir_K) == pytest.approx(rt60, rel=0.15)
    assert reverberation_s(rir_K, octave_hz=None, low_db=-35.0) == pytest.approx(rt60, rel=0.08)
    with pytest.raises(ValueError, match="at its end"):
        reverberation_s(rir_K[:1200], octave_hz=None)


def test_bands_and_octaves_hold_what_lies_in_them() -> None:
    tone_K = np.sin(2 * np.pi * 700 * np.arange(8000) / 16_000)
    energy_O = band_energy(tone_K[None])[0]
    assert energy_O[1] > 100 * np.delete(energy_O, 1).max()
    assert np.sum(octave(tone_K, 4000.0)[500:-500] ** 2) < 1e-3 * np.sum(tone_K**2)


def test_the_beam_leaves_own_voice_and_weakens_one_microphone_alone() -> None:
    beam = design_beam(ARRAY)
    rng = np.random.default_rng(1)
    noise_MK = rng.standard_normal((5, 4000))
    assert np.all(np.isfinite(beam_ratio_db(noise_MK, beam, 0)))
    nothing_MK = np.zeros((5, 4000))
    nothing_MK[0, 100] = 1.0
    only = beam_ratio_db(nothing_MK, beam, 0)
    spectrum = np.abs(np.fft.rfft(beam.fir_MK[0], 8192))
    hz = np.fft.rfftfreq(8192, 1 / 16_000)
    band = (hz >= 500) & (hz < 1000)
    assert only[1] == pytest.approx(10 * np.log10(np.mean(spectrum[band] ** 2)), abs=0.2)
