"""Where people and noises are: one drawn space and its sources, reproducible from (seed, split, index) alone."""

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from wearllama.audio.array import ArrayGeometry
from wearllama.simulation.kinds import CAR, HALLWAY, BoxRanges, OpenAirRanges, draw_car, draw_hallway, draw_open_air
from wearllama.simulation.motion import MotionConfig, Pose, draw_poses
from wearllama.simulation.rooms import Emitter
from wearllama.simulation.spaces import KINDS, RoomSpec, Space

Array = NDArray[np.float64]
WALL_MARGIN_M = 0.3
SPLITS = ("train", "eval")


@dataclass(frozen=True, kw_only=True)
class SceneConfig:
    """Ranges that rooms and positions are drawn from; metres, seconds, degrees."""

    rt60_s: tuple[float, float] = (0.15, 0.6)
    length_m: tuple[float, float] = (3.0, 8.0)
    height_m: tuple[float, float] = (2.4, 4.0)
    wearer_poses: int = 2
    """Mouth positions a room: the same head, the mouth moved by ``mouth_jitter_m``."""
    partners: int = 3
    bystanders: int = 4
    noises: int = 2
    diffuse: int = 1
    partner_azimuth_deg: float = 60.0
    partner_distance_m: tuple[float, float] = (0.5, 2.0)
    bystander_distance_m: tuple[float, float] = (0.5, 4.0)
    noise_distance_m: tuple[float, float] = (1.0, 6.0)
    mic_jitter_m: float = 0.0015
    """Standard deviation of each microphone coordinate, cut at two deviations."""
    mouth_jitter_m: float = 0.008
    """Largest offset of each mouth coordinate."""
    kinds: dict[str, float] = field(default_factory=lambda: {"shoebox": 1.0})
    """Share of each kind of space: shoebox (the ranges above), hallway, car, open_air."""
    hallway: BoxRanges = HALLWAY
    car: BoxRanges = CAR
    open_air: OpenAirRanges = field(default_factory=OpenAirRanges)
    motion: MotionConfig = field(default_factory=MotionConfig)

    def __post_init__(self) -> None:
        distances = ("partner_distance_m", "bystander_distance_m", "noise_distance_m")
        for name in ("rt60_s", "length_m", "height_m", *distances):
            low, high = getattr(self, name)
            if not 0 < low <= high:
                raise ValueError(f"scene config: {name} is {(low, high)}, wanted 0 < low <= high")
        if min(self.wearer_poses, self.partners, self.bystanders, self.noises, self.diffuse) < 0:
            raise ValueError("scene config: counts of sources must not be negative")
        if self.length_m[0] < 2.0 or self.height_m[0] < 2.0:
            raise ValueError(f"scene config: rooms of {self.length_m} x {self.height_m} m do not hold a standing head")
        if unknown := set(self.kinds) - set(KINDS):
            raise ValueError(f"scene config: kinds has {sorted(unknown)}, wanted some of {', '.join(KINDS)}")
        if min(self.kinds.values(), default=0) < 0 or sum(self.kinds.values()) <= 0:
            raise ValueError(f"scene config: kinds is {self.kinds}, wanted shares of 0 or more, one above 0")

    @property
    def sources(self) -> int:
        """Sources of one room."""
        return self.wearer_poses + self.partners + self.bystanders + self.noises + self.diffuse


@dataclass(frozen=True, kw_only=True)
class Source:
    """One source of a scene, where it is for the first pose of the head."""

    role: str
    emitter: Emitter


@dataclass(frozen=True, kw_only=True)
class Scene:
    """A space, the device as worn there, its sources in order, and how the head stands and moves."""

    name: str
    split: str
    space: Space
    device: ArrayGeometry
    sources: tuple[Source, ...]
    poses: tuple[Pose, ...]
    """The first is the one that ``space`` and the sources are given for."""

    @property
    def kind(self) -> str:
        return str(self.space.kind)

    @property
    def rt60_s(self) -> float:
        return float(self.space.rt60_s)


def scene_rng(seed: int, split: str, index: int) -> np.random.Generator:
    """The generator of one room: independent of how many rooms there are and of who draws it."""
    if split not in SPLITS:
        raise ValueError(f"split is {split!r}, wanted one of {', '.join(SPLITS)}")
    return np.random.default_rng([seed, SPLITS.index(split), index])


def draw_scene(config: SceneConfig, array: ArrayGeometry, split: str, index: int, rng: np.random.Generator) -> Scene:
    """Draw a space and its sources.

    Kind and motion come from a child of ``rng``, so that a bank without them is what it was before they were there.
    """
    extra = rng.spawn(1)[0]
    space, margin = _draw_space(config, rng, extra)
    jitter = rng.normal(0.0, config.mic_jitter_m, (array.num_mics, 3)) if config.mic_jitter_m else 0.0
    moved_M3 = array.positions_M3 + np.clip(jitter, -2 * config.mic_jitter_m, 2 * config.mic_jitter_m)
    device = replace(array, positions=tuple((float(x), float(y), float(z)) for x, y, z in moved_M3))
    sources, places = [], []
    for _ in range(config.wearer_poses):
        moved_3 = array.mouth_3 + rng.uniform(-config.mouth_jitter_m, config.mouth_jitter_m, 3)
        emitter = Emitter(position_3=moved_3, facing_3=np.array([0.0, 0.0, 1.0]), own_voice=True)
        sources.append(Source(role="wearer", emitter=emitter))
    for role, count, sector, distances in (
        ("partner", config.partners, config.partner_azimuth_deg, config.partner_distance_m),
        ("bystander", config.bystanders, 180.0, config.bystander_distance_m),
        ("noise", config.noises, 180.0, config.noise_distance_m),
    ):
        for _ in range(count):
            position_3 = _draw_position(space, margin, sector, distances, rng)
            facing_3 = None if role == "noise" else _draw_facing(position_3, 20.0 if role == "partner" else 60.0, rng)
            sources.append(Source(role=role, emitter=Emitter(position_3=position_3, facing_3=facing_3)))
            places.append(np.asarray(space.head_m) + space.to_room(position_3))
    sources += [Source(role="diffuse", emitter=Emitter(position_3=None))] * config.diffuse
    return Scene(
        name=f"{split}_{index:05d}",
        split=split,
        space=space,
        device=device,
        sources=tuple(sources),
        poses=draw_poses(config.motion, space, places, extra),
    )


def _draw_space(config: SceneConfig, rng: np.random.Generator, extra: np.random.Generator) -> tuple[Space, float]:
    """A space and how far from its walls sources stay."""
    names = sorted(config.kinds)
    shares = np.array([config.kinds[name] for name in names])
    kind = names[int(extra.choice(len(names), p=shares / shares.sum()))]
    if kind == "hallway":
        return draw_hallway(config.hallway, rng), WALL_MARGIN_M
    if kind == "car":
        return draw_car(config.car, rng), 0.12
    if kind == "open_air":
        return draw_open_air(config.open_air, rng), WALL_MARGIN_M
    return _draw_room(config, rng), WALL_MARGIN_M


def _draw_room(config: SceneConfig, rng: np.random.Generator) -> RoomSpec:
    """A room whose asked RT60 its walls can give (mean absorption .05 to .9)."""
    for _ in range(1000):
        length, width = rng.uniform(*config.length_m, size=2)
        height = rng.uniform(*config.height_m)
        rt60 = rng.uniform(*config.rt60_s)
        margin = min(0.8, 0.3 * length, 0.3 * width)
        head = (
            rng.uniform(margin, length - margin),
            rng.uniform(margin, width - margin),
            float(np.clip(rng.choice([1.2, 1.65]) + rng.normal(0, 0.08), 1.0, height - 0.4)),
        )
        room = RoomSpec(
            size_m=(length, width, height),
            rt60_s=rt60,
            head_m=head,
            yaw_deg=rng.uniform(0, 360),
            tilt=rng.uniform(-0.1, 0.25),
        )
        if 0.05 < 1 - np.exp(-0.1611 * room.volume / (room.surface * rt60)) < 0.9:
            return room
    raise ValueError(f"scene config: no room of {config.length_m} x {config.height_m} m has RT60 {config.rt60_s} s")


def _draw_position(
    space: Space, margin_m: float, sector_deg: float, distances: tuple[float, float], rng: np.random.Generator
) -> Array:
    """A position inside the space in head coordinates; distances log-uniform, shortened where a wall is in the way."""
    position_3 = np.zeros(3)
    for attempt in range(200):
        azimuth = np.deg2rad(rng.uniform(-sector_deg, sector_deg))
        distance = np.exp(rng.uniform(*np.log(distances))) * 0.99 ** max(attempt - 100, 0)
        rise = float(np.clip(rng.normal(-0.05, 0.2), -0.5, 0.5)) * min(distance, 1.0)
        level = np.sqrt(max(distance**2 - rise**2, 0.0))
        position_3 = np.array([level * np.sin(azimuth), rise, level * np.cos(azimuth)])
        if space.holds(np.asarray(space.head_m) + space.to_room(position_3), margin_m):
            return position_3
    assert isinstance(space, RoomSpec)
    towards_middle_3 = space.to_head(np.asarray(space.size_m) / 2 - np.asarray(space.head_m)) + 1e-3
    return towards_middle_3 * distances[0] / np.linalg.norm(towards_middle_3)


def _draw_facing(position_3: Array, spread_deg: float, rng: np.random.Generator) -> Array:
    """A level direction towards the wearer's head, turned by a normal angle."""
    turn = np.deg2rad(rng.normal(0.0, spread_deg))
    bearing = np.arctan2(-position_3[0], -position_3[2]) + turn
    return np.array([np.sin(bearing), 0.0, np.cos(bearing)])
