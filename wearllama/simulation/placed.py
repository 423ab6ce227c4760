"""A scene by hand: who stands where around the wearer, rendered by the same rooms and the same mixing as training data.

Banks draw their scenes; here every place is given.  Directions are those of the bank: 0 degrees ahead of the wearer,
positive to the left, metres from the point between the pupils.  Each source has a random stream of its own, so that
moving one person leaves the others' reverberation as it was.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

from wearllama.audio.array import ArrayGeometry
from wearllama.simulation.bank import RirBank
from wearllama.simulation.bank_files import RirEntry, write_bank
from wearllama.simulation.device import DeviceConfig
from wearllama.simulation.heads import HeadResponses
from wearllama.simulation.kinds import CAR_WALLS, HALLWAY_SCATTERING
from wearllama.simulation.mixing import Mixture, MixtureRecipe, Segment, render
from wearllama.simulation.noise import NoiseBank, known_type
from wearllama.simulation.noise_kinds import KINDS
from wearllama.simulation.recipe import TALKER_ROLES
from wearllama.simulation.rooms import Emitter, Response, render_response
from wearllama.simulation.spaces import OpenAir, RoomSpec, Space

ROOM = "placed"
PRE_SAMPLES = 32
WALL_MARGIN_M = 0.1
_DIFFUSE_STREAM, _NOISE_STREAM = 98, 99  # beyond any number of talkers

SPACES: Mapping[str, Space] = {
    "living room": RoomSpec(size_m=(5.0, 4.2, 2.6), rt60_s=0.35, head_m=(2.3, 2.1, 1.2), yaw_deg=0.0),
    "office": RoomSpec(size_m=(7.0, 6.0, 2.8), rt60_s=0.5, head_m=(3.2, 3.0, 1.2), yaw_deg=0.0),
    "hall": RoomSpec(size_m=(14.0, 10.0, 5.0), rt60_s=0.9, head_m=(6.0, 5.0, 1.65), yaw_deg=0.0),
    "hallway": RoomSpec(size_m=(16.0, 2.4, 2.6), rt60_s=0.7, head_m=(6.0, 1.2, 1.65), yaw_deg=0.0, kind="hallway",
                        scattering=HALLWAY_SCATTERING),
    "car": RoomSpec(size_m=(2.8, 1.5, 1.25), rt60_s=0.08, head_m=(1.3, 1.05, 0.9), yaw_deg=0.0, kind="car",
                    wall_weights=CAR_WALLS, mix_time_s=0.02),
    "street": OpenAir(head_m=(0.0, 0.0, 1.65), yaw_deg=0.0),
}  # fmt: skip
"""Places to stand in; the wearer looks along the first side of the room."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where somebody is, seen from the wearer."""

    azimuth_deg: float = 0.0
    """0 ahead, 90 to the left."""
    distance_m: float = 1.0
    rise_m: float = 0.0
    """Over the wearer's eyes."""
    turn_deg: float = 0.0
    """How far a talker is turned away from the wearer; 180 shows the back."""

    def __post_init__(self) -> None:
        if not 0.15 <= self.distance_m <= 50 or abs(self.rise_m) >= self.distance_m:
            raise ValueError(
                f"place: distance_m is {self.distance_m:g} and rise_m {self.rise_m:g}, wanted .15 to 50 m and a rise "
                "that is less"
            )

    @property
    def position_3(self) -> NDArray[np.float64]:
        """In head coordinates, metres."""
        azimuth = np.deg2rad(self.azimuth_deg)
        level = np.sqrt(self.distance_m**2 - self.rise_m**2)
        return np.array([level * np.sin(azimuth), self.rise_m, level * np.cos(azimuth)])

    @property
    def facing_3(self) -> NDArray[np.float64]:
        """Where a talker there faces."""
        bearing = np.deg2rad(self.azimuth_deg + 180.0 + self.turn_deg)
        return np.array([np.sin(bearing), 0.0, np.cos(bearing)])


@dataclass(frozen=True, kw_only=True)
class Talker:
    """One who speaks."""

    role: str
    """wearer, partner or bystander."""
    file: str
    """Mono 16 kHz file, relative to the audio root."""
    place: Place = field(default_factory=Place)
    """Not used for the wearer, who speaks with his own mouth."""
    start_s: float = 0.0
    gain_db: float = 0.0
    """Vocal effort against a normal voice."""

    def __post_init__(self) -> None:
        if self.role not in TALKER_ROLES:
            raise ValueError(f"talker {self.file!r}: role is {self.role!r}, wanted one of {', '.join(TALKER_ROLES)}")


@dataclass(frozen=True, kw_only=True)
class PlacedScene:
    """Everything that decides a mixture."""

    space: Space
    talkers: tuple[Talker, ...] = ()
    noise_type: str | None = None
    """A name of the noise bank; None: no noise."""
    noise_dba: float = 60.0
    """At the wearer's head; people raise their voices over it."""
    noise_place: Place = field(default_factory=lambda: Place(azimuth_deg=120.0, distance_m=1.5))
    """Of a noise that comes from one place; others come as their kind does."""
    level_dbfs: float = -28.0
    """RMS of a normal own voice at c_0."""
    device: DeviceConfig = field(default_factory=DeviceConfig)
    taps: int = 6400
    seed: int = 0

    def __post_init__(self) -> None:
        others = [(talker.role, talker.place) for talker in self.talkers if talker.role != "wearer"]
        for name, place in [*others, *([("noise", self.noise_place)] if self.has_noise_place else [])]:
            position_3 = np.asarray(self.space.head_m) + self.space.to_room(place.position_3)
            if not self.space.holds(position_3, WALL_MARGIN_M):
                raise ValueError(
                    f"{name} at {place.azimuth_deg:g} degrees, {place.distance_m:g} m, {place.rise_m:g} m up is not "
                    f"inside the {self.space.kind}"
                )

    @property
    def has_noise_place(self) -> bool:
        """Whether there is a noise and it comes from one place."""
        return self.noise_type is not None and KINDS[known_type(self.noise_type)].field == "point"

    def recipe(self) -> MixtureRecipe:
        """The mixture of this scene's bank: entry 0 is own voice, then the talkers in order."""
        segments = tuple(
            Segment(
                file=talker.file, role=talker.role, start_s=talker.start_s, gain_db=talker.gain_db,
                rir=0 if talker.role == "wearer" else number,
            )
            for number, talker in enumerate(self.talkers, start=1)
        )  # fmt: skip
        return MixtureRecipe(
            segments=segments, room=ROOM, split="eval", noise_type=self.noise_type, snr_db=None,
            noise_dba=None if self.noise_type is None else self.noise_dba, level_dbfs=self.level_dbfs, effort_db=0.0,
            device=self.device,
        )  # fmt: skip


def render_placed(
    scene: PlacedScene, array: ArrayGeometry, *, noise: NoiseBank, audio_root: str | Path = "."
) -> Mixture:
    """What the device records of the scene; the same samples for the same scene.

    Raises:
        AudioError: a talker's file is missing, not mono or not 16 kHz.
    """
    with TemporaryDirectory(prefix="wearllama-scene-") as folder:
        bank = place_bank(scene, array, folder)
        return render(scene.recipe(), bank=bank, noise=noise, seed=scene.seed, audio_root=audio_root)


def place_bank(scene: PlacedScene, array: ArrayGeometry, folder: str | Path) -> RirBank:
    """Write and open a bank with one response a source: own voice, the talkers in order, a diffuse field, the noise."""
    sources: list[tuple[str, Place | None, int]] = [("wearer", None, 0)]
    for number, talker in enumerate(scene.talkers, start=1):
        sources.append((talker.role, None if talker.role == "wearer" else talker.place, number))
    sources.append(("diffuse", None, _DIFFUSE_STREAM))
    if scene.has_noise_place:
        sources.append(("noise", scene.noise_place, _NOISE_STREAM))
    responses = [_response(scene.space, array, *source, scene.taps, scene.seed) for source in sources]
    entries = [
        _entry(scene.space, array, role, place, f"{ROOM}_{number:02d}_{role}", response)
        for (role, place, number), response in zip(sources, responses, strict=True)
    ]
    write_bank(
        folder,
        entries,
        (response.rir_MK for response in responses),
        num_channels=array.num_mics,
        num_taps=scene.taps,
        pre_samples=PRE_SAMPLES,
        reference=array.reference,
        dtype="float32",
    )
    return RirBank.open(folder)


@lru_cache(maxsize=64)
def _response(
    space: Space, array: ArrayGeometry, role: str, place: Place | None, stream: int, taps: int, seed: int
) -> Response:
    """The response of one source; kept, so that moving somebody else costs nothing here."""
    if role == "wearer":
        emitter = Emitter(position_3=array.mouth_3, facing_3=np.array([0.0, 0.0, 1.0]), own_voice=True)
    elif place is None:
        emitter = Emitter(position_3=None)
    else:
        emitter = Emitter(position_3=place.position_3, facing_3=None if role == "noise" else place.facing_3)
    rng = np.random.default_rng([seed, stream])
    return render_response(space, _head(array), emitter, taps=taps, pre_samples=PRE_SAMPLES, rng=rng)


def _entry(
    space: Space, array: ArrayGeometry, role: str, place: Place | None, name: str, response: Response
) -> RirEntry:
    return RirEntry(
        id=name,
        role=role,
        azimuth_deg=0.0 if place is None else place.azimuth_deg,
        elevation_deg=0.0 if place is None else float(np.rad2deg(np.arcsin(place.rise_m / place.distance_m))),
        distance_m=round(response.distance_m, 4),
        rt60_s=space.rt60_s,
        drr_db=round(response.drr_db, 2),
        room=ROOM,
        split="eval",
        array=array.name,
        kind=space.kind,
    )


@lru_cache(maxsize=4)
def _head(array: ArrayGeometry) -> HeadResponses:
    return HeadResponses(array)
