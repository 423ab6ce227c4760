"""Beams towards several directions: non-linearly constrained minimum variance (NLCMV).

Each beam hears its direction as c_0 does (a linear constraint), takes least power from a diffuse field, and keeps two
kinds of quadratic constraints that no linearly constrained beam can express: a white-noise gain above a bound, and at
most so much power from some other sources, for instance the wearer's own mouth in a beam that looks at a partner.
The problem is convex; its dual variables are a loading (found by bisection) and one weight for each limited source.

Shapes: F frequencies, M microphones, S limited sources, D beams.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from wearllama.audio.array import ArrayGeometry
from wearllama.audio.beamforming import DEFAULT_TAPS, Beam, bounded_weights, design_freqs_hz, realise
from wearllama.audio.head import diffuse_covariance, mouth_transfer, place_around, point_transfer

TALKER_DISTANCE_M = 1.5

_ROUNDS = 40
_LARGEST_WEIGHT = 1e4  # over a field of unit power: what the white-noise bound forbids is given up there

Complex = NDArray[np.complex128]


def direction_transfer(
    array: ArrayGeometry, azimuth_deg: float, elevation_deg: float = 0.0, distance_m: float = TALKER_DISTANCE_M
) -> Complex:
    """Transfer ``(F, M)`` of a talker relative to c_0 at ``design_freqs_hz()``; 0 is ahead, positive to the left."""
    source_3 = place_around(azimuth_deg, elevation_deg, distance_m)
    transfer_FM = point_transfer(source_3, array.positions_M3, design_freqs_hz())
    return transfer_FM / transfer_FM[:, array.reference, None]


def design_nlcmv(
    array: ArrayGeometry,
    azimuths_deg: Sequence[float] = tuple(range(0, 360, 30)),
    *,
    limited_azimuths_deg: Sequence[float] = (),
    mouth_limit_db: float | None = -10.0,
    limit_db: float = -10.0,
    wng_floor_db: float = -3.0,
    taps: int = DEFAULT_TAPS,
) -> list[Beam]:
    """One beam for each azimuth.

    Args:
        array: any geometry.
        azimuths_deg: where the beams look, in the horizontal plane; 0 is ahead, positive to the wearer's left.
        limited_azimuths_deg: directions that every other beam hears at ``limit_db`` of c_0 or less.
        mouth_limit_db: the same for the wearer's mouth; None leaves it free.
        limit_db: most power of a limited direction relative to c_0.
        wng_floor_db: least white-noise gain relative to the mean microphone; kept where it and a limit contradict.
        taps: of every filter.
    """
    freqs_F = design_freqs_hz()
    noise_FMM = diffuse_covariance(array.positions_M3, freqs_F)
    limited = [(direction_transfer(array, azimuth), limit_db, azimuth) for azimuth in limited_azimuths_deg]
    if mouth_limit_db is not None:
        limited.append((mouth_transfer(array, freqs_F), mouth_limit_db, np.nan))
    beams = []
    for azimuth in azimuths_deg:
        others = [(transfer_FM, limit) for transfer_FM, limit, where in limited if not _same(where, azimuth)]
        weights_FM = nlcmv_weights(direction_transfer(array, azimuth), noise_FMM, others, wng_floor_db)
        beams.append(realise(weights_FM, taps, array.name))
    return beams


def nlcmv_weights(
    target_FM: Complex, noise_FMM: Complex, limited: Sequence[tuple[Complex, float]], wng_floor_db: float
) -> Complex:
    """Weights ``h`` with ``h^H g = 1``: least noise within the white-noise bound and every source's limit.

    ``limited`` holds transfers ``(F, M)`` relative to c_0 with the most power in dB that the beam may take of each.  A
    weight grows while its source is above the limit and shrinks while it is below, to zero where nothing holds it.
    """
    if not limited:
        return bounded_weights(target_FM, noise_FMM, wng_floor_db)
    transfers_SFM = np.stack([transfer_FM for transfer_FM, _ in limited])
    most_S1 = 10.0 ** (np.array([[limit_db] for _, limit_db in limited]) / 10.0)
    outer_SFMM = np.einsum("sfm,sfn->sfmn", transfers_SFM, transfers_SFM.conj())
    log_SF = np.full(transfers_SFM.shape[:2], -3.0)
    step = 1.0
    for _ in range(_ROUNDS):
        loaded_FMM = noise_FMM + np.einsum("sf,sfmn->fmn", 10.0**log_SF, outer_SFMM)
        weights_FM = bounded_weights(target_FM, loaded_FMM, wng_floor_db)
        power_SF = np.abs(np.einsum("fm,sfm->sf", weights_FM.conj(), transfers_SFM)) ** 2
        log_SF += step * np.clip(np.log10(np.maximum(power_SF, 1e-12) / most_S1), -1.0, 1.0)
        log_SF = np.clip(log_SF, -8.0, np.log10(_LARGEST_WEIGHT))
        step = max(0.93 * step, 0.2)
    return weights_FM


def _same(first_deg: float, second_deg: float) -> bool:
    return bool(abs((first_deg - second_deg + 180.0) % 360.0 - 180.0) < 15.0)
