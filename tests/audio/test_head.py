"""The head model against physics it must obey and measurements it was calibrated on."""

import numpy as np
import pytest
from scipy.special import eval_legendre, spherical_jn, spherical_yn

from wearllama.audio.array import load_array
from wearllama.audio.head import (
    HEAD_CENTRE,
    HEAD_RADIUS,
    SPEED_OF_SOUND,
    diffuse_covariance,
    head_transfer,
    mouth_transfer,
    point_transfer,
    voice_transfer,
)

GLASSES = load_array("glasses5")
CENTRE_3 = np.asarray(HEAD_CENTRE)


def _db(value: np.ndarray) -> np.ndarray:
    return 20 * np.log10(np.abs(value))


def test_rigid_surface() -> None:
    """The normal velocity vanishes on the sphere (slope there << slope in the free field, about k |p|)."""
    freqs_F = np.array([500.0, 3000.0])
    for direction in ([1.0, 0.0, 0.0], [0.0, 0.6, 0.8], [0.0, 0.0, -1.0]):
        points = [CENTRE_3 + np.asarray(direction) * HEAD_RADIUS * (1 + step) for step in (1e-5, 2e-4)]
        near_F, far_F = (point_transfer((0.3, -0.2, 0.3), point[None], freqs_F)[:, 0] for point in points)
        slope_F = np.abs(far_F - near_F) / (HEAD_RADIUS * 1.9e-4)
        assert (slope_F < 0.02 * 2 * np.pi * freqs_F / SPEED_OF_SOUND * np.abs(near_F) + 0.05).all()


def test_far_source_matches_the_plane_wave_series() -> None:
    """Oracle: the textbook series for a plane wave at a point on a rigid sphere."""
    freqs_F = np.array([300.0, 1000.0, 4000.0])
    ka_F1 = 2 * np.pi * freqs_F[:, None] / SPEED_OF_SOUND * HEAD_RADIUS
    orders = np.arange(60)
    slope = spherical_jn(orders, ka_F1, derivative=True) - 1j * spherical_yn(orders, ka_F1, derivative=True)
    for degrees in (0.0, 60.0, 150.0):
        ears = CENTRE_3 + HEAD_RADIUS * np.array([np.sin(np.radians(degrees)), 0.0, np.cos(np.radians(degrees))])
        terms = (2 * orders + 1) * 1j**orders * eval_legendre(orders, np.cos(np.radians(degrees))) / slope
        expected_F = -1j / ka_F1[:, 0] ** 2 * terms.sum(axis=1)
        found_F = head_transfer(CENTRE_3 + np.array([0, 0, 500.0]), ears[None], freqs_F)[:, 0]
        np.testing.assert_allclose(found_F, expected_F, rtol=0.01)


def test_reciprocity() -> None:
    one, other = (0.1, 0.05, 0.08), (-0.3, 0.2, -0.4)
    freqs_F = np.array([0.0, 100.0, 2000.0, 7000.0])
    forth = point_transfer(one, [other], freqs_F)
    np.testing.assert_allclose(forth, point_transfer(other, [one], freqs_F), rtol=1e-9)


def test_own_voice_levels_as_measured() -> None:
    """Published: next pair -7 dB, mid-temple -10.5 dB (low) to -17 dB (high), against the nose."""
    level_FM = _db(mouth_transfer(GLASSES, [200.0, 1000.0, 3000.0, 6500.0]))
    np.testing.assert_allclose(level_FM[:, 0], 0.0, atol=1e-9)
    np.testing.assert_allclose(level_FM[:, 1:3], -7.0, atol=1.0)
    np.testing.assert_allclose(level_FM[0, 3:], -10.5, atol=1.0)
    np.testing.assert_allclose(level_FM[-1, 3:], -17.0, atol=1.5)


@pytest.mark.parametrize(("metres", "expected_db"), [(0.5, -18.0), (1.0, -24.0), (2.0, -30.0)])
def test_bystander_against_own_voice_at_the_nose(metres: float, expected_db: float) -> None:
    source = CENTRE_3 + np.array([metres, 0.0, 0.0])
    freqs_F = np.linspace(200, 4000, 50)
    bystander_F = point_transfer(source, GLASSES.positions_M3[:1], freqs_F)[:, 0]
    ratio_db = _db(bystander_F).mean() - _db(voice_transfer(GLASSES, freqs_F)[:, 0]).mean()
    assert ratio_db == pytest.approx(expected_db, abs=2.5)


def test_shadow_and_delay_by_direction() -> None:
    """A talker on the left: the left temple is earlier, and louder at high frequency only."""
    source = CENTRE_3 + np.array([2.0, 0.0, 0.0])
    freqs_F = np.linspace(0, 8000, 513)
    transfer_FM = head_transfer(source, GLASSES.positions_M3, freqs_F)
    difference_F = _db(transfer_FM[:, 3]) - _db(transfer_FM[:, 4])
    assert abs(difference_F[freqs_F < 150]).max() < 1.5
    assert difference_F[(freqs_F > 3000) & (freqs_F < 6000)].mean() > 6.0
    delay_FM = -np.unwrap(np.angle(transfer_FM[20:120]), axis=0)
    slopes_M = np.polyfit(2 * np.pi * freqs_F[20:120], delay_FM, 1)[0]
    assert 0.3e-3 < slopes_M[4] - slopes_M[3] < 0.9e-3  # around a head, more than the straight 0.42 ms


def test_diffuse_field_is_the_mean_over_directions() -> None:
    index = np.arange(150) + 0.5  # a Fibonacci sphere
    height, turn = 1 - 2 * index / 150, np.pi * (1 + 5**0.5) * index
    round_axis = np.sqrt(1 - height**2)
    directions = np.stack([round_axis * np.cos(turn), height, round_axis * np.sin(turn)], axis=1)
    freqs_F = np.array([300.0, 1000.0, 3000.0])
    transfers = np.stack([head_transfer(CENTRE_3 + 50 * d, GLASSES.positions_M3, freqs_F) for d in directions])
    sampled = np.einsum("dfm,dfn->fmn", transfers, transfers.conj()) / len(directions)
    exact = diffuse_covariance(GLASSES.positions_M3, freqs_F)
    np.testing.assert_allclose(exact, sampled, atol=0.03)
    np.testing.assert_allclose(exact, exact.conj().transpose(0, 2, 1), atol=1e-12)


def test_finite_everywhere_and_shapes_refused() -> None:
    assert np.isfinite(mouth_transfer(load_array("aria7"), np.linspace(0, 8000, 129))).all()
    assert np.isfinite(point_transfer(HEAD_CENTRE, GLASSES.positions_M3, [1000.0])).all()
    with pytest.raises(ValueError, match="three coordinates"):
        point_transfer((0.0, 1.0), GLASSES.positions_M3, [1000.0])
    with pytest.raises(ValueError, match="one source"):
        point_transfer(np.ones((2, 3)), GLASSES.positions_M3, [1000.0])
