"""What a mixture is made of, as data (contract 4): JSON in, JSON out, nothing drawn yet."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from wearllama.simulation.device import DeviceConfig
from wearllama.simulation.motion import Waypoints

TALKER_ROLES = ("wearer", "partner", "bystander")
Range = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Segment:
    """One stretch of speech by somebody somewhere."""

    file: str
    """Mono 16 kHz file, relative to the audio root."""
    role: str
    start_s: float = 0.0
    rir: int | None = None
    """Entry of the bank; None draws one of ``role`` in the mixture's room."""
    gain_db: float = 0.0
    """On top of a drawn vocal effort."""
    path: Waypoints = ()
    """(seconds into the mixture, entry of the bank), in time: the source is cross-faded from one to the next."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", tuple((float(time), int(rir)) for time, rir in self.path))
        if any(later[0] <= earlier[0] for earlier, later in pairwise(self.path)):
            raise ValueError(f"segment {self.file!r}: path {self.path} is not in order of time")
        if self.path and self.rir is not None:
            raise ValueError(f"segment {self.file!r}: has both rir {self.rir} and a path")
        if self.role not in TALKER_ROLES:
            raise ValueError(f"segment {self.file!r}: role is {self.role!r}, wanted one of {', '.join(TALKER_ROLES)}")
        if self.start_s < 0:
            raise ValueError(f"segment {self.file!r}: start_s is {self.start_s}, wanted 0 or later")


@dataclass(frozen=True, kw_only=True)
class MixtureRecipe:
    """A scene before its seed: same recipe and seed, same samples."""

    segments: tuple[Segment, ...] = ()
    """Speech that the task is about; signal of the SNR. Empty: a clip of noise."""
    sidetalk: tuple[Segment, ...] = ()
    """Speech over it, from places of its own."""
    noise_type: str | None = None
    """A name of the noise bank; None draws one."""
    snr_db: float | Range | None = (-5.0, 40.0)
    """Segments over noise at c_0, on reverberant images over active speech; None for no noise."""
    noise_dba: float | Range | Literal["typical"] | None = None
    """Instead of ``snr_db``: the noise's level at the wearer's head in dB(A), over which everybody raises his voice
    (Lombard), so that the SNR follows; ``typical`` is the kind's usual level."""
    noise_field: Literal["point", "diffuse", "isotropic"] | None = None
    """How the noise arrives: from a place, through the room from no place, or evenly from everywhere around the head;
    None: as its kind does (never isotropic)."""
    noise_distance_m: float | Range | None = None
    """How far away the source of a ``typical`` level is; None: as its name says."""
    sidetalk_snr_db: float | Range | None = None
    """Segments over all of sidetalk at c_0, each over its own active speech; None leaves true levels."""
    split: str = "train"
    room: str | None = None
    """A room of the bank; None draws one of ``split``."""
    level_dbfs: float | Range = (-45.0, -15.0)
    """RMS that own voice of nominal effort would have at c_0; others keep their true distance to it."""
    effort_db: float = 3.0
    """Standard deviation of every talker's vocal effort."""
    duration_s: float | None = None
    """None: until the last speech ends and .15 to .4 s more (1.5 to 4 s where there is none)."""
    device: DeviceConfig = field(default_factory=DeviceConfig)
    moving: float = 0.0
    """How often the head turns or walks, in rooms whose entries have poses; others stay still."""

    def __post_init__(self) -> None:
        for name in ("segments", "sidetalk"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        for name in ("snr_db", "noise_dba", "noise_distance_m", "sidetalk_snr_db", "level_dbfs"):
            value = getattr(self, name)
            if isinstance(value, list | tuple):
                if len(value) != 2 or not value[0] <= value[1]:
                    raise ValueError(f"mixture: {name} is {value}, wanted a number or (low, high)")
                object.__setattr__(self, name, (float(value[0]), float(value[1])))
        if self.duration_s is not None and self.duration_s <= 0:
            raise ValueError(f"mixture: duration_s is {self.duration_s}, wanted a positive number")
        if self.noise_field not in (None, "point", "diffuse", "isotropic"):
            raise ValueError(f"mixture: noise_field is {self.noise_field!r}, wanted point, diffuse or isotropic")
        if isinstance(self.noise_dba, str) and self.noise_dba != "typical":
            raise ValueError(f"mixture: noise_dba is {self.noise_dba!r}, wanted a number, (low, high) or 'typical'")
        if self.noise_distance_m is not None and self.noise_dba != "typical":
            raise ValueError("mixture: noise_distance_m is given, which needs noise_dba='typical'")
        if self.noise_distance_m is not None and np.min(self.noise_distance_m) <= 0:
            raise ValueError(f"mixture: noise_distance_m is {self.noise_distance_m}, wanted positive numbers")
        if not 0 <= self.moving <= 1:
            raise ValueError(f"mixture: moving is {self.moving}, wanted 0 to 1")
        if self.effort_db < 0:
            raise ValueError(f"mixture: effort_db is {self.effort_db}, wanted 0 or more")

    def to_dict(self) -> dict[str, Any]:
        """As JSON values; fields at their defaults are left out."""
        full = asdict(self)
        defaults = asdict(MixtureRecipe())
        row = {name: value for name, value in full.items() if value != defaults[name]}
        for name in ("segments", "sidetalk"):
            if name in row:
                row[name] = [_without_defaults(segment) for segment in row[name]]
        return json.loads(json.dumps(row))

    @classmethod
    def from_dict(cls, row: Mapping[str, Any]) -> "MixtureRecipe":
        """The recipe of :meth:`to_dict`; ValueError names an unknown or missing field."""
        row = dict(row)
        _check_fields(row, cls, "mixture")
        for name in ("segments", "sidetalk"):
            segments = row.get(name, ())
            for segment in segments:
                _check_fields(segment, Segment, f"mixture {name}")
            row[name] = tuple(Segment(**segment) for segment in segments)
        if "device" in row:
            _check_fields(row["device"], DeviceConfig, "mixture device")
            row["device"] = DeviceConfig(**row["device"])
        return cls(**row)


def _without_defaults(segment: dict[str, Any]) -> dict[str, Any]:
    defaults = {"start_s": 0.0, "rir": None, "gain_db": 0.0, "path": ()}
    return {name: value for name, value in segment.items() if name not in defaults or value != defaults[name]}


def _check_fields(row: Any, kind: type, what: str) -> None:
    if not isinstance(row, dict):
        raise ValueError(f"{what}: wanted a mapping, found {type(row).__name__}")
    names = {item.name for item in fields(kind)}
    if unknown := set(row) - names:
        raise ValueError(f"{what}: unknown fields {sorted(unknown)}, wanted some of {sorted(names)}")
    if kind is Segment and (missing := {"file", "role"} - set(row)):
        raise ValueError(f"{what}: a segment lacks {sorted(missing)}")


def draw_from(value: float | tuple[float, float], rng: np.random.Generator) -> float:
    """A fixed value or one from a range; takes one number from ``rng`` either way."""
    position = rng.uniform()
    return value[0] + position * (value[1] - value[0]) if isinstance(value, tuple) else float(value)
