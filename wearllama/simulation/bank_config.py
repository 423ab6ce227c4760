"""What a simulated bank holds, which part of it one machine builds, and the stamp that tells a stale one.

A bank may be cut into shards of consecutive rooms, one a machine; together they are the bank that one machine builds.
"""

import hashlib
import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from wearllama.audio.array import ArrayGeometry
from wearllama.simulation.bank import RirBank
from wearllama.simulation.bank_files import FORMAT
from wearllama.simulation.heads import HeadResponses
from wearllama.simulation.measured_head import MeasuredHead
from wearllama.simulation.scenes import SceneConfig

PHYSICS = 2
"""Raised when the same config gives other samples, so that stale banks are rebuilt."""
_LATER = ("kinds", "hallway", "car", "open_air", "motion")
"""Settings that did not always exist: at their defaults they change nothing, and not the hash either."""


@dataclass(frozen=True, kw_only=True)
class HeadConfig:
    """The head between sources and microphones: a rigid sphere, or one that was measured."""

    face_hz: float | None = None
    """The sphere's face stops being a mirror above this; None is a smooth sphere.  1200 comes nearest to measured
    glasses; the packaged encoder was trained with None."""
    directions: str | None = None
    """Bank of anechoic responses that takes the sphere's place."""
    mouth: str | None = None
    """Bank with the wearer's response on the same device."""

    def __post_init__(self) -> None:
        if self.face_hz is not None and not 100 <= self.face_hz <= 8000:
            raise ValueError(f"head config: face_hz is {self.face_hz}, wanted 100 to 8000 Hz")
        if (self.directions is None) != (self.mouth is None):
            raise ValueError("head config: directions and mouth belong together: give both banks or none")
        if self.directions is not None and self.face_hz is not None:
            raise ValueError("head config: face_hz is the sphere's, directions are a measured head's: give one")

    def head(self, array: ArrayGeometry) -> HeadResponses:
        """The responses of a device as worn."""
        if self.directions is None or self.mouth is None:
            return HeadResponses(array, self.face_hz)
        return MeasuredHead(array, RirBank.open(self.directions), RirBank.open(self.mouth))

    def stamp(self) -> list[str]:
        """What the measured banks hold."""
        files = [Path(path) / "rirs.npy" for path in (self.directions, self.mouth) if path is not None]
        return [hashlib.sha256(file.read_bytes()).hexdigest() for file in files]


@dataclass(frozen=True, kw_only=True)
class BankConfig:
    """What a simulated bank holds."""

    train_rooms: int = 24
    eval_rooms: int = 8
    seed: int = 0
    taps: int = 6400
    """Length of each response: 6400 taps are .4 s."""
    pre_samples: int = 32
    """Room before the first arrival at c_0 for microphones that hear a source earlier."""
    dtype: str = "float16"
    scene: SceneConfig = field(default_factory=SceneConfig)
    head: HeadConfig = field(default_factory=HeadConfig)

    def __post_init__(self) -> None:
        if self.train_rooms < 0 or self.eval_rooms < 0 or self.train_rooms + self.eval_rooms == 0:
            raise ValueError(f"bank config: {self.train_rooms} train and {self.eval_rooms} eval rooms; wanted some")
        if self.taps < 512 or not 16 <= self.pre_samples <= 256:
            raise ValueError(f"bank config: taps {self.taps} (>= 512) and pre_samples {self.pre_samples} (16..256)")
        if self.dtype not in ("float16", "float32"):
            raise ValueError(f"bank config: dtype is {self.dtype!r}, wanted float16 or float32")

    def rooms(self) -> list[tuple[str, int]]:
        """Every room as (split, index)."""
        return [("train", i) for i in range(self.train_rooms)] + [("eval", i) for i in range(self.eval_rooms)]


def with_count(config: BankConfig, responses: int) -> BankConfig:
    """The config with rooms enough for ``responses`` still ones; of twenty rooms one, at least one, is held out."""
    if responses < 1 or config.scene.sources < 1:
        raise ValueError(f"bank: {responses} responses of {config.scene.sources} sources a room; wanted some")
    rooms = max(-(-responses // config.scene.sources), 2)
    held_out = max(rooms // 20, 1)
    return replace(config, train_rooms=rooms - held_out, eval_rooms=held_out)


@dataclass(frozen=True, kw_only=True)
class Shard:
    """One machine's part of a bank: number 1 to ``count``."""

    number: int
    count: int

    def __post_init__(self) -> None:
        if not 1 <= self.number <= self.count:
            raise ValueError(f"shard {self.number}/{self.count}: wanted 1/{self.count} to {self.count}/{self.count}")

    @classmethod
    def parse(cls, text: str) -> "Shard":
        """From ``2/8``."""
        number, slash, count = text.partition("/")
        if not (slash and number.isdecimal() and count.isdecimal()):
            raise ValueError(f"shard is {text!r}, wanted NUMBER/COUNT, for instance 2/8")
        return cls(number=int(number), count=int(count))

    def of(self, rooms: list[tuple[str, int]]) -> list[tuple[str, int]]:
        """Consecutive rooms, so that all shards in order are all rooms in order."""
        if self.count > len(rooms):
            raise ValueError(f"shard {self.number}/{self.count}: the bank has only {len(rooms)} rooms")
        return rooms[(self.number - 1) * len(rooms) // self.count : self.number * len(rooms) // self.count]


def config_hash(config: BankConfig, array: ArrayGeometry) -> str:
    """What a finished bank or a finished room must match to be kept."""
    settings, defaults = asdict(config), asdict(SceneConfig())
    for name in _LATER:
        if settings["scene"][name] == defaults[name]:
            del settings["scene"][name]
    if config.head == HeadConfig():
        del settings["head"]
    else:
        settings["head"] = [config.head.face_hz, *config.head.stamp()]
    described = json.dumps([FORMAT, PHYSICS, settings, asdict(array)], sort_keys=True, default=str)
    return hashlib.sha256(described.encode()).hexdigest()[:16]
