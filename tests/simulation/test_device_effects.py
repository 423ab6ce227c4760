import numpy as np
import pytest
import scipy.fft

from wearllama.simulation.device import (
    DeviceConfig,
    DeviceDraw,
    add_self_noise,
    draw_device,
    limit_and_quantise,
)


def test_phase_and_gain_are_the_drawn_ones_over_frequency() -> None:
    phase = np.deg2rad([0.0, 5.0, -5.0])
    draw = DeviceDraw(
        gain_M=np.array([1.0, 1.1, 0.9]), phase_rad_M=phase, self_noise_db=None,
        dead_M=np.zeros(3, bool), cover_db_M=np.zeros(3),
    )  # fmt: skip
    response_MF = draw.response_MF(4096)
    band = slice(int(300 / 8000 * 2048), int(7500 / 8000 * 2048))
    np.testing.assert_allclose(np.angle(response_MF[:, band]), np.broadcast_to(phase[:, None], (3, 1844)), atol=0.012)
    np.testing.assert_allclose(np.abs(response_MF[:, band]), np.array([[1.0], [1.1], [0.9]]) * np.ones(1844), rtol=0.01)
    kernel = scipy.fft.irfft(response_MF[1], 4096)
    assert np.abs(kernel[32:-31]).max() < 1e-6


def test_draws_keep_the_reference_in_phase_and_repeat() -> None:
    config = DeviceConfig()
    first = draw_device(config, 5, 2, np.random.default_rng(1))
    again = draw_device(config, 5, 2, np.random.default_rng(1))
    assert first.phase_rad_M[2] == 0 and np.abs(first.phase_rad_M).max() <= np.deg2rad(5)
    np.testing.assert_array_equal(first.gain_M, again.gain_M)
    assert 50 <= first.self_noise_db <= 55
    gains = [draw_device(config, 5, 0, np.random.default_rng(seed)).gain_M for seed in range(300)]
    assert 20 * np.log10(gains).std() == pytest.approx(1.0, abs=0.1)


def test_noise_is_independent_per_microphone_and_as_loud_as_asked() -> None:
    audio_MN = np.zeros((3, 16000), np.float32)
    add_self_noise(audio_MN, 0.01, np.random.default_rng(0))
    assert np.sqrt((audio_MN**2).mean(axis=1)) == pytest.approx([0.01] * 3, rel=0.03)
    assert np.abs(np.corrcoef(audio_MN) - np.eye(3)).max() < 0.05


def test_clipping_and_sixteen_bits() -> None:
    audio_MN = np.array([[0.3, -2.0, 2.0, 1e-5]], np.float32)
    out_MN = limit_and_quantise(audio_MN.copy(), 0.9, True)
    assert out_MN[0, 1] == pytest.approx(-0.9, abs=1e-4) and out_MN[0, 2] == pytest.approx(0.9, abs=1e-4)
    assert np.array_equal(out_MN * 32768, np.rint(out_MN * 32768)) and out_MN[0, 3] == 0
    assert limit_and_quantise(np.array([[5.0]], np.float32), 1.0, True)[0, 0] == np.float32(32767 / 32768)
    with pytest.raises(ValueError, match="clip"):
        DeviceConfig(clip=1.5)


def test_failures_leave_the_other_draws_alone() -> None:
    plain, failing = (
        draw_device(config, 5, 0, np.random.default_rng(7))
        for config in (DeviceConfig(), DeviceConfig(dead=(3,), covered=(1,), clip=(0.85, 1.0)))
    )
    np.testing.assert_array_equal(plain.gain_M, failing.gain_M)
    assert plain.self_noise_db == failing.self_noise_db and plain.failures() == {}
    assert failing.failures() == {"dead": [3], "covered": [1]} and 0.85 <= failing.clip <= 1.0 == plain.clip
    after = [np.random.default_rng(7) for _ in range(2)]
    for rng, config in zip(after, (DeviceConfig(), DeviceConfig(dead_probability=0.5)), strict=True):
        draw_device(config, 5, 0, rng)
    assert after[0].uniform() == after[1].uniform()


def test_failures_are_as_frequent_as_asked_and_one_microphone_always_works() -> None:
    config = DeviceConfig(dead_probability=0.3, covered_probability=0.2)
    draws = [draw_device(config, 5, 0, np.random.default_rng(seed)) for seed in range(400)]
    assert np.mean([draw.dead_M for draw in draws]) == pytest.approx(0.3, abs=0.04)
    assert np.mean([draw.cover_db_M > 0 for draw in draws]) == pytest.approx(0.2, abs=0.04)
    certain = [draw_device(DeviceConfig(dead_probability=1.0), 3, 0, np.random.default_rng(s)) for s in range(20)]
    assert all(draw.dead_M.sum() == 2 for draw in certain)
    with pytest.raises(ValueError, match="every microphone is dead"):
        draw_device(DeviceConfig(dead=(0, 1)), 2, 0, np.random.default_rng(0))
    with pytest.raises(ValueError, match=r"\[7\] fail, the array has 0\.\.4"):
        draw_device(DeviceConfig(dead=(7,)), 5, 0, np.random.default_rng(0))


def test_a_cover_takes_high_frequencies_and_stays_within_its_taps() -> None:
    draw = draw_device(
        DeviceConfig(covered=(2,), cover_db=20.0, phase_deg=0, gain_sd_db=0), 3, 0, np.random.default_rng(0)
    )
    response_MF = draw.response_MF(4096)
    freqs_F = np.linspace(0, 8000, 2049)
    loss_F = -20 * np.log10(np.abs(response_MF[2]))
    np.testing.assert_allclose(loss_F[(freqs_F > 1500) & (freqs_F < 7500)], 20.0, atol=3.0)
    assert loss_F[freqs_F < 100].max() < 4.0
    np.testing.assert_allclose(response_MF[1], 1.0, atol=1e-6)
    assert np.abs(scipy.fft.irfft(response_MF[2], 4096)[32:-31]).max() < 1e-6
