"""Effects of ``audiomentations`` that are safe for arrays: one and the same operation on every channel.

Its filters, equaliser, aliasing and bit-crushing are; what it does with noise and rooms is not (one mono noise on all
channels has no direction and no coherence, a mono response moves the wearer's voice into the room), so noise and
reverberation are in :mod:`wearllama.simulation.perturb`.  Parameters are ours where its defaults are ranges.

Shapes: M channels, N samples.
"""

import random
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

SAMPLE_RATE = 16_000
_lock = threading.Lock()

Signal = NDArray[np.float32]
Effect = Callable[[Signal, float, np.random.Generator], Signal]


def low_pass(audio_MN: Signal, cutoff_hz: float, rng: np.random.Generator) -> Signal:
    """12 dB an octave above ``cutoff_hz``."""
    return _apply("LowPassFilter", audio_MN, rng, min_cutoff_freq=cutoff_hz, max_cutoff_freq=cutoff_hz, **_ROLLOFF)


def high_pass(audio_MN: Signal, cutoff_hz: float, rng: np.random.Generator) -> Signal:
    """12 dB an octave below ``cutoff_hz``."""
    return _apply("HighPassFilter", audio_MN, rng, min_cutoff_freq=cutoff_hz, max_cutoff_freq=cutoff_hz, **_ROLLOFF)


def band_pass(audio_MN: Signal, centre_hz: float, rng: np.random.Generator) -> Signal:
    """A band as wide as its centre frequency, 12 dB an octave outside."""
    band = dict(min_center_freq=centre_hz, max_center_freq=centre_hz, min_bandwidth_fraction=1.0)
    return _apply("BandPassFilter", audio_MN, rng, max_bandwidth_fraction=1.0, **band, **_ROLLOFF)


def equaliser(audio_MN: Signal, most_db: float, rng: np.random.Generator) -> Signal:
    """Seven bands raised or lowered at random by up to ``most_db``."""
    return _apply("SevenBandParametricEQ", audio_MN, rng, min_gain_db=-most_db, max_gain_db=most_db)


def aliasing(audio_MN: Signal, rate_hz: float, rng: np.random.Generator) -> Signal:
    """Sampled at ``rate_hz`` without a filter, and back."""
    return _apply("Aliasing", audio_MN, rng, min_sample_rate=round(rate_hz), max_sample_rate=round(rate_hz))


def bit_crush(audio_MN: Signal, bits: float, rng: np.random.Generator) -> Signal:
    """Rounded to ``bits`` bits of full scale."""
    return _apply("BitCrush", audio_MN, rng, min_bit_depth=round(bits), max_bit_depth=round(bits))


_ROLLOFF: dict[str, Any] = {"min_rolloff": 12, "max_rolloff": 12, "zero_phase": False}


def _apply(name: str, audio_MN: Signal, rng: np.random.Generator, **parameters: Any) -> Signal:
    try:
        import audiomentations
    except ImportError:
        raise ValueError("this condition needs audiomentations: pip install 'wearllama[conditions]'") from None
    with _seeded(int(rng.integers(2**31))), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # on levels above full scale, which float samples may have
        transform = getattr(audiomentations, name)(p=1.0, **parameters)
        changed = transform(samples=np.ascontiguousarray(audio_MN), sample_rate=SAMPLE_RATE)
    return np.asarray(changed, np.float32)


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """The library draws from the global generators: seeded for the call, then put back."""
    with _lock:
        states = random.getstate(), np.random.get_state()
        try:
            random.seed(seed)
            np.random.seed(seed % 2**32)
            yield
        finally:
            random.setstate(states[0])
            np.random.set_state(states[1])
