"""What a device does to sound after the rooms and before the beam: mismatch, self-noise, clipping, 16 bits.

The beam keeps its nominal weights, so that a model meets the imperfect beam it will meet in use.

Shapes: M channels, N samples, F bins.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import scipy.fft
from numpy.typing import NDArray

HILBERT_HALF = 31
"""Taps to either side of the centred phase shifter."""
_POOL_SAMPLES = 2**20


@dataclass(frozen=True, kw_only=True)
class DeviceConfig:
    """Imperfections of one device; zero or None switches each off."""

    gain_sd_db: float = 1.0
    """Standard deviation of each microphone's gain."""
    phase_deg: float = 5.0
    """Largest phase error of a microphone against c_0."""
    self_noise_db: float | tuple[float, float] | None = (50.0, 55.0)
    """How far microphone noise is under own voice of nominal effort at c_0."""
    clip: float = 1.0
    """Full scale at which every channel clips."""
    quantise: bool = True
    """Round to 16 bits."""

    def __post_init__(self) -> None:
        if self.gain_sd_db < 0 or not 0 <= self.phase_deg <= 45 or not 0 < self.clip <= 1:
            raise ValueError(f"device config: {self} has gain_sd_db < 0, phase_deg outside 0..45 or clip outside 0..1")
        if isinstance(self.self_noise_db, list):
            object.__setattr__(self, "self_noise_db", tuple(self.self_noise_db))


IDEAL_DEVICE = DeviceConfig(gain_sd_db=0.0, phase_deg=0.0, self_noise_db=None, quantise=False)


@dataclass(frozen=True, kw_only=True)
class DeviceDraw:
    """One device drawn: what each channel does to sound."""

    gain_M: NDArray[np.float64]
    phase_rad_M: NDArray[np.float64]
    self_noise_db: float | None

    @property
    def is_linear_identity(self) -> bool:
        return bool(np.all(self.gain_M == 1.0) and np.all(self.phase_rad_M == 0.0))

    def response_MF(self, n_fft: int) -> NDArray[np.complex64]:
        """Centred filters (M, n_fft // 2 + 1): a gain and a phase that is constant over frequency."""
        hilbert_F = _hilbert_spectrum(n_fft)
        turn_MF = np.cos(self.phase_rad_M)[:, None] + np.sin(self.phase_rad_M)[:, None] * hilbert_F
        return (self.gain_M[:, None] * turn_MF).astype(np.complex64)


def draw_device(config: DeviceConfig, num_mics: int, reference: int, rng: np.random.Generator) -> DeviceDraw:
    """Draw gains, phases (c_0's is the zero) and the self-noise level; always takes the same numbers from ``rng``."""
    gain_M = 10 ** (rng.standard_normal(num_mics) * config.gain_sd_db / 20)
    phase_M = np.deg2rad(rng.uniform(-1, 1, num_mics) * config.phase_deg)
    phase_M[reference] = 0.0
    position = rng.uniform()
    level = config.self_noise_db
    if isinstance(level, tuple):
        level = level[0] + position * (level[1] - level[0])
    return DeviceDraw(gain_M=gain_M, phase_rad_M=phase_M, self_noise_db=level)


def add_self_noise(audio_MN: NDArray[np.float32], rms: float, rng: np.random.Generator) -> None:
    """Add independent white noise of ``rms`` to every channel in place."""
    pool = _noise_pool()
    length = audio_MN.shape[1]
    for channel_N, start in zip(audio_MN, rng.integers(0, _POOL_SAMPLES, len(audio_MN)), strict=True):
        channel_N += np.float32(rms) * np.take(pool, np.arange(start, start + length), mode="wrap")


def limit_and_quantise(audio_MN: NDArray[np.float32], config: DeviceConfig) -> NDArray[np.float32]:
    """Clip at full scale and round to 16 bits, in place."""
    np.clip(audio_MN, -config.clip, config.clip, out=audio_MN)
    if config.quantise:
        audio_MN *= 32768.0
        np.rint(audio_MN, out=audio_MN)
        audio_MN *= 1 / 32768.0
        np.minimum(audio_MN, 32767 / 32768, out=audio_MN)
    return audio_MN


@lru_cache(maxsize=4)
def _hilbert_spectrum(n_fft: int) -> NDArray[np.complex64]:
    """Spectrum of a windowed, centred Hilbert transformer: about +j (a phase lead) at positive frequencies."""
    tap = np.arange(1, HILBERT_HALF + 1)
    half = np.where(tap % 2 == 1, 2 / (np.pi * tap), 0.0) * np.cos(np.pi * tap / (2 * HILBERT_HALF + 2)) ** 2
    kernel = np.zeros(n_fft)
    kernel[tap] = -half
    kernel[-tap] = half
    return scipy.fft.rfft(kernel).astype(np.complex64)


@lru_cache(maxsize=1)
def _noise_pool() -> NDArray[np.float32]:
    return np.random.default_rng(20_260).standard_normal(_POOL_SAMPLES, np.float32)
