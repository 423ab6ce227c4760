"""A measured head in place of the sphere: anechoic responses from many directions and a mouth's response.

Both come as banks (tools/import_rirs.py).  Loudspeaker and mouth simulator colour what they measure; one gain a
frequency for all directions and microphones, and one more for the mouth, bring the mean level at c_0 to that of the
sphere, whose levels between own voice and others are calibrated.  What differs between microphones and directions is
the measurement's own.  Where no measured direction is near (measurements are often level only), the sphere stands in.

Shapes: D directions, M microphones, K taps, F frequency bins.
"""

import numpy as np
import scipy.fft
import scipy.ndimage
from numpy.typing import NDArray

from wearllama.audio.array import ArrayGeometry
from wearllama.simulation.bank import RirBank
from wearllama.simulation.heads import FIR_TAPS, ORIGIN_TAP, SAMPLE_RATE, SPEED_OF_SOUND, HeadResponses
from wearllama.simulation.measure import direct_sound

NEAR_DEG = 25.0
STAND_IN_FACE_HZ = 1200.0
GAIN_LIMIT_DB = 30.0
SMOOTHING_OCTAVES = 1 / 3

Array = NDArray[np.float64]
Complex = NDArray[np.complexfloating]


class MeasuredHead(HeadResponses):
    """What the microphones of a measured device hear; its microphones and mouth stay where they were."""

    def __init__(self, array: ArrayGeometry, directions: RirBank, mouth: RirBank) -> None:
        """``directions``: entries of point sources (other roles than wearer) without a room; ``mouth``: one of the
        wearer, whose direct sound is used.

        Raises:
            ValueError: a bank is of another array or lacks such entries.
        """
        super().__init__(array, STAND_IN_FACE_HZ)
        for bank in (directions, mouth):
            if {entry.array for entry in bank.entries} != {array.name}:
                raise ValueError(f"{bank.path}: a bank of another array than {array.name!r}")
        rows = [i for i, e in enumerate(directions.entries) if e.role not in ("wearer", "diffuse") and e.rt60_s == 0]
        voices = mouth.select(role="wearer")
        if len(rows) < 4 or not voices:
            raise ValueError(
                f"{directions.path}: {len(rows)} anechoic directions (wanted 4 or more); "
                f"{mouth.path}: {len(voices)} responses of a wearer (wanted one)"
            )
        sphere_DMF, sphere_voice_MF = self._spectrum(self._plane_DMK), super().own_voice(FIR_TAPS)
        measured_D3 = _unit_vectors(directions, rows)
        cosine_D = np.max(self.directions_D3 @ measured_D3.T, axis=1)
        near_D = cosine_D > np.cos(np.deg2rad(NEAR_DEG))
        if not near_D.any():
            raise ValueError(f"{directions.path}: the directions do not look like those of a head")
        rirs_DMK = np.stack([_window(directions.rir(row), directions) for row in rows])
        # From the arrival at c_0 to that at the origin: a whole and a part of a sample, the same for all microphones.
        lead_D = measured_D3 @ self.positions_M3[array.reference] * SAMPLE_RATE / SPEED_OF_SOUND
        turn_DF = np.exp(2j * np.pi * lead_D[:, None] * np.arange(FIR_TAPS // 2 + 1) / FIR_TAPS)
        measured_DMF = self._spectrum(rirs_DMK) * turn_DF[:, None]
        target_F = np.sqrt(np.mean(np.abs(sphere_DMF[near_D, array.reference]) ** 2, axis=0))
        found_F = np.sqrt(np.mean(np.abs(measured_DMF[:, array.reference]) ** 2, axis=0))
        measured_DMK = self._fir(measured_DMF * _gain(target_F, found_F))
        self.directions_D3 = np.concatenate([measured_D3, self.directions_D3[~near_D]])
        self._plane_DMK = np.concatenate([measured_DMK, self._plane_DMK[~near_D]])
        voice_MK = direct_sound(mouth.rir(voices[0]).astype(np.float64), array.reference)
        voice_MF = self._spectrum(_window(voice_MK, mouth)[None])[0]
        gain_F = _gain(np.abs(sphere_voice_MF[array.reference]), np.abs(voice_MF[array.reference]))
        self._voice_MK = self._fir(voice_MF * gain_F)

    def point(self, source_3: Array, n_fft: int) -> Complex:
        """Response (M, F) of a point source of level 1 / distance: that of the nearest direction."""
        distance = float(np.linalg.norm(source_3))
        row = self.nearest(source_3[None] / distance)[0]
        hz_F = scipy.fft.rfftfreq(n_fft, 1 / SAMPLE_RATE)
        return self.plane_spectra(n_fft)[row] * np.exp(-2j * np.pi * hz_F * distance / SPEED_OF_SOUND) / distance

    def own_voice(self, n_fft: int) -> Complex:
        """Response (M, F) of the mouth as it was measured."""
        return self._spectra(self._voice_MK, n_fft)

    def with_mouth(self, mouth_3: Array) -> "MeasuredHead":
        """The same head: a measured mouth stays where it is."""
        return self

    def _spectrum(self, fir_XK: Array) -> Complex:
        return self._spectra(fir_XK, FIR_TAPS)


def _unit_vectors(bank: RirBank, rows: list[int]) -> Array:
    azimuth_D = np.deg2rad([bank.entries[row].azimuth_deg for row in rows])
    elevation_D = np.deg2rad([bank.entries[row].elevation_deg for row in rows])
    level_D = np.cos(elevation_D)
    return np.stack([level_D * np.sin(azimuth_D), np.sin(elevation_D), level_D * np.cos(azimuth_D)], axis=1)


def _window(rir_MK: NDArray[np.floating], bank: RirBank) -> Array:
    """The head's part of a response (M, FIR_TAPS), first arrival at c_0 at ``ORIGIN_TAP``."""
    shift = ORIGIN_TAP - bank.pre_samples
    moved_MK = np.pad(rir_MK, ((0, 0), (max(shift, 0), FIR_TAPS)))[:, max(-shift, 0) :][:, :FIR_TAPS]
    return moved_MK.astype(np.float64)


def _gain(target_F: Array, found_F: Array) -> Array:
    """Zero-phase gain (F,), smooth over a third of an octave and bounded, that brings one level to another."""
    level_F = 20 * np.log10(np.maximum(target_F, 1e-12) / np.maximum(found_F, 1e-12))
    octave_F = np.log2(np.maximum(np.arange(len(level_F)), 1.0))
    fine = np.linspace(0, octave_F[-1], 256)
    width = SMOOTHING_OCTAVES / (fine[1] - fine[0])
    smooth = scipy.ndimage.gaussian_filter1d(np.interp(fine, octave_F, level_F), width / 2, mode="nearest")
    middle = float(np.median(smooth))
    bounded = np.clip(smooth, middle - GAIN_LIMIT_DB, middle + GAIN_LIMIT_DB)
    return 10 ** (np.interp(octave_F, fine, bounded) / 20)
