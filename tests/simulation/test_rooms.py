import numpy as np
import pyroomacoustics as pra
import pytest
import scipy.fft

from wearllama.audio.array import load_array
from wearllama.audio.head import point_transfer
from wearllama.simulation.heads import HeadResponses, plane_wave_transfer, sphere_directions
from wearllama.simulation.images import fractional_impulses
from wearllama.simulation.rooms import Emitter, Response, render_response
from wearllama.simulation.spaces import RoomSpec, band_weights
from wearllama.simulation.tails import diffuse_tail, draw_field

ARRAY = load_array("glasses5")
HEAD = HeadResponses(ARRAY)
AHEAD = np.array([0.0, 0.0, 1.0])


def room(rt60: float = 0.3) -> RoomSpec:
    return RoomSpec(size_m=(5.0, 4.2, 2.7), rt60_s=rt60, head_m=(2.0, 1.9, 1.4), yaw_deg=30.0)


def respond(source: np.ndarray, rt60: float = 0.3, facing: np.ndarray | None = -AHEAD, own: bool = False) -> Response:
    emitter = Emitter(position_3=source, facing_3=facing, own_voice=own)
    return render_response(room(rt60), HEAD, emitter, taps=6400, pre_samples=32, rng=np.random.default_rng(1))


def level_db(rir_MK: np.ndarray, low_hz: float = 150, high_hz: float = 2000) -> np.ndarray:
    """Direct sound per microphone: 3 ms around the first arrival."""
    power_MF = np.abs(scipy.fft.rfft(rir_MK[:, :72], 1024)) ** 2
    hz = np.arange(513) * 16000 / 1024
    return 10 * np.log10(power_MF[:, (hz > low_hz) & (hz < high_hz)].mean(axis=1))


def test_own_voice_stands_over_others_as_measured() -> None:
    own = respond(ARRAY.mouth_3, facing=AHEAD, own=True).rir_MK
    for distance, measured in ((0.5, -18), (1.0, -24), (2.0, -30)):
        found = level_db(respond(AHEAD * distance).rir_MK)[0] - level_db(own)[0]
        assert found == pytest.approx(measured, abs=1.5)
    falls = level_db(own) - level_db(own)[0]
    assert falls[1:3] == pytest.approx([-7, -7], abs=1.5) and falls[3:] == pytest.approx([-11, -11], abs=2)


def test_direct_to_reverberant_ratio_is_that_of_glasses() -> None:
    own = respond(ARRAY.mouth_3, 0.5, facing=AHEAD, own=True)
    assert 18 < own.drr_db < 26
    assert 0 < respond(AHEAD, 0.5).drr_db < 8 > respond(AHEAD * 2, 0.5).drr_db


def test_first_arrival_at_c0_stands_where_promised() -> None:
    for source in (AHEAD, -AHEAD * 2, np.array([1.0, 0.2, 0.0])):
        rir_MK = respond(source, 0.15).rir_MK
        fine = np.argmax(np.abs(scipy.fft.irfft(scipy.fft.rfft(rir_MK[0, :48]), 384))) / 8
        assert fine == pytest.approx(32, abs=0.6)
    assert np.argmax(np.abs(respond(np.array([1.0, 0.0, 0.0]), 0.15).rir_MK[1, :100])) < 32


@pytest.mark.parametrize("rt60", [0.2, 0.4])
def test_decay_is_the_asked_one(rt60: float) -> None:
    tail_N = respond(np.array([2.0, 0.0, 0.5]), rt60, facing=None).rir_MK[0].astype(float)
    curve = 10 * np.log10(np.cumsum(tail_N[::-1] ** 2)[::-1] / np.sum(tail_N**2))
    seconds = (np.argmax(curve < -25) - np.argmax(curve < -5)) / 16000 * 3
    assert seconds == pytest.approx(rt60, rel=0.2)


def test_energy_agrees_with_the_librarys_own_simulation() -> None:
    """Reverberant energy of an even source far from everything: ours (tail from the volume) against full images."""
    spec = RoomSpec(size_m=(6.0, 5.0, 3.5), rt60_s=0.25, head_m=(2.0, 2.0, 1.5), yaw_deg=0.0)
    walls = pra.Material({"coeffs": list(spec.absorption_B()), "center_freqs": [125, 250, 500, 1000, 2000, 4000, 8000]})
    box = pra.ShoeBox(list(spec.size_m), fs=16000, materials=walls, max_order=24, air_absorption=True)
    source = np.array([0.4, 0.1, 2.4])
    box.add_source(list(np.array(spec.head_m) + spec.to_room(source)))
    box.add_microphone(list(spec.head_m))
    box.compute_rir()
    direct = np.linalg.norm(source) * np.max(np.abs(box.rir[0][0][:300]))
    theirs = float(np.sum(np.square(box.rir[0][0]))) / direct**2  # the library's own unit of level
    even = Emitter(position_3=source)
    rir_MK = render_response(spec, HEAD, even, taps=6400, pre_samples=32, rng=np.random.default_rng(0)).rir_MK
    assert 10 * np.log10(float(np.sum(rir_MK[0] ** 2)) / theirs) == pytest.approx(1.5, abs=2.5)  # a head adds some


def test_diffuse_tail_is_coherent_between_microphones_at_low_frequency() -> None:
    field = draw_field(room(), HEAD, 16384, np.random.default_rng(0))
    tail_MK = diffuse_tail(field, room(), HEAD, np.ones(7), 16384, 0.0)[:, :4000]
    spectra = scipy.fft.rfft(tail_MK[:, : 40 * 100].reshape(5, 40, 100))
    cross = np.abs(np.mean(spectra[0] * spectra[1].conj(), axis=0))
    coherence = cross / np.sqrt(np.mean(np.abs(spectra[0]) ** 2, axis=0) * np.mean(np.abs(spectra[1]) ** 2, axis=0))
    assert coherence[2] > 0.85 and np.mean(coherence[25:45]) < 0.5


def test_plane_waves_are_distant_point_sources() -> None:
    freqs_F = np.array([200.0, 1000.0, 4000.0])
    direction = sphere_directions(16)[5]
    far = point_transfer(direction * 200.0, ARRAY.positions_M3, freqs_F).T * 200.0
    far = far * np.exp(2j * np.pi * freqs_F * 200.0 / 343.0)
    np.testing.assert_allclose(plane_wave_transfer(direction[None], ARRAY.positions_M3, freqs_F)[0], far, atol=0.03)


def test_fractional_impulses_and_band_weights() -> None:
    pulse_K = fractional_impulses(np.array([40.25]), np.ones((1, 1)), np.zeros(1, int), 1, 100)[0, 0]
    phase_F = np.unwrap(np.angle(scipy.fft.rfft(pulse_K)))[5:40]
    delay = -np.diff(phase_F).mean() / (2 * np.pi / 100)
    assert delay == pytest.approx(40.25, abs=0.01) and np.sum(pulse_K) == pytest.approx(1, abs=0.01)
    np.testing.assert_allclose(band_weights(512).sum(axis=0), 1.0)


def test_rooms_refuse_the_impossible() -> None:
    with pytest.raises(ValueError, match="outside the room"):
        RoomSpec(size_m=(3, 3, 2.5), rt60_s=0.3, head_m=(4, 1, 1), yaw_deg=0)
