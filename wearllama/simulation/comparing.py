"""A measured room beside simulations of the same room: what the beam's cue, the levels and the delays are in each.

Shapes: M microphones, K taps, O frequency bands.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wearllama.audio.array import ArrayGeometry
from wearllama.audio.beamforming import Beam
from wearllama.simulation.bank import RirBank
from wearllama.simulation.bank_files import RirEntry
from wearllama.simulation.heads import HeadResponses
from wearllama.simulation.measure import (
    BEAM_BANDS_HZ,
    band_pass,
    beam_ratio_db,
    delays_s,
    drr_db,
    levels_db,
    reverberation_s,
)
from wearllama.simulation.rooms import Emitter, render_response
from wearllama.simulation.spaces import RoomSpec

SPEECH_HZ = (1000.0, 7500.0)
"""Where mouth simulators and loudspeakers do not ring past the 2.5 ms that count as direct sound."""
DB_LIMIT, RELATIVE_LIMIT = 3.0, 0.2
DRAWS = 5
HEAD_SPREAD_M = 0.05

Array = NDArray[np.floating]


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What is compared of one source."""

    cue_db_O: Array
    """|c_x| / |c_0| per band."""
    drr_db_M: Array
    """Direct-to-reverberant ratio in 1-7.5 kHz per microphone."""
    level_db_MO: Array
    """Direct sound against c_0."""
    delay_us_M: Array
    """Direct sound against c_0."""

    @classmethod
    def of(cls, rir_MK: Array, beam: Beam, reference: int) -> "Figures":
        """Measure a response (M, K)."""
        return cls(
            cue_db_O=beam_ratio_db(rir_MK, beam, reference),
            drr_db_M=drr_db(band_pass(rir_MK, *SPEECH_HZ), reference),
            level_db_MO=levels_db(rir_MK, reference),
            delay_us_M=1e6 * delays_s(rir_MK, reference),
        )

    @classmethod
    def median(cls, figures: Sequence["Figures"]) -> "Figures":
        """The median of each figure."""
        names = cls.__dataclass_fields__
        return cls(**{name: np.median([getattr(item, name) for item in figures], axis=0) for name in names})


def measured_figures(bank: RirBank, room: str, beam: Beam) -> dict[str, Figures]:
    """Figures of every source of a measured room, by entry; a source with several roles counts once."""
    return {bank.entries[i].id: Figures.of(bank.rir(i), beam, bank.reference) for i in distinct(bank, room)}


def distinct(bank: RirBank, room: str) -> list[int]:
    """One entry a source: the wearer, and the first role of everybody else."""
    seen: dict[str, int] = {}
    for index in bank.select(room=room):
        entry = bank.entries[index]
        seen.setdefault(entry.id.removesuffix(f"_{entry.role}"), index)
    return list(seen.values())


def simulated_figures(
    bank: RirBank, room: str, head: HeadResponses, beam: Beam, directivity: str = "monitor", draws: int = DRAWS
) -> dict[str, Figures]:
    """The same sources in a simulation of that room: medians over heads within 5 cm of where it stood.

    Raises:
        ValueError: the bank does not say how large the room is and where the head was.
    """
    about: Mapping[str, Any] = bank.meta.get("measured", {}).get("rooms", {}).get(room, {})
    if not about.get("size_m") or not about.get("head_m"):
        raise ValueError(f"{bank.path}: room {room} has no size_m and head_m to simulate it by (measured.rooms)")
    chosen = distinct(bank, room)
    room_spec = _same_room(bank, chosen, about)
    found = {}
    for index in chosen:
        rng = np.random.default_rng([0, index])
        figures = []
        for _ in range(draws):
            x, y, z = np.asarray(about["head_m"]) + rng.uniform(-HEAD_SPREAD_M, HEAD_SPREAD_M, 3)
            space = replace(room_spec, head_m=(x, y, z))
            emitter = _emitter(bank.entries[index], head.array, directivity)
            response = render_response(space, head, emitter, taps=bank.num_taps, pre_samples=bank.pre_samples, rng=rng)
            figures.append(Figures.of(response.rir_MK.astype(np.float64), beam, head.array.reference))
        found[bank.entries[index].id] = Figures.median(figures)
    return found


def _same_room(bank: RirBank, chosen: Sequence[int], about: Mapping[str, Any]) -> RoomSpec:
    """A box of the room's size whose reverberation time is the measured one at 1 kHz and, near enough, at 4 kHz."""
    times = [
        [reverberation_s(bank.rir(index)[bank.reference], octave_hz=hz) for hz in (1000.0, 4000.0)] for index in chosen
    ]
    middle, high = np.median(times, axis=0)
    rooms = [
        RoomSpec(
            size_m=tuple(about["size_m"]),
            rt60_s=float(middle),
            head_m=tuple(about["head_m"]),
            yaw_deg=float(about["yaw_deg"]),
            tilt=float(tilt),
        )
        for tilt in np.arange(-0.3, 0.61, 0.05)
    ]
    return min(rooms, key=lambda room: abs(float(room.rt60_B()[5]) - high))


def _emitter(entry: RirEntry, array: ArrayGeometry, directivity: str) -> Emitter:
    if entry.role == "wearer":
        return Emitter(position_3=array.mouth_3, facing_3=np.array([0.0, 0.0, 1.0]), own_voice=True)
    azimuth, elevation = np.deg2rad([entry.azimuth_deg, entry.elevation_deg])
    level = np.cos(elevation)
    towards_3 = np.array([level * np.sin(azimuth), np.sin(elevation), level * np.cos(azimuth)])
    return Emitter(position_3=towards_3 * entry.distance_m, facing_3=-towards_3, directivity=directivity)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the table: a few numbers measured, and the same simulated in several ways."""

    what: str
    columns: tuple[str, ...]
    measured: Array
    simulated: dict[str, Array]
    relative: bool = False
    """Judged by the share that a simulation is off, not by the difference."""

    def off(self, variant: str) -> Array:
        """Decibels or, where ``relative``, shares that a simulation is off."""
        difference = np.asarray(self.simulated[variant]) - self.measured
        return difference / np.abs(self.measured) if self.relative else difference

    def within(self, variant: str) -> NDArray[np.bool_]:
        """Which numbers are within 3 dB or 20 %."""
        return np.abs(self.off(variant)) <= (RELATIVE_LIMIT if self.relative else DB_LIMIT)


def compare(measured: Mapping[str, Figures], simulated: Mapping[str, Mapping[str, Figures]]) -> list[Row]:
    """The table of one room; figures of others than the wearer are medians over them.

    Raises:
        ValueError: the measurement lacks the wearer or everybody else.
    """
    own = [name for name in measured if name.endswith("_wearer")]
    others = [name for name in measured if name not in own]
    if not own or not others:
        raise ValueError(f"measured room: {len(own)} responses of the wearer and {len(others)} of others, wanted both")
    mics = tuple(f"mic {number}" for number in range(len(measured[own[0]].drr_db_M)))
    bands = tuple(f"{low / 1000:g}-{high / 1000:g}k" for low, high in BEAM_BANDS_HZ)

    def row(what: str, columns: tuple[str, ...], figure: Callable[[Mapping[str, Figures]], Array], **more: Any) -> Row:
        found = {variant: figure(figures) for variant, figures in simulated.items()}
        return Row(what=what, columns=columns, measured=figure(measured), simulated=found, **more)

    def median(figures: Mapping[str, Figures], names: Sequence[str], name: str) -> Array:
        return np.median([getattr(figures[item], name) for item in names], axis=0)

    def cue(figures: Mapping[str, Figures]) -> Array:
        return median(figures, own, "cue_db_O") - median(figures, others, "cue_db_O")

    def spread(figures: Mapping[str, Figures], names: Sequence[str]) -> Array:
        return np.array([np.ptp(figures[name].delay_us_M) for name in names])

    def level(names: Sequence[str], mic: int, figures: Mapping[str, Figures]) -> Array:
        return median(figures, names, "level_db_MO")[mic]

    rows = [
        row("cue, own minus others, dB", bands, cue),
        row("direct/reverberant, own, dB", mics, lambda f: median(f, own, "drr_db_M")),
        row("direct/reverberant, others, dB", mics, lambda f: median(f, others, "drr_db_M")),
    ]
    for kind, names in (("own", own), ("others", others)):
        for mic in range(1, len(mics)):
            what = f"level of mic {mic} re c_0, {kind}, dB"
            rows.append(row(what, bands, partial(level, names, mic)))
    sources = tuple(name.rsplit("_", 2)[-2] for name in (*own, *others))
    rows.append(row("arrival spread, us", sources, lambda f: spread(f, [*own, *others]), relative=True))
    return rows
