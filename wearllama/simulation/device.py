"""What a device does to sound after the rooms and before the beam: mismatch, self-noise, clipping, 16 bits, failures.

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
    clip: float | tuple[float, float] = 1.0
    """Full scale at which every channel clips."""
    dead: tuple[int, ...] = ()
    """Microphones that give nothing but their self-noise."""
    covered: tuple[int, ...] = ()
    """Microphones under hair, cloth or a finger."""
    dead_probability: float = 0.0
    """How often each other microphone is dead; one at least works."""
    covered_probability: float = 0.0
    """How often each other microphone is covered."""
    cover_db: float | tuple[float, float] = (10.0, 25.0)
    """What a cover takes away far above 500 Hz."""
    quantise: bool = True
    """Round to 16 bits."""

    def __post_init__(self) -> None:
        for name in ("self_noise_db", "clip", "dead", "covered", "cover_db"):
            if isinstance(getattr(self, name), list):
                object.__setattr__(self, name, tuple(getattr(self, name)))
        if self.gain_sd_db < 0 or not 0 <= self.phase_deg <= 45 or not 0 < np.min(self.clip) <= np.max(self.clip) <= 1:
            raise ValueError(f"device config: {self} has gain_sd_db < 0, phase_deg outside 0..45 or clip outside 0..1")
        if min(self.dead_probability, self.covered_probability, np.min(self.cover_db)) < 0:
            raise ValueError(f"device config: {self} has a negative probability or cover_db")
        if max(self.dead_probability, self.covered_probability) > 1:
            raise ValueError(f"device config: {self} has a probability over 1")


IDEAL_DEVICE = DeviceConfig(gain_sd_db=0.0, phase_deg=0.0, self_noise_db=None, quantise=False)


@dataclass(frozen=True, kw_only=True)
class DeviceDraw:
    """One device drawn: what each channel does to sound."""

    gain_M: NDArray[np.float64]
    phase_rad_M: NDArray[np.float64]
    self_noise_db: float | None
    dead_M: NDArray[np.bool_]
    cover_db_M: NDArray[np.float64]
    """0: not covered."""
    clip: float = 1.0

    @property
    def is_linear_identity(self) -> bool:
        return bool(np.all(self.gain_M == 1.0) and np.all(self.phase_rad_M == 0.0) and not self.cover_db_M.any())

    def response_MF(self, n_fft: int) -> NDArray[np.complex64]:
        """Centred filters (M, n_fft // 2 + 1): a gain, a phase that is constant over frequency, and a cover's loss."""
        hilbert_F = _hilbert_spectrum(n_fft)
        turn_MF = np.cos(self.phase_rad_M)[:, None] + np.sin(self.phase_rad_M)[:, None] * hilbert_F
        response_MF = (self.gain_M[:, None] * turn_MF).astype(np.complex64)
        for mic in np.flatnonzero(self.cover_db_M):
            # Both filters share the taps that a block leaves for the device, so they are cut to them together.
            response_MF[mic] = _shortened(response_MF[mic] * _cover_gain(float(self.cover_db_M[mic]), n_fft), n_fft)
        return response_MF

    def failures(self) -> dict[str, list[int]]:
        """Dead and covered microphones, for metadata; empty where there are none."""
        found = {"dead": np.flatnonzero(self.dead_M).tolist(), "covered": np.flatnonzero(self.cover_db_M).tolist()}
        return {name: mics for name, mics in found.items() if mics}


def draw_device(config: DeviceConfig, num_mics: int, reference: int, rng: np.random.Generator) -> DeviceDraw:
    """Draw gains, phases (c_0's is the zero) and the self-noise level; always takes the same numbers from ``rng``."""
    gain_M = 10 ** (rng.standard_normal(num_mics) * config.gain_sd_db / 20)
    phase_M = np.deg2rad(rng.uniform(-1, 1, num_mics) * config.phase_deg)
    phase_M[reference] = 0.0
    position = rng.uniform()
    level = config.self_noise_db
    if isinstance(level, tuple):
        level = level[0] + position * (level[1] - level[0])
    dead_M, cover_M, clip = _draw_failures(config, num_mics, rng.spawn(1)[0])  # leaves rng's own numbers alone
    return DeviceDraw(
        gain_M=gain_M, phase_rad_M=phase_M, self_noise_db=level, dead_M=dead_M, cover_db_M=cover_M, clip=clip
    )


def _draw_failures(
    config: DeviceConfig, num_mics: int, rng: np.random.Generator
) -> tuple[NDArray[np.bool_], NDArray[np.float64], float]:
    if outside := [mic for mic in (*config.dead, *config.covered) if not 0 <= mic < num_mics]:
        raise ValueError(f"device config: microphones {outside} fail, the array has 0..{num_mics - 1}")
    chance_M, cover_chance_M, depth_M = rng.uniform(size=(3, num_mics))
    position = rng.uniform()
    dead_M = chance_M < config.dead_probability
    dead_M[list(config.dead)] = True
    if dead_M.all():
        if len(config.dead) == num_mics:
            raise ValueError("device config: every microphone is dead")
        dead_M[int(np.argmax(np.where(np.isin(np.arange(num_mics), config.dead), -1.0, chance_M)))] = False
    covered_M = cover_chance_M < config.covered_probability
    covered_M[list(config.covered)] = True
    low, high = _as_range(config.cover_db)
    low_clip, high_clip = _as_range(config.clip)
    return dead_M, np.where(covered_M, low + depth_M * (high - low), 0.0), low_clip + position * (high_clip - low_clip)


def _as_range(value: float | tuple[float, float]) -> tuple[float, float]:
    return value if isinstance(value, tuple) else (value, value)


def add_self_noise(audio_MN: NDArray[np.float32], rms: float, rng: np.random.Generator) -> None:
    """Add independent white noise of ``rms`` to every channel in place."""
    pool = _noise_pool()
    length = audio_MN.shape[1]
    for channel_N, start in zip(audio_MN, rng.integers(0, _POOL_SAMPLES, len(audio_MN)), strict=True):
        channel_N += np.float32(rms) * np.take(pool, np.arange(start, start + length), mode="wrap")


def limit_and_quantise(audio_MN: NDArray[np.float32], clip: float, quantise: bool) -> NDArray[np.float32]:
    """Clip at full scale and round to 16 bits, in place."""
    np.clip(audio_MN, -clip, clip, out=audio_MN)
    if quantise:
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


@lru_cache(maxsize=64)
def _cover_gain(cover_db: float, n_fft: int) -> NDArray[np.float32]:
    """Loss (F,) of a cover: nothing at the lowest frequencies, ``cover_db`` far above 500 Hz."""
    freqs_F = scipy.fft.rfftfreq(n_fft, 1 / 16_000)
    return (10 ** (-cover_db / 20 * freqs_F**2 / (freqs_F**2 + 500.0**2))).astype(np.float32)


def _shortened(response_F: NDArray[np.complex64], n_fft: int) -> NDArray[np.complex64]:
    """The centred filter of a response, cut to ``HILBERT_HALF`` taps on either side."""
    kernel_K = scipy.fft.irfft(response_F, n_fft)
    tap = np.arange(-HILBERT_HALF, HILBERT_HALF + 1)
    short_K = np.zeros(n_fft, np.float32)
    short_K[tap] = kernel_K[tap] * np.cos(np.pi * tap / (2 * HILBERT_HALF + 2)) ** 2
    return np.asarray(scipy.fft.rfft(short_K), np.complex64)


@lru_cache(maxsize=1)
def _noise_pool() -> NDArray[np.float32]:
    return np.random.default_rng(20_260).standard_normal(_POOL_SAMPLES, np.float32)
