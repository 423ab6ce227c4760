"""NLCMV: every constraint kept, and no better beam within them."""

import numpy as np
import pytest
from scipy.optimize import minimize

from wearllama.audio.array import load_array
from wearllama.audio.beam_metrics import Field, diffuse_gain_db, pattern_db, white_noise_gain_db
from wearllama.audio.beamforming import design_freqs_hz
from wearllama.audio.head import diffuse_covariance, mouth_transfer
from wearllama.audio.nlcmv import design_nlcmv, direction_transfer, nlcmv_weights

FREQS_F = design_freqs_hz()
BAND_F = (FREQS_F > 150) & (FREQS_F < 7500)


@pytest.mark.parametrize("name", ["glasses5", "aria7"])
def test_each_beam_hears_its_direction_and_keeps_its_bounds(name: str) -> None:
    array = load_array(name)
    azimuths = (-60.0, 0.0, 60.0)
    beams = design_nlcmv(array, azimuths, mouth_limit_db=-10.0, wng_floor_db=-3.0)
    mouth_1FM = mouth_transfer(array, FREQS_F)[None]
    for azimuth, beam in zip(azimuths, beams, strict=True):
        target_FM = direction_transfer(array, azimuth)
        field = Field(
            freqs_F=FREQS_F,
            target_FM=target_FM,
            diffuse_FMM=diffuse_covariance(array.positions_M3, FREQS_F),
            reference=array.reference,
        )
        assert np.abs(pattern_db(beam, target_FM[None], FREQS_F, array.reference)).max() < 0.5
        assert white_noise_gain_db(beam, field)[BAND_F].min() > -3.7
        assert pattern_db(beam, mouth_1FM, FREQS_F, array.reference).max() < -8.0
        assert diffuse_gain_db(beam, field)[BAND_F].mean() > 2.0
    left, right = pattern_db(beams[2], np.stack([direction_transfer(array, a) for a in (60, -60)]), FREQS_F, 0)[:, 1]
    assert left - right > 3.0


def test_limited_directions_bind_the_other_beams_only() -> None:
    array = load_array("glasses5")
    free = design_nlcmv(array, (0.0, 90.0), mouth_limit_db=None)
    bound = design_nlcmv(array, (0.0, 90.0), mouth_limit_db=None, limited_azimuths_deg=(90.0,), limit_db=-15.0)
    side_1FM = direction_transfer(array, 90.0)[None]
    assert pattern_db(free[0], side_1FM, FREQS_F, 0)[0, 0] > -10.0
    assert pattern_db(bound[0], side_1FM, FREQS_F, 0)[0, :3].max() < -14.0
    np.testing.assert_allclose(bound[1].fir_MK, free[1].fir_MK, atol=1e-5)


@pytest.mark.parametrize("frequency", [30, 60, 120])
def test_no_better_weights_exist(frequency: int) -> None:
    """The dual solution against a general solver of the same problem, at one frequency."""
    array = load_array("glasses5")
    target_M = direction_transfer(array, 30.0)[frequency]
    mouth_M = mouth_transfer(array, FREQS_F)[frequency]
    noise_MM = diffuse_covariance(array.positions_M3, FREQS_F[frequency, None])[0]
    most, floor = 0.1, 10 ** (-2.0 / 10)
    ours_M = nlcmv_weights(target_M[None], noise_MM[None], [(mouth_M[None], -10.0)], -2.0)[0]

    def split(x: np.ndarray) -> np.ndarray:
        return x[:5] + 1j * x[5:]

    def power(x: np.ndarray) -> float:
        return float((split(x).conj() @ noise_MM @ split(x)).real)

    white = (np.abs(target_M) ** 2).mean() * floor
    constraints = [
        {"type": "eq", "fun": lambda x: (split(x).conj() @ target_M).real - 1},
        {"type": "eq", "fun": lambda x: (split(x).conj() @ target_M).imag},
        {"type": "ineq", "fun": lambda x: 1 / white - np.abs(split(x)) @ np.abs(split(x))},
        {"type": "ineq", "fun": lambda x: most - np.abs(split(x).conj() @ mouth_M) ** 2},
    ]
    start = np.concatenate([ours_M.real, ours_M.imag]) + 0.01
    best = minimize(power, start, method="SLSQP", constraints=constraints, options={"maxiter": 500, "ftol": 1e-10})
    assert best.success
    assert power(np.concatenate([ours_M.real, ours_M.imag])) == pytest.approx(best.fun, rel=0.02)
