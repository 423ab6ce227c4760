"""The page's controls, and the scene that they stand for; no widget and no model in here."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import atan2, degrees, hypot
from pathlib import Path
from typing import NamedTuple

from playground.clips import SpeechClip

from wearllama.simulation.placed import SPACES, Place, PlacedScene, Talker
from wearllama.simulation.spaces import RoomSpec, Space

SILENT = "(silent)"
NO_NOISE = "(no noise)"
PEOPLE = ("wearer", "partner", "bystander")
MOVABLE = ("partner", "bystander", "noise")
NEAREST_M, FARTHEST_M = 0.2, 6.0


@dataclass(frozen=True, kw_only=True)
class PersonControls:
    """What the page says of one person."""

    clip: str = SILENT
    """Words of a packaged clip, or ``SILENT``."""
    own_file: str | None = None
    """A visitor's clip instead."""
    azimuth_deg: float = 0.0
    distance_m: float = 1.0
    level_db: float = 0.0
    """Vocal effort against a normal voice."""
    start_s: float = 0.2
    faces_wearer: bool = True

    @property
    def speaks(self) -> bool:
        return self.own_file is not None or self.clip != SILENT


@dataclass(frozen=True, kw_only=True)
class Controls:
    """Everything that a visitor sets."""

    space: str = "living room"
    rt60_s: float | None = None
    """Of a room; None keeps the space's own."""
    people: Mapping[str, PersonControls]
    """By role: wearer, partner, bystander."""
    noise: str = NO_NOISE
    noise_dba: float = 60.0
    noise_azimuth_deg: float = 120.0
    noise_distance_m: float = 1.5
    seed: int = 0


def space_of(controls: Controls) -> Space:
    """The chosen space with the chosen reverberation."""
    if controls.space not in SPACES:
        raise ValueError(f"space is {controls.space!r}, wanted one of {', '.join(SPACES)}")
    space = SPACES[controls.space]
    if controls.rt60_s is None or not isinstance(space, RoomSpec):
        return space
    return replace(space, rt60_s=float(controls.rt60_s))


def scene_of(controls: Controls, clips: Sequence[SpeechClip]) -> PlacedScene:
    """The scene of the controls; ValueError where a clip is unknown or somebody stands in a wall."""
    files = {clip.words: clip.file for clip in clips}
    talkers = []
    for role, person in controls.people.items():
        if not person.speaks:
            continue
        if person.own_file is None and person.clip not in files:
            raise ValueError(f"{role}: no packaged clip says {person.clip!r}")
        file = person.own_file or files[person.clip]
        talkers.append(
            Talker(
                role=role, file=str(Path(file).resolve()), place=place_of(person), start_s=person.start_s,
                gain_db=person.level_db,
            )
        )  # fmt: skip
    return PlacedScene(
        space=space_of(controls),
        talkers=tuple(talkers),
        noise_type=None if controls.noise == NO_NOISE else controls.noise,
        noise_dba=controls.noise_dba,
        noise_place=Place(azimuth_deg=controls.noise_azimuth_deg, distance_m=controls.noise_distance_m),
        seed=controls.seed,
    )


def place_of(person: PersonControls) -> Place:
    """Where a person stands and faces."""
    return Place(
        azimuth_deg=person.azimuth_deg, distance_m=person.distance_m, turn_deg=0.0 if person.faces_wearer else 180.0
    )


class Polar(NamedTuple):
    """A place on the map, as the sliders have it."""

    azimuth_deg: float
    distance_m: float


def polar_of(left_m: float, ahead_m: float) -> Polar:
    """The slider values of a point on the map, kept within the sliders."""
    distance = min(max(hypot(left_m, ahead_m), NEAREST_M), FARTHEST_M)
    return Polar(round(degrees(atan2(left_m, ahead_m))), round(distance, 2))
