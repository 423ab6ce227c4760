"""Where a wearer can be: a room (shoebox, hallway, car cabin) or the open air, and where the head is in it.

Space coordinates are x, y, z up in metres; head coordinates as in :mod:`wearllama.audio.array`.
Shapes: B octave bands, D directions, F frequency bins, K times, I points.
"""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import scipy.fft
from numpy.typing import NDArray

from wearllama.simulation.decay import calibrated_exponent, direction_rates, slowest_first

SPEED_OF_SOUND = 343.0
SAMPLE_RATE = 16_000
BANDS_HZ = (125.0, 250.0, 500.0, 1000.0, 2000.0, 4000.0, 8000.0)
AIR_ABSORPTION = (0.0001, 0.0003, 0.0006, 0.001, 0.0019, 0.0058, 0.0203)
"""Energy attenuation of air per metre at 20 degrees C, 50-70 % humidity (ISO 9613-1 figures)."""
GROUNDS = {
    "asphalt": (0.02, 0.02, 0.03, 0.04, 0.05, 0.05, 0.06),
    "gravel": (0.1, 0.2, 0.35, 0.5, 0.6, 0.65, 0.7),
    "grass": (0.1, 0.2, 0.4, 0.55, 0.65, 0.75, 0.8),
}
"""Energy absorption per band of what one stands on outdoors; ours, after textbook tables."""
KINDS = ("shoebox", "hallway", "car", "open_air")
AMBIENCE_S = 0.2  # length of the decaying field that stands for noise from everywhere outdoors
AMBIENCE_RISE = 0.5  # sine of the elevation up to which it comes from
TAIL_GROUPS = 4
COARSE_TIMES = 256

Array = NDArray[np.float64]
Groups = list[tuple[slice | NDArray[np.intp], Array]]


def band_weights(n_fft: int) -> Array:
    """Zero-phase octave weights (B, F) that add up to one at every bin."""
    octave_F = np.log2(np.maximum(scipy.fft.rfftfreq(n_fft, 1 / SAMPLE_RATE), 1.0))
    centre_B1 = np.log2(np.asarray(BANDS_HZ))[:, None]
    rising_BF = np.clip(octave_F - centre_B1 + 1, 0, 1)
    falling_BF = np.clip(centre_B1 + 1 - octave_F, 0, 1)
    weights_BF = np.minimum(rising_BF, falling_BF)
    weights_BF[0, octave_F <= np.log2(BANDS_HZ[0])] = 1.0
    return weights_BF / weights_BF.sum(axis=0)


@dataclass(frozen=True, kw_only=True)
class Space:
    """The wearer's head somewhere."""

    head_m: tuple[float, float, float]
    yaw_deg: float
    """Where the wearer looks: 0 along +x, counted anticlockwise."""
    kind: str
    rt60_s: float
    mix_time_s: float = 0.05
    """Until when single reflections are followed."""

    def to_head(self, vectors_I3: Array) -> Array:
        """Rotate space vectors into head coordinates (x left, y up, z ahead)."""
        yaw = np.deg2rad(self.yaw_deg)
        ahead = np.array([np.cos(yaw), np.sin(yaw), 0.0])
        left = np.array([-np.sin(yaw), np.cos(yaw), 0.0])
        return np.stack([vectors_I3 @ left, vectors_I3[..., 2], vectors_I3 @ ahead], axis=-1)

    def to_room(self, vectors_I3: Array) -> Array:
        """Rotate head vectors into space coordinates."""
        yaw = np.deg2rad(self.yaw_deg)
        ahead = np.array([np.cos(yaw), np.sin(yaw), 0.0])
        left = np.array([-np.sin(yaw), np.cos(yaw), 0.0])
        up = np.array([0.0, 0.0, 1.0])
        return vectors_I3[..., 0:1] * left + vectors_I3[..., 2:3] * ahead + vectors_I3[..., 1:2] * up

    def moved(self, turn_deg: float, ahead_m: float) -> Self:
        """The same space with the head ``ahead_m`` further along where it looked, then turned (positive: left)."""
        step_3 = self.to_room(np.array([0.0, 0.0, ahead_m]))
        x, y, z = (float(value) for value in np.asarray(self.head_m) + step_3)
        return replace(self, head_m=(x, y, z), yaw_deg=self.yaw_deg + turn_deg)

    def holds(self, place_3: Array, margin_m: float) -> bool:
        """Whether a point is inside, ``margin_m`` off every wall."""
        raise NotImplementedError

    def tail_energy(self) -> float:
        """Energy a sample that the late reflections of an even source bring at first, its direct sound being 1/r."""
        raise NotImplementedError

    def decays(self, directions_D3: Array, time_K: Array) -> Groups:
        """Late sound: groups of directions (space coordinates) and the amplitude (B, K) of each over time."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class RoomSpec(Space):
    """A box with walls."""

    size_m: tuple[float, float, float]
    rt60_s: float
    """Reverberation time at 1 kHz; other bands follow from their absorption."""
    tilt: float = 0.0
    """Absorption slope: factor 2**(tilt * octaves above 1 kHz)."""
    kind: str = "shoebox"
    wall_weights: tuple[float, float, float, float, float, float] = (1.0, 1.0, 1.0, 1.0, 1.0, 1.0)
    """Absorption of the walls x-, x+, y-, y+, floor, ceiling relative to each other."""
    scattering: float | None = None
    """None: a diffuse late field that decays after Eyring.  A number (0..1): how much of it the walls scatter; sound
    along the longest axis then outlasts the rest, and the absorption is calibrated until the decay has the asked
    RT60."""

    def __post_init__(self) -> None:
        if min(self.size_m) <= 0 or self.rt60_s <= 0:
            raise ValueError(f"room: size {self.size_m} and rt60 {self.rt60_s} must be positive")
        if not self.holds(np.asarray(self.head_m), 0.0):
            raise ValueError(f"room: head {self.head_m} is outside the room {self.size_m}")
        if min(self.wall_weights) < 0 or max(self.wall_weights) <= 0:
            raise ValueError(f"room: wall_weights are {self.wall_weights}, wanted 0 or more and not all 0")
        if self.scattering is not None and not 0 <= self.scattering <= 1:
            raise ValueError(f"room: scattering is {self.scattering}, wanted 0 to 1")

    @property
    def volume(self) -> float:
        return float(np.prod(self.size_m))

    @property
    def surface(self) -> float:
        x, y, z = self.size_m
        return 2 * (x * y + y * z + x * z)

    def holds(self, place_3: Array, margin_m: float) -> bool:
        return bool(np.all(place_3 > margin_m) and np.all(place_3 < np.asarray(self.size_m) - margin_m))

    def absorption_B(self) -> Array:
        """Mean energy absorption per band, such that the decay at 1 kHz is the asked one."""
        if self.scattering is None:
            alpha = 1 - np.exp(-0.1611 * self.volume / (self.surface * self.rt60_s))
        else:
            alpha = 1 - np.exp(-calibrated_exponent(self.size_m, self.rt60_s, self.scattering, AIR_ABSORPTION[3]))
        octaves = np.log2(np.asarray(BANDS_HZ) / 1000.0)
        return np.clip(alpha * 2 ** (self.tilt * octaves), 0.01, 0.98)

    def wall_absorption_WB(self) -> Array:
        """Energy absorption of each wall and band; the mean exponent over the surface is that of ``absorption_B``."""
        x, y, z = self.size_m
        area_W = np.array([y * z, y * z, x * z, x * z, x * y, x * y])
        weight_W = np.asarray(self.wall_weights) * area_W.sum() / np.sum(area_W * np.asarray(self.wall_weights))
        return 1 - np.exp(weight_W[:, None] * np.log1p(-self.absorption_B()))

    def rt60_B(self) -> Array:
        """Reverberation time per band in seconds after Eyring, air included."""
        walls = -self.surface * np.log1p(-self.absorption_B())
        return 0.1611 * self.volume / (walls + 4 * np.asarray(AIR_ABSORPTION) * self.volume)

    def tail_energy(self) -> float:
        return 4 * np.pi * SPEED_OF_SOUND / (self.volume * SAMPLE_RATE)

    def decays(self, directions_D3: Array, time_K: Array) -> Groups:
        if self.scattering is None:
            return [(slice(None), 10 ** (-3 * time_K / self.rt60_B()[:, None]))]
        exponent_B = -np.log1p(-self.absorption_B())
        rate_BD = direction_rates(self.size_m, exponent_B, self.scattering, directions_D3)
        rate_BD += SPEED_OF_SOUND * np.asarray(AIR_ABSORPTION)[:, None]
        coarse_J = np.linspace(time_K[0], time_K[-1], min(len(time_K), COARSE_TIMES))
        groups: Groups = []
        for members in slowest_first(rate_BD[3], TAIL_GROUPS):
            level_BJ = np.log(np.mean(np.exp(-rate_BD[:, members, None] * coarse_J), axis=1)) / 2
            groups.append((members, np.exp([np.interp(time_K, coarse_J, level_J) for level_J in level_BJ])))
        return groups


@dataclass(frozen=True, kw_only=True)
class OpenAir(Space):
    """No walls, only ground at height 0."""

    ground: str = "asphalt"
    kind: str = "open_air"
    rt60_s: float = 0.0
    """Nothing decays outdoors."""

    def __post_init__(self) -> None:
        if self.ground not in GROUNDS:
            raise ValueError(f"open air: ground is {self.ground!r}, wanted one of {', '.join(GROUNDS)}")
        if self.head_m[2] <= 0 or self.rt60_s != 0:
            raise ValueError(f"open air: head at height {self.head_m[2]} (wanted > 0) and rt60_s {self.rt60_s} (0)")

    def holds(self, place_3: Array, margin_m: float) -> bool:
        return bool(place_3[2] > margin_m)

    def tail_energy(self) -> float:
        return 0.0

    def decays(self, directions_D3: Array, time_K: Array) -> Groups:
        """A stand-in for noise from everywhere around: level directions, flat, short."""
        level = np.flatnonzero(np.abs(directions_D3[:, 2]) < AMBIENCE_RISE)
        envelope_K = 10 ** (-3 * time_K / AMBIENCE_S)
        return [(level, np.tile(envelope_K, (len(BANDS_HZ), 1)))]
