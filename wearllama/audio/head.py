"""The head between sources and microphones, shared by the beam's design and the simulation.

Shapes: F frequencies, M microphones, I orders of the series.  Time convention e^{+j w t}: a delay tau is e^{-j w tau}.

A rigid sphere gives what a free field lacks: shadow for talkers behind the head, and for the temples when the wearer
speaks.  Source and microphone may both stand off its surface (mouth and nose microphone do): the direct wave in closed
form plus the scattered series of a point source outside a rigid sphere (Duda and Martens, JASA 1998, give the case of a
receiver on the surface).  The mouth also beams forward at high frequency.

Calibrated on published measurements of glasses on a head-and-torso simulator: own voice at the front pair 7 dB and at
the mid-temple pair 10.5 dB (low) to 17 dB (high) below the nose; here 6.3..7.3 and 10.0..16.6 dB (150 Hz..7 kHz).
"""

from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import eval_legendre, spherical_jn

from wearllama.audio.array import ArrayGeometry

SPEED_OF_SOUND = 343.0
"""m/s at 20 degrees."""
HEAD_CENTRE = (0.0, -0.010, -0.070)
"""Centre of the sphere in array coordinates (origin between the pupils), metres."""
HEAD_RADIUS = 0.0825
"""Metres; with the centre above this sphere passes the nose microphone and the temples of the glasses."""

_ORDERS = 80
_MIN_HZ = 20.0  # below, the series' factors leave the range of float64; the response is constant there
_MOUTH_BEAM_DB = 6.0  # level behind the mouth against in front of it, at high frequency, beyond the sphere's own shadow
_MOUTH_BEAM_HZ = 1000.0


def place_around(azimuth_deg: float, elevation_deg: float = 0.0, distance_m: float = 1.0) -> NDArray[np.float64]:
    """Point (3,) in array coordinates, seen from the head's centre; 0 is ahead, positive to the wearer's left."""
    azimuth, elevation = np.deg2rad([azimuth_deg, elevation_deg])
    towards_3 = np.array([np.cos(elevation) * np.sin(azimuth), np.sin(elevation), np.cos(elevation) * np.cos(azimuth)])
    return np.asarray(HEAD_CENTRE) + distance_m * towards_3


def point_transfer(source_3: ArrayLike, mics_M3: ArrayLike, freqs_F: ArrayLike) -> NDArray[np.complex128]:
    """Pressure ``(F, M)`` of a point source that gives e^{-j k r} / r in a free field; points in array coordinates.

    A point inside the sphere is moved out to its surface.  Gain and delay are absolute, so that two sources of equal
    effort can be compared; ValueError for other shapes than (3,), (M, 3) and (F,).
    """
    source_13, source_radius_1 = _from_centre(np.atleast_2d(np.asarray(source_3, dtype=np.float64)))
    mics_M3, radius_M = _from_centre(np.atleast_2d(np.asarray(mics_M3, dtype=np.float64)))
    if len(source_13) != 1:
        raise ValueError(f"head transfer takes one source of three coordinates, found shape {np.shape(source_3)}")
    wavenumber_F = _wavenumbers(freqs_F)
    distance_M = np.linalg.norm(mics_M3 - source_13, axis=1)
    direct_FM = np.exp(-1j * np.outer(wavenumber_F, distance_M)) / distance_M
    cosine_M = (mics_M3 @ source_13[0]) / (radius_M * source_radius_1)
    return direct_FM + _scattered(wavenumber_F, float(source_radius_1[0]), radius_M, cosine_M)


def head_transfer(source_3: ArrayLike, mics_M3: ArrayLike, freqs_F: ArrayLike) -> NDArray[np.complex128]:
    """Transfer ``(F, M)`` from a source to each microphone relative to the free field at the head's centre.

    A microphone nearer to the source than the centre has a negative delay.
    """
    distance = np.linalg.norm(_from_centre(np.atleast_2d(np.asarray(source_3, dtype=np.float64)))[0])
    free_F = np.exp(-1j * _wavenumbers(freqs_F) * distance) / distance
    return point_transfer(source_3, mics_M3, freqs_F) / free_F[:, None]


def voice_transfer(array: ArrayGeometry, freqs_F: ArrayLike) -> NDArray[np.complex128]:
    """Absolute transfer ``(F, M)`` of the wearer's own voice, in the units of ``point_transfer``.

    A voice of equal effort elsewhere counts as e^{-j k r} / r on its axis, as the mouth here does straight ahead.
    """
    freqs_F = np.asarray(freqs_F, dtype=np.float64)
    return point_transfer(array.mouth, array.positions_M3, freqs_F) * _mouth_beam(array, freqs_F)


def mouth_transfer(array: ArrayGeometry, freqs_F: ArrayLike) -> NDArray[np.complex128]:
    """Own voice ``(F, M)`` relative to the reference microphone c_0, whose column is 1."""
    voice_FM = voice_transfer(array, freqs_F)
    return voice_FM / voice_FM[:, array.reference, None]


def diffuse_covariance(mics_M3: ArrayLike, freqs_F: ArrayLike) -> NDArray[np.complex128]:
    """Covariance ``(F, M, M)`` of a spherically diffuse field around the head, 1 on the diagonal without a head.

    Plane waves from everywhere, integrated in closed form by the addition theorem; without the sphere's own term this
    is the familiar sinc(2 f d / c).
    """
    mics_M3, radius_M = _from_centre(np.atleast_2d(np.asarray(mics_M3, dtype=np.float64)))
    cosine_MM = np.clip(mics_M3 @ mics_M3.T / np.outer(radius_M, radius_M), -1.0, 1.0)
    wavenumber_F = _wavenumbers(freqs_F)
    orders_I = np.arange(_ORDERS)
    slope_FI, outgoing_slope_FI = _surface_slopes(wavenumber_F.tobytes())
    radial_FMI = np.stack(
        [
            spherical_jn(orders_I, wavenumber_F[:, None] * radius)
            - slope_FI * (_hankel(wavenumber_F * radius, _ORDERS) / outgoing_slope_FI)
            for radius in radius_M
        ],
        axis=1,
    )
    legendre_MMI = (2 * orders_I + 1) * eval_legendre(orders_I, cosine_MM[..., None])
    return np.einsum("fmi,fni,mni->fmn", radial_FMI, radial_FMI.conj(), legendre_MMI, optimize=True)


def _mouth_beam(array: ArrayGeometry, freqs_F: NDArray[np.float64]) -> NDArray[np.float64]:
    towards_M3 = array.positions_M3 - array.mouth_3
    forward_M = towards_M3[:, 2] / np.linalg.norm(towards_M3, axis=1)
    shelf_F = freqs_F**2 / (freqs_F**2 + _MOUTH_BEAM_HZ**2)
    return 10.0 ** (-_MOUTH_BEAM_DB / 20.0 * np.outer(shelf_F, (1.0 - forward_M) / 2.0))


def _scattered(
    wavenumber_F: NDArray[np.float64],
    source_radius: float,
    radius_M: NDArray[np.float64],
    cosine_M: NDArray[np.float64],
) -> NDArray[np.complex128]:
    """What the rigid sphere adds to the direct wave: j k sum (2 i + 1) P_i j_i'(ka) h_i(kr_s) h_i(kr_m) / h_i'(ka)."""
    orders_I = np.arange(_ORDERS)
    slope_FI, outgoing_slope_FI = _surface_slopes(wavenumber_F.tobytes())
    # A tiny factor meets a huge one in each product, or the high orders would overflow at low frequency.
    source_FI = slope_FI * _hankel(wavenumber_F * source_radius, _ORDERS)
    scattered_FM = np.empty((len(wavenumber_F), len(radius_M)), dtype=np.complex128)
    for mic, (radius, cosine) in enumerate(zip(radius_M, cosine_M, strict=True)):
        mic_FI = _hankel(wavenumber_F * radius, _ORDERS) / outgoing_slope_FI
        scattered_FM[:, mic] = (source_FI * mic_FI) @ ((2 * orders_I + 1) * eval_legendre(orders_I, cosine))
    return 1j * wavenumber_F[:, None] * scattered_FM


@lru_cache(maxsize=8)
def _surface_slopes(wavenumbers: bytes) -> tuple[NDArray[np.float64], NDArray[np.complex128]]:
    """j_i'(ka) and h_i'(ka), ``(F, I)``; cached, since every source of a simulation asks at the same frequencies."""
    surface_F = np.frombuffer(wavenumbers) * HEAD_RADIUS
    slope_FI = spherical_jn(np.arange(_ORDERS), surface_F[:, None], derivative=True)
    outgoing_FI = _hankel(surface_F, _ORDERS + 1)
    outgoing_slope_FI = np.arange(_ORDERS) / surface_F[:, None] * outgoing_FI[:, :-1] - outgoing_FI[:, 1:]
    return slope_FI, outgoing_slope_FI


def _hankel(argument_F: NDArray[np.float64], orders: int) -> NDArray[np.complex128]:
    """Spherical Hankel functions of the second kind ``(F, I)``: outgoing waves under e^{+j w t}.

    Upward recurrence: stable here, since the growing part dominates the modulus.
    """
    values = [1j * np.exp(-1j * argument_F) / argument_F]
    values.append(values[0] * (1.0 / argument_F + 1j))
    for order in range(1, orders - 1):
        values.append((2 * order + 1) / argument_F * values[order] - values[order - 1])
    return np.stack(values, axis=1)


def _wavenumbers(freqs_F: ArrayLike) -> NDArray[np.float64]:
    return 2.0 * np.pi * np.maximum(np.asarray(freqs_F, dtype=np.float64), _MIN_HZ) / SPEED_OF_SOUND


def _from_centre(points_P3: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Points relative to the head's centre, moved out of the sphere where needed, and their distances."""
    if points_P3.ndim != 2 or points_P3.shape[1] != 3:
        raise ValueError(f"wanted points of three coordinates, found shape {points_P3.shape}")
    relative_P3 = points_P3 - np.asarray(HEAD_CENTRE)
    radius_P = np.linalg.norm(relative_P3, axis=1)
    outside_P = np.maximum(radius_P, HEAD_RADIUS)
    return relative_P3 * (outside_P / np.maximum(radius_P, 1e-9))[:, None], outside_P
