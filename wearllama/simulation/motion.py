"""A head that turns or walks: poses it takes in a space, and when a mixture is in which.

The bank holds one response a source and pose; poses are numbered along one track (..., -1, 0, 1, ...), 0 the one that
still scenes use.  A mixture goes along the track: each source is cross-faded from pose to pose, its responses aligned
by their first arrival, so that the direct sound fades between neighbours and not between echoes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from wearllama.simulation.spaces import Space

SAMPLE_RATE = 16_000
HEAD_MARGIN_M = 0.25
SOURCE_MARGIN_M = 0.4
TURN_DEG_S = (30.0, 150.0)
"""How fast heads turn."""
WALK_M_S = (0.6, 1.5)
"""How fast people walk."""

Waypoints = tuple[tuple[float, int], ...]
"""(seconds into the mixture, pose or entry), in time."""


@dataclass(frozen=True, kw_only=True)
class MotionConfig:
    """How many rooms have poses, and which."""

    share: float = 0.0
    """Rooms whose responses are rendered for a track of poses; the others have one."""
    turning: float = 0.6
    """Of these, rooms where the head turns; in the others it walks."""
    turn_deg: tuple[float, float] = (30.0, 70.0)
    """Largest turn to either side."""
    turn_step_deg: float = 10.0
    walk_m: tuple[float, float] = (0.5, 1.5)
    walk_step_m: float = 0.15

    def __post_init__(self) -> None:
        if not (0 <= self.share <= 1 and 0 <= self.turning <= 1):
            raise ValueError(f"motion config: share {self.share} and turning {self.turning}, wanted 0 to 1")
        if self.turn_step_deg <= 0 or self.walk_step_m <= 0:
            raise ValueError("motion config: turn_step_deg and walk_step_m must be positive")
        for name in ("turn_deg", "walk_m"):
            low, high = getattr(self, name)
            if not 0 < low <= high:
                raise ValueError(f"motion config: {name} is {(low, high)}, wanted 0 < low <= high")


class Pose(NamedTuple):
    """One place on a track."""

    number: int
    turn_deg: float
    ahead_m: float


def draw_poses(
    config: MotionConfig, space: Space, places: Sequence[NDArray[np.float64]], rng: np.random.Generator
) -> tuple[Pose, ...]:
    """The poses of a room, number 0 first; a walk ends before a wall or one of the sources at ``places``."""
    moves, turns, extent = rng.uniform(size=3)
    still = Pose(0, 0.0, 0.0)
    if moves >= config.share:
        return (still,)
    if turns < config.turning:
        low, high = config.turn_deg
        steps = max(1, round((low + extent * (high - low)) / config.turn_step_deg))
        numbers = [number for number in range(-steps, steps + 1) if number]
        return (still, *(Pose(number, number * config.turn_step_deg, 0.0) for number in numbers))
    low, high = config.walk_m
    steps = max(1, round((low + extent * (high - low)) / config.walk_step_m))
    walk = []
    for number in range(1, steps + 1):
        pose = Pose(number, 0.0, number * config.walk_step_m)
        head_3 = np.asarray(space.moved(0.0, pose.ahead_m).head_m)
        near = min((float(np.linalg.norm(place_3 - head_3)) for place_3 in places), default=np.inf)
        if near < SOURCE_MARGIN_M or not space.holds(head_3, HEAD_MARGIN_M):
            break
        walk.append(pose)
    return (still, *walk)


def draw_track(poses: Sequence[Pose], seconds: float, rng: np.random.Generator) -> Waypoints:
    """When a mixture of ``seconds`` is in which pose: it stands, moves from one end of a stretch to the other, stands.

    ``poses`` along the track.  Returns one waypoint a pose on the way.
    """
    position, length, speed, start = rng.uniform(size=4)
    count = len(poses)
    first = int(position * count)
    last = int(length * (count - 1))
    last += last >= first  # any pose but the first
    way = poses[first : last + 1] if last > first else poses[last : first + 1][::-1]
    turns = any(pose.turn_deg for pose in poses)
    low, high = TURN_DEG_S if turns else WALK_M_S
    rate = low + speed * (high - low)
    travelled = [abs((p.turn_deg - way[0].turn_deg) if turns else (p.ahead_m - way[0].ahead_m)) / rate for p in way]
    begin = start * max(seconds - travelled[-1], 0.0)
    return tuple((begin + time, pose.number) for time, pose in zip(travelled, way, strict=True))


def fade_weights(path: Waypoints, first_sample: int, samples: int) -> list[tuple[int, NDArray[np.float32]]]:
    """How much of each waypoint's response every sample of a source gets; the weights of a sample add up to one.

    ``first_sample`` is where the source starts in the mixture.  Returns (offset into the source, weights) for each
    waypoint in order, empty where it is not heard.
    """
    times = np.array([time for time, _ in path])
    edges = np.clip(np.ceil(times * SAMPLE_RATE).astype(int) - first_sample, 0, samples)
    pieces = []
    for number in range(len(path)):
        low = int(edges[number - 1]) if number > 0 else 0
        high = int(edges[number + 1]) if number + 1 < len(path) else samples
        time_N = (first_sample + np.arange(low, high)) / SAMPLE_RATE
        place_N = np.interp(time_N, times, np.arange(len(path)))
        weight_N = np.sin(np.pi / 2 * np.maximum(1 - np.abs(place_N - number), 0.0)) ** 2
        pieces.append((low, weight_N.astype(np.float32)))
    return pieces
