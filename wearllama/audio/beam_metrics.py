"""How good a beam is: white-noise gain, gain over a diffuse field and pattern, for modelled or measured responses.

Shapes: F frequencies, M microphones, D directions, R draws.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from wearllama.audio.array import ArrayGeometry
from wearllama.audio.beamforming import Beam, filter_response
from wearllama.audio.head import diffuse_covariance, mouth_transfer

BANDS_HZ = ((150, 500), (500, 1000), (1000, 2000), (2000, 4000), (4000, 7500))
"""The bands of every table on beams."""

Complex = NDArray[np.complex128]
Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class Field:
    """What the microphones hear, at each frequency: the wanted source, and sound from everywhere."""

    freqs_F: Array
    target_FM: Complex
    """The wanted source relative to c_0."""
    diffuse_FMM: Complex
    """Covariance of a diffuse field."""
    reference: int = 0

    def __post_init__(self) -> None:
        bins, mics = self.target_FM.shape
        if self.freqs_F.shape != (bins,) or self.diffuse_FMM.shape != (bins, mics, mics):
            raise ValueError(
                f"field: frequencies {self.freqs_F.shape}, target {self.target_FM.shape}, diffuse "
                f"{self.diffuse_FMM.shape}; wanted (F,), (F, M) and (F, M, M)"
            )


def own_voice_field(array: ArrayGeometry, freqs_F: ArrayLike) -> Field:
    """The wearer's voice in a spherically diffuse field, by the head model."""
    freqs_F = np.asarray(freqs_F, dtype=np.float64)
    return Field(
        freqs_F=freqs_F,
        target_FM=mouth_transfer(array, freqs_F),
        diffuse_FMM=diffuse_covariance(array.positions_M3, freqs_F),
        reference=array.reference,
    )


def white_noise_gain_db(beam: Beam, field: Field) -> Array:
    """Gain ``(F,)`` in the target over self-noise, relative to the mean microphone."""
    return _white_noise_gain_db(filter_response(beam, field.freqs_F), field)


def diffuse_gain_db(beam: Beam, field: Field) -> Array:
    """Gain ``(F,)`` in the target over a diffuse field, relative to c_0."""
    return _diffuse_gain_db(filter_response(beam, field.freqs_F), field)


def gains_under_mismatch_db(
    beam: Beam, field: Field, *, gain_sd_db: float, phase_deg: float, draws: int = 200, seed: int = 0
) -> tuple[Array, Array]:
    """White-noise and diffuse gain ``(R, F)`` of devices whose microphones differ from the nominal ones.

    Each draw has gains N(0, ``gain_sd_db``) and phases uniform within +-``phase_deg``, constant over frequency; c_0 is
    one of the microphones that are off.
    """
    rng = np.random.default_rng(seed)
    filters_FM = filter_response(beam, field.freqs_F)
    white, diffuse = [], []
    for _ in range(draws):
        gain_M = 10.0 ** (rng.normal(0.0, gain_sd_db, filters_FM.shape[1]) / 20.0)
        turn_M = np.exp(1j * np.deg2rad(rng.uniform(-phase_deg, phase_deg, filters_FM.shape[1])))
        white.append(_white_noise_gain_db(filters_FM, field, gain_M * turn_M))
        diffuse.append(_diffuse_gain_db(filters_FM, field, gain_M * turn_M))
    return np.stack(white), np.stack(diffuse)


def band_means(freqs_F: Array, values_XF: Array) -> Array:
    """Means ``(..., bands)`` of values over :data:`BANDS_HZ`."""
    return np.stack(
        [values_XF[..., (freqs_F >= low) & (freqs_F < high)].mean(axis=-1) for low, high in BANDS_HZ], axis=-1
    )


def pattern_db(beam: Beam, transfers_DFM: Complex, freqs_F: Array, reference: int) -> Array:
    """Power of sound from each direction in the beam over that in c_0, dB ``(D, bands)``."""
    heard_DF = np.abs(np.einsum("fm,dfm->df", filter_response(beam, freqs_F), transfers_DFM)) ** 2
    alone_DF = np.abs(transfers_DFM[..., reference]) ** 2
    return 10.0 * np.log10(band_means(freqs_F, heard_DF) / band_means(freqs_F, alone_DF))


def _white_noise_gain_db(filters_FM: Complex, field: Field, device_M: Complex | None = None) -> Array:
    target_FM = field.target_FM if device_M is None else field.target_FM * device_M
    signal_F = np.abs((filters_FM * target_FM).sum(axis=1)) ** 2
    noise_F = (np.abs(filters_FM) ** 2).sum(axis=1)
    return 10.0 * np.log10(signal_F / noise_F / (np.abs(target_FM) ** 2).mean(axis=1))


def _diffuse_gain_db(filters_FM: Complex, field: Field, device_M: Complex | None = None) -> Array:
    weights_FM = filters_FM if device_M is None else filters_FM * device_M
    noise_F = np.einsum("fm,fmn,fn->f", weights_FM, field.diffuse_FMM, weights_FM.conj()).real
    signal_F = np.abs((weights_FM * field.target_FM).sum(axis=1)) ** 2
    # The device's gain at c_0 cancels: voice and field pass the same microphone there.
    alone_F = np.abs(field.target_FM[:, field.reference]) ** 2
    return 10.0 * np.log10(signal_F / alone_F * field.diffuse_FMM[:, field.reference, field.reference].real / noise_F)
