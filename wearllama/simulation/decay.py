"""How sound in a box dies away when its walls scatter only in part.

A ray in direction u meets the two walls across axis i c |u_i| / L_i times a second; with absorption exponent a
(energy factor e^-a a hit) it decays at c a sum |u_i| / L_i.  Scattered sound changes direction all the time and decays
at the mean of that, c a S / 4 V (Eyring).  In between, a share ``scattering`` of either.  Flat and long rooms keep
sound along their long axes far longer than Eyring says, which is why a hallway needs this.

Shapes: D directions, B bands, K times.
"""

from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from wearllama.simulation.heads import sphere_directions

SPEED_OF_SOUND = 343.0
_DIRECTIONS = 512
_TIMES = 512
_BLOCKS = 20

Array = NDArray[np.float64]
Size = tuple[float, float, float]


def direction_rates(size_m: Size, exponent_B: ArrayLike, scattering: float, directions_D3: Array) -> Array:
    """Energy decay (B, D) in nepers a second of late sound that arrives from each direction; walls only."""
    hits_D = np.abs(directions_D3) @ (1 / np.asarray(size_m))
    x, y, z = size_m
    mean = (x * y + y * z + x * z) / (2 * x * y * z)  # S / 4 V
    return SPEED_OF_SOUND * np.outer(np.asarray(exponent_B), (1 - scattering) * hits_D + scattering * mean)


def decay_time(energy_K: Array, time_K: Array, low_db: float = -25.0) -> float:
    """Time for 60 dB from the slope of a steady decay between -5 dB and ``low_db`` after Schroeder's integration.

    Raises:
        ValueError: what is there at the end (noise, or a decay that was cut off) is not 5 dB below ``low_db``.
    """
    blocks = np.array([part.mean() for part in np.array_split(energy_K, min(_BLOCKS, len(energy_K)))])
    depth = 10 * np.log10(max(blocks[-1], 1e-30) / max(blocks.max(), 1e-30))
    if depth > low_db - 5.0:
        raise ValueError(f"decay: {depth:.1f} dB at its end, wanted {low_db - 5.0:.0f} dB or less")
    integral_K = np.cumsum(energy_K[::-1])[::-1]
    level_K = 10 * np.log10(np.maximum(integral_K / integral_K[0], 1e-30))
    inside_K = (level_K <= -5.0) & (level_K >= low_db)
    slope = np.polyfit(time_K[inside_K], level_K[inside_K], 1)[0] if np.sum(inside_K) > 1 else -np.inf
    return float(-60.0 / slope)


@lru_cache(maxsize=64)
def calibrated_exponent(size_m: Size, rt60_s: float, scattering: float, air: float) -> float:
    """Absorption exponent of the walls with which the decay (-5 to -25 dB) has the asked reverberation time.

    Raises:
        ValueError: no walls give that decay, because the air alone is faster or the box is too large for it.
    """
    directions_D3 = sphere_directions(_DIRECTIONS)
    time_K = np.linspace(0, 1.5 * rt60_s, _TIMES)

    def found(exponent: float) -> float:
        rate_D = direction_rates(size_m, [exponent], scattering, directions_D3)[0] + SPEED_OF_SOUND * air
        try:
            return decay_time(np.exp(-rate_D[:, None] * time_K).mean(axis=0), time_K)
        except ValueError:  # too slow for the time looked at
            return np.inf

    low, high = 1e-4, 4.0
    if not found(high) < rt60_s < found(low):
        raise ValueError(f"room of {size_m} m: no walls give it a reverberation time of {rt60_s} s")
    for _ in range(40):
        middle = float(np.sqrt(low * high))
        low, high = (middle, high) if found(middle) > rt60_s else (low, middle)
    return high


def slowest_first(rate_D: Array, groups: int) -> list[NDArray[np.intp]]:
    """Directions in ``groups`` of equal count by their decay, the most lasting first."""
    return [np.sort(part) for part in np.array_split(np.argsort(rate_D, kind="stable"), groups)]
