"""Measured responses into a bank, by the door that simulated rooms come in.

Channels are picked and ordered by a map, every response is moved by ONE shift for all its channels (first arrival at
c_0), and all responses of the bank share ONE scale.  Nothing is resampled, averaged, cut or left out in silence.

Shapes: M microphones, K taps.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from wearllama.audio.array import ArrayGeometry
from wearllama.simulation.bank import RirBank
from wearllama.simulation.bank_files import ROLES, RirEntry, write_bank
from wearllama.simulation.measure import drr_db, first_arrival, reverberation_s
from wearllama.simulation.measured_files import Measured, read_folder

SAMPLE_RATE = 16_000
ANECHOIC_S = 0.03
"""Shorter responses are taken to be without a room: reverberation time 0."""
EARLY_SHARE = 1e-3
"""Largest share of energy that may lie before the first tap that is kept (noise of the measurement)."""
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class MeasuredSource:
    """What is known of a source beyond its files; places that a SOFA file gives are taken from there."""

    roles: tuple[str, ...]
    """Entries to make of each of its responses: a loudspeaker may stand for a partner, a bystander and a noise."""
    azimuth_deg: float | None = None
    """Positive to the wearer's left. The wearer's own place follows from the array."""
    elevation_deg: float = 0.0
    distance_m: float | None = None
    """From c_0."""
    clockwise: bool = False
    """Whether an NPZ file counts azimuths to the wearer's right."""
    leave_out: tuple[int, ...] = ()
    """Measurements of a SOFA or NPZ file that are known to be wrong."""

    def __post_init__(self) -> None:
        if not self.roles or set(self.roles) - set(ROLES):
            raise ValueError(f"measured source: roles are {self.roles}, wanted some of {', '.join(ROLES)}")


@dataclass(frozen=True, kw_only=True)
class MeasuredRoom:
    """What is known of a room; size and head are only for simulating the same room beside it."""

    split: str = "train"
    size_m: tuple[float, float, float] | None = None
    head_m: tuple[float, float, float] | None = None
    yaw_deg: float = 0.0


@dataclass(frozen=True, kw_only=True)
class MeasuredSet:
    """How a folder of responses becomes a bank."""

    files: str = "*"
    """Which files of the folder (a glob)."""
    pattern: str = r"(?P<room>.+)_(?P<source>.+)\.(wav|flac|sofa|npz)"
    """Regular expression for the name of each of them."""
    array: str = "glasses5"
    channels: tuple[int, ...] = (0, 1, 2, 3, 4)
    """Channels of the files, in the order of the array's microphones."""
    rooms: dict[str, MeasuredRoom] = field(default_factory=dict)
    sources: dict[str, MeasuredSource] = field(default_factory=dict)
    pre_samples: int = 32
    taps: int | None = None
    """Length of every entry; None is what the longest response needs.  A longer response is refused, not cut."""
    scale: float | None = None
    """One factor for all responses; None brings the largest sample to 1."""
    dtype: str = "float32"

    def __post_init__(self) -> None:
        if len(set(self.channels)) != len(self.channels) or min(self.channels, default=-1) < 0:
            raise ValueError(f"measured set: channels are {self.channels}, wanted different numbers from 0")
        if not 0 <= self.pre_samples <= 256:
            raise ValueError(f"measured set: pre_samples is {self.pre_samples}, wanted 0..256")
        if self.scale is not None and not self.scale > 0:
            raise ValueError(f"measured set: scale is {self.scale}, wanted a positive number")


def import_folder(folder: Path, out_dir: Path, settings: MeasuredSet, array: ArrayGeometry) -> RirBank:
    """Write the bank of a folder.

    Raises:
        ValueError: see :func:`wearllama.simulation.measured_files.read_folder` and :func:`to_entries`.
    """
    measured = read_folder(folder, settings.files, settings.pattern)
    entries, rirs, scale = to_entries(measured, array, settings)
    write_bank(
        out_dir,
        entries,
        rirs,
        num_channels=array.num_mics,
        num_taps=rirs[0].shape[1],
        pre_samples=settings.pre_samples,
        reference=array.reference,
        dtype=settings.dtype,
        extra={"measured": asdict(settings), "folder": str(folder), "scale": scale, "array": asdict(array)},
    )
    return RirBank.open(out_dir)


def to_entries(
    measured: Sequence[Measured], array: ArrayGeometry, settings: MeasuredSet
) -> tuple[list[RirEntry], list[NDArray[np.float32]], float]:
    """Entries, their responses (M, K) in the bank's scale, and that scale.

    Raises:
        ValueError: channels that are not in a file or not one a microphone, a dead channel, a response longer than
            ``taps`` or with sound before ``pre_samples``, a room or source that the settings do not know.
    """
    if len(settings.channels) != array.num_mics:
        found = f"{len(settings.channels)} channels {settings.channels}"
        raise ValueError(f"measured set: {found} for the {array.num_mics} microphones of {array.name}")
    about = [_known(settings.sources, item.source, f"{item.file}: source", "sources") for item in measured]
    kept = [(i, s) for i, s in zip(measured, about, strict=True) if i.number not in s.leave_out]
    picked = [_pick(item, array, settings) for item, _ in kept]
    taps = settings.taps if settings.taps is not None else max(rir_MK.shape[1] for rir_MK in picked)
    scale = settings.scale or 1.0 / max(float(np.abs(rir_MK).max()) for rir_MK in picked)
    entries: list[RirEntry] = []
    rirs: list[NDArray[np.float32]] = []
    for (item, source), rir_MK in zip(kept, picked, strict=True):
        if rir_MK.shape[1] > taps:
            raise ValueError(f"{item.file}: needs {rir_MK.shape[1]} taps, wanted at most {taps}")
        padded_MK = np.pad(rir_MK * np.float32(scale), ((0, 0), (0, taps - rir_MK.shape[1])))
        for role in source.roles:
            entries.append(_entry(item, role, source, rir_MK, array, settings))
            rirs.append(padded_MK)
    names = [entry.id for entry in entries]
    if double := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"measured set: more than one response is called {', '.join(double[:3])}")
    return entries, rirs, scale


def _known(table: Mapping[str, T], name: str, what: str, where: str) -> T:
    if name not in table:
        raise ValueError(f"{what} {name!r} is not in {where}, which has {', '.join(sorted(table)) or 'nothing'}")
    return table[name]


def _pick(item: Measured, array: ArrayGeometry, settings: MeasuredSet) -> NDArray[np.float32]:
    """The array's channels (M, K), all moved by one shift: first arrival at c_0 at ``pre_samples``."""
    if max(settings.channels) >= len(item.rir_CK):
        raise ValueError(f"{item.file}: channel {max(settings.channels)} is wanted, found {len(item.rir_CK)} channels")
    rir_MK = item.rir_CK[list(settings.channels)]
    if dead := [channel for channel, rir_K in zip(settings.channels, rir_MK, strict=True) if not rir_K.any()]:
        raise ValueError(f"{item.file}: channels {dead} are silent")
    shift = settings.pre_samples - round(first_arrival(rir_MK[array.reference]))
    if shift >= 0:
        return np.pad(rir_MK, ((0, 0), (shift, 0)))
    lost = float(np.square(rir_MK[:, :-shift]).sum() / np.square(rir_MK).sum())
    if lost > EARLY_SHARE:
        raise ValueError(f"{item.file}: {lost:.1%} of the energy lies before the tap that pre_samples keeps")
    return rir_MK[:, -shift:]


def _entry(
    item: Measured,
    role: str,
    source: MeasuredSource,
    rir_MK: NDArray[np.float32],
    array: ArrayGeometry,
    settings: MeasuredSet,
) -> RirEntry:
    azimuth, elevation, distance = _place(item, role, source, array)
    anechoic = rir_MK.shape[1] < ANECHOIC_S * SAMPLE_RATE
    try:
        rt60 = 0.0 if anechoic else reverberation_s(rir_MK[array.reference])
    except ValueError as error:
        raise ValueError(f"{item.file}: reverberation time: {error}") from error
    return RirEntry(
        id=f"{item.name}_{role}",
        role=role,
        azimuth_deg=round(azimuth, 2),
        elevation_deg=round(elevation, 2),
        distance_m=round(distance, 4),
        rt60_s=round(rt60, 4),
        drr_db=round(float(drr_db(rir_MK, array.reference)[array.reference]), 2),
        room=item.room,
        split=_known(settings.rooms, item.room, f"{item.file}: room", "rooms").split,
        array=array.name,
        kind="measured",
    )


def _place(item: Measured, role: str, source: MeasuredSource, array: ArrayGeometry) -> tuple[float, float, float]:
    """Azimuth and elevation in degrees and the distance from c_0 in metres."""
    position_3 = array.mouth_3 if role == "wearer" else item.position_3
    if position_3 is not None:
        left, up, ahead = position_3
        azimuth, elevation = np.arctan2(left, ahead), np.arctan2(up, np.hypot(left, ahead))
        distance = np.linalg.norm(position_3 - array.positions_M3[array.reference])
        return float(np.rad2deg(azimuth)), float(np.rad2deg(elevation)), float(distance)
    if role == "diffuse":
        return 0.0, 0.0, 0.0
    counted = item.azimuth_deg if item.azimuth_deg is None or not source.clockwise else -item.azimuth_deg
    azimuth_deg = source.azimuth_deg if counted is None else (counted + 180.0) % 360.0 - 180.0
    if azimuth_deg is None or source.distance_m is None:
        raise ValueError(f"{item.file}: source {item.source!r} wants azimuth_deg and distance_m to be a {role}")
    return azimuth_deg, source.elevation_deg, source.distance_m
