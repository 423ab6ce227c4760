"""Spaces other than rooms: a hallway, the cabin of a car, the open air.  Figures are ours, after textbook ranges."""

from dataclasses import dataclass

import numpy as np

from wearllama.simulation.spaces import GROUNDS, OpenAir, RoomSpec

EYE_HEIGHTS_M = (1.2, 1.65)
"""Sitting and standing."""
HALLWAY_SCATTERING = 0.3
CAR_WALLS = (0.7, 1.6, 0.6, 0.6, 2.0, 1.2)
"""Windscreen, rear seats, side windows, floor and seats, roof lining."""


@dataclass(frozen=True, kw_only=True)
class BoxRanges:
    """Ranges of a box: metres and seconds."""

    length_m: tuple[float, float]
    width_m: tuple[float, float]
    height_m: tuple[float, float]
    rt60_s: tuple[float, float]

    def __post_init__(self) -> None:
        for name in ("length_m", "width_m", "height_m", "rt60_s"):
            low, high = getattr(self, name)
            if not 0 < low <= high:
                raise ValueError(f"scene config: {name} is {(low, high)}, wanted 0 < low <= high")


HALLWAY = BoxRanges(length_m=(8.0, 30.0), width_m=(1.5, 3.0), height_m=(2.4, 3.2), rt60_s=(0.4, 1.2))
CAR = BoxRanges(length_m=(2.2, 3.2), width_m=(1.35, 1.6), height_m=(1.15, 1.4), rt60_s=(0.05, 0.1))


@dataclass(frozen=True, kw_only=True)
class OpenAirRanges:
    """Where one stands outdoors."""

    grounds: tuple[str, ...] = tuple(GROUNDS)

    def __post_init__(self) -> None:
        if not self.grounds or (unknown := set(self.grounds) - set(GROUNDS)):
            found = sorted(unknown) if self.grounds else "nothing"
            raise ValueError(f"scene config: open_air.grounds has {found}, wanted some of {', '.join(GROUNDS)}")


def draw_hallway(ranges: BoxRanges, rng: np.random.Generator) -> RoomSpec:
    """A long room with hard walls; the wearer looks along it, more or less."""
    length, width, height = (rng.uniform(*r) for r in (ranges.length_m, ranges.width_m, ranges.height_m))
    eyes = rng.choice(EYE_HEIGHTS_M) + rng.normal(0, 0.05)
    return RoomSpec(
        kind="hallway",
        size_m=(length, width, height),
        rt60_s=rng.uniform(*ranges.rt60_s),
        head_m=(rng.uniform(1.0, length - 1.0), rng.uniform(0.35, 0.65) * width, min(eyes, height - 0.3)),
        yaw_deg=rng.choice([0.0, 180.0]) + rng.normal(0, 25),
        tilt=rng.uniform(-0.1, 0.2),
        scattering=HALLWAY_SCATTERING,
    )


def draw_car(ranges: BoxRanges, rng: np.random.Generator) -> RoomSpec:
    """A cabin seen from one of its four seats; windows reflect, seats and floor absorb."""
    length, width, height = (rng.uniform(*r) for r in (ranges.length_m, ranges.width_m, ranges.height_m))
    seat = rng.choice([0.55, 0.25]) + rng.uniform(-0.04, 0.04)  # front or back, as a share of the length
    side = rng.choice([0.27, 0.73]) + rng.uniform(-0.03, 0.03)
    return RoomSpec(
        kind="car",
        size_m=(length, width, height),
        rt60_s=rng.uniform(*ranges.rt60_s),
        head_m=(seat * length, side * width, height - rng.uniform(0.2, 0.3)),
        yaw_deg=rng.normal(0, 25),
        tilt=rng.uniform(0.0, 0.25),
        mix_time_s=0.02,
        wall_weights=CAR_WALLS,
    )


def draw_open_air(ranges: OpenAirRanges, rng: np.random.Generator) -> OpenAir:
    """Somebody who sits or stands outdoors."""
    ground = ranges.grounds[int(rng.integers(len(ranges.grounds)))]
    return OpenAir(
        head_m=(0.0, 0.0, rng.choice(EYE_HEIGHTS_M) + rng.normal(0, 0.05)), yaw_deg=rng.uniform(0, 360), ground=ground
    )
