"""Measured responses of a device as transfers: what a beam is designed on and judged by instead of the head model.

Shapes: D directions, F frequencies, M microphones, K taps.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from wearllama.audio.beam_metrics import Field
from wearllama.audio.io import read_audio
from wearllama.audio.timebase import SAMPLE_RATE

Array = NDArray[np.float64]
Complex = NDArray[np.complex128]


class MeasuredDirections(NamedTuple):
    """Responses of sources around the device."""

    azimuth_D: Array
    """Degrees as the file has them."""
    response_DKM: Array


def read_directions(path: str | Path, channels: Sequence[int]) -> MeasuredDirections:
    """Responses from a ``.npz`` with ``responses`` (D, K, microphones), ``azimuth_deg`` (D,) and ``sample_rate``.

    ``channels`` picks and orders the microphones, c_0 first.  ValueError names what is missing or does not fit.
    """
    with np.load(path) as arrays:
        missing = [name for name in ("responses", "azimuth_deg", "sample_rate") if name not in arrays]
        if missing:
            raise ValueError(f"{path}: no {missing}, found {sorted(arrays)}")
        response_DKM, azimuth_D, rate = arrays["responses"], arrays["azimuth_deg"], int(arrays["sample_rate"].item())
    if rate != SAMPLE_RATE:
        raise ValueError(f"{path}: found {rate} Hz, wanted {SAMPLE_RATE} Hz")
    if response_DKM.ndim != 3 or len(azimuth_D) != len(response_DKM):
        raise ValueError(f"{path}: responses {response_DKM.shape} for {len(azimuth_D)} azimuths, wanted (D, K, M)")
    picked_DKM = response_DKM[:, :, _checked(channels, response_DKM.shape[2], path)].astype(np.float64)
    return MeasuredDirections(azimuth_D.astype(np.float64), picked_DKM)


def read_mouth(path: str | Path, channels: Sequence[int], early_s: float = 0.008) -> Array:
    """Own voice's response ``(K, M)`` without the room: faded out ``early_s`` after its peak at c_0 (first channel).

    The wearer's own shoulders and the device stay in it; walls come later.
    """
    audio_MK = read_audio(path).numpy().astype(np.float64)
    audio_MK = audio_MK[_checked(channels, len(audio_MK), path)]
    peak = int(np.argmax(np.abs(audio_MK[0])))
    after_K = np.arange(audio_MK.shape[1]) - peak
    early = early_s * SAMPLE_RATE
    fade_K = np.cos(np.pi / 2 * np.clip((after_K - early) / (early / 2), 0.0, 1.0)) * (after_K > -early)
    return (audio_MK * fade_K).T


def transfer_of(response_KM: Array, freqs_F: Array) -> Complex:
    """Transfers ``(..., F, M)`` of responses ``(..., K, M)``."""
    turn_FK = np.exp(-2j * np.pi * np.outer(freqs_F, np.arange(response_KM.shape[-2])) / SAMPLE_RATE)
    return np.einsum("fk,...km->...fm", turn_FK, response_KM)


def measured_field(mouth_KM: Array, directions: MeasuredDirections, freqs_F: Array) -> Field:
    """Own voice relative to c_0, in a field that comes evenly from all measured directions; mean microphone 1."""
    mouth_FM = transfer_of(mouth_KM, freqs_F)
    transfers_DFM = transfer_of(directions.response_DKM, freqs_F)
    diffuse_FMM = np.einsum("dfm,dfn->fmn", transfers_DFM, transfers_DFM.conj()) / len(transfers_DFM)
    power_F = np.einsum("fmm->f", diffuse_FMM).real / diffuse_FMM.shape[-1]
    return Field(
        freqs_F=freqs_F,
        target_FM=mouth_FM / mouth_FM[:, :1],
        diffuse_FMM=diffuse_FMM / np.maximum(power_F, 1e-30)[:, None, None],
    )


def _checked(channels: Sequence[int], found: int, path: str | Path) -> list[int]:
    if not channels or any(not 0 <= channel < found for channel in channels):
        raise ValueError(f"{path}: channels {list(channels)} are wanted, it has 0..{found - 1}")
    return list(channels)
