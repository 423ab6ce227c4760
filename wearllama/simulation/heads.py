"""Head responses of one device on one head, sampled once and reused for every source in a room.

Plane waves come from a fixed set of directions and meet a rigid sphere; talkers use the point-source form of
:mod:`wearllama.audio.head`, the wearer its near-field mouth transfer.  All responses are 16 ms FIR filters designed
on a 62.5 Hz grid; time zero is the arrival at the head's origin (mid-pupil) or, for the mouth, the emission.

Shapes: D directions, M microphones, F frequency bins, I orders of the spherical series.
"""

from copy import copy
from dataclasses import replace

import numpy as np
import scipy.fft
from numpy.typing import NDArray
from scipy.special import eval_legendre, spherical_jn, spherical_yn

from wearllama.audio.array import ArrayGeometry
from wearllama.audio.head import HEAD_CENTRE, HEAD_RADIUS, SPEED_OF_SOUND, point_transfer, voice_transfer

SAMPLE_RATE = 16_000
FIR_TAPS = 256
ORIGIN_TAP = 64
NUM_DIRECTIONS = 128
LIT_EDGE = 0.3
"""Cosine of the angle off the shadow's edge over which light and shade blend."""
TALKER_GAIN_DB = -2.6
FACE_TALKER_GAIN_DB = -0.9
"""Other talkers against the wearer at equal effort, so that the direct sound of one who faces the wearer at .5 / 1 /
2 m is 18 / 24 / 30 dB under own voice at the nose, as measured on glasses; a smooth sphere alone gives 15.4 / 21.4 /
26.5, most of the difference being the echo of its face."""
_ORDERS = 32

Array = NDArray[np.float64]
Complex = NDArray[np.complexfloating]


def sphere_directions(count: int) -> Array:
    """Near-uniform unit vectors (count, 3) on a Fibonacci spiral."""
    index = np.arange(count) + 0.5
    height = 1 - 2 * index / count
    angle = np.pi * (1 + 5**0.5) * index
    ring = np.sqrt(1 - height**2)
    return np.stack([ring * np.cos(angle), height, ring * np.sin(angle)], axis=1)


def plane_wave_transfer(
    directions_D3: Array, positions_M3: Array, freqs_F: Array, face_hz: float | None = None
) -> Complex:
    """Pressure (D, M, F) at microphones near a rigid sphere, relative to the free field at the origin.

    ``directions_D3`` point to where the waves come from; time convention e^{+jwt}.  ``face_hz``: see
    :func:`face_reflection`.
    """
    centre_3 = np.asarray(HEAD_CENTRE)
    relative_M3 = positions_M3 - centre_3
    radius_M = np.maximum(np.linalg.norm(relative_M3, axis=1), HEAD_RADIUS)
    relative_M3 *= (radius_M / np.linalg.norm(relative_M3, axis=1))[:, None]  # none inside the sphere
    wave_F = 2 * np.pi * np.maximum(freqs_F, 20.0) / SPEED_OF_SOUND
    cosine_DM = directions_D3 @ relative_M3.T / radius_M
    order = np.arange(_ORDERS)
    derivative_FI = spherical_jn(order, wave_F[:, None] * HEAD_RADIUS, derivative=True)
    hankel_FI = derivative_FI - 1j * spherical_yn(order, wave_F[:, None] * HEAD_RADIUS, derivative=True)
    argument_MF1 = radius_M[:, None, None] * wave_F[:, None]
    outgoing_MFI = spherical_jn(order, argument_MF1) - 1j * spherical_yn(order, argument_MF1)
    factor_MFI = -(2 * order + 1) * 1j**order * derivative_FI / hankel_FI * outgoing_MFI
    scattered_DMF = np.einsum("mfi,dmi->dmf", factor_MFI, eval_legendre(order, cosine_DM[..., None]))
    towards_DM = directions_D3 @ (centre_3 + relative_M3).T
    scattered_DMF = scattered_DMF * np.exp(1j * wave_F * (directions_D3 @ centre_3)[:, None, None])
    if face_hz is not None:
        scattered_DMF *= face_reflection(cosine_DM, freqs_F, face_hz)
    return np.exp(1j * wave_F * towards_DM[..., None]) + scattered_DMF


def face_reflection(cosine_X: Array, freqs_F: Array, face_hz: float) -> Array:
    """Share (X, F) of the sphere's echo that reaches a microphone which sees the source.

    A smooth sphere doubles the pressure at its surface and interferes with the direct wave two centimetres off; a face
    behind a frame does neither above ``face_hz``.  In its shadow (cosine below 0) nothing changes.
    """
    lit_X = np.clip((cosine_X + LIT_EDGE) / (2 * LIT_EDGE), 0.0, 1.0)
    return 1 - lit_X[..., None] * (1 - 1 / (1 + (freqs_F / face_hz) ** 2))


class HeadResponses:
    """What the microphones of one worn device hear: a rigid sphere, its face softened above ``face_hz`` if given."""

    def __init__(self, array: ArrayGeometry, face_hz: float | None = None) -> None:
        self.array = array
        self.face_hz = face_hz
        self.positions_M3 = array.positions_M3
        self.directions_D3 = sphere_directions(NUM_DIRECTIONS)
        self._freqs_F = scipy.fft.rfftfreq(FIR_TAPS, 1 / SAMPLE_RATE)
        plane_DMF = plane_wave_transfer(self.directions_D3, self.positions_M3, self._freqs_F, face_hz)
        self._plane_DMK = self._fir(plane_DMF)
        self._plane: dict[int, Complex] = {}

    @property
    def talker_gain(self) -> float:
        """Amplitude of other talkers against the wearer."""
        return 10 ** ((TALKER_GAIN_DB if self.face_hz is None else FACE_TALKER_GAIN_DB) / 20)

    def nearest(self, directions_I3: Array) -> NDArray[np.intp]:
        """Index of the closest sampled direction."""
        return np.argmax(directions_I3 @ self.directions_D3.T, axis=1)

    def plane_spectra(self, n_fft: int) -> Complex:
        """Plane-wave responses (D, M, n_fft // 2 + 1), complex64, kept."""
        if n_fft not in self._plane:
            self._plane.clear()
            self._plane[n_fft] = self._spectra(self._plane_DMK, n_fft).astype(np.complex64)
        return self._plane[n_fft]

    def point(self, source_3: Array, n_fft: int) -> Complex:
        """Response (M, F) of a point source of level 1 / distance, time zero is the emission."""
        lag = float(np.linalg.norm(source_3)) / SPEED_OF_SOUND
        transfer_MF: Complex = point_transfer(source_3, self.positions_M3, self._freqs_F).T
        if self.face_hz is not None:
            transfer_MF = self._soften(transfer_MF, source_3, self.face_hz)
        near_MF = self._spectra(self._fir(transfer_MF * np.exp(2j * np.pi * self._freqs_F * lag)), n_fft)
        return near_MF * np.exp(-2j * np.pi * scipy.fft.rfftfreq(n_fft, 1 / SAMPLE_RATE) * lag)

    def _soften(self, transfer_MF: Complex, source_3: Array, face_hz: float) -> Complex:
        centre_3 = np.asarray(HEAD_CENTRE)
        relative_M3 = self.positions_M3 - centre_3
        radius_M1 = np.linalg.norm(relative_M3, axis=1, keepdims=True)
        relative_M3 *= np.maximum(radius_M1, HEAD_RADIUS) / radius_M1
        path_M3 = (source_3 - centre_3) - relative_M3
        distance_M1 = np.linalg.norm(path_M3, axis=1, keepdims=True)
        direct_MF = np.exp(-2j * np.pi * self._freqs_F * distance_M1 / SPEED_OF_SOUND) / distance_M1
        towards_3 = (source_3 - centre_3) / np.linalg.norm(source_3 - centre_3)
        cosine_M = relative_M3 @ towards_3 / np.linalg.norm(relative_M3, axis=1)
        return direct_MF + face_reflection(cosine_M, self._freqs_F, face_hz) * (transfer_MF - direct_MF)

    def own_voice(self, n_fft: int) -> Complex:
        """Response (M, F) of the wearer's mouth in the same units, time zero is the emission."""
        return self._spectra(self._fir(voice_transfer(self.array, self._freqs_F).T), n_fft)

    def with_mouth(self, mouth_3: Array) -> "HeadResponses":
        """The same device on the same head with its mouth elsewhere; plane waves are shared."""
        moved = copy(self)
        x, y, z = (float(value) for value in mouth_3)
        moved.array = replace(self.array, mouth=(x, y, z))
        return moved

    def _fir(self, transfer_XF: Complex) -> Array:
        delay_F = np.exp(-2j * np.pi * np.arange(FIR_TAPS // 2 + 1) / FIR_TAPS * ORIGIN_TAP)
        spectrum_XF = transfer_XF * delay_F
        spectrum_XF[..., 0] = np.abs(spectrum_XF[..., 1])
        fir_XK = scipy.fft.irfft(spectrum_XF, FIR_TAPS)
        ramp = np.sin(np.pi / 2 * (np.arange(16) + 0.5) / 16) ** 2
        fir_XK[..., :16] *= ramp
        fir_XK[..., -16:] *= ramp[::-1]
        return fir_XK

    def _spectra(self, fir_XK: Array, n_fft: int) -> Complex:
        back_F = np.exp(2j * np.pi * np.arange(n_fft // 2 + 1) / n_fft * ORIGIN_TAP)
        return scipy.fft.rfft(fir_XK, n_fft) * back_F
