"""Conditions that change a scene before it is rendered: the room, how far away people are, the noise.

They work on mixture recipes with their seeds, so that everything else stays as it was.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import soundfile

from wearllama.simulation.bank import RirBank
from wearllama.simulation.mixing import MixtureRecipe, Segment

TOLERANCE = 0.3
"""How far, relatively, a room or a place may be from what is asked."""
TAIL_S = 0.3
"""Behind the last word of a scene that became longer."""


@dataclass(frozen=True, kw_only=True)
class Surrounding:
    """What an edit draws from."""

    bank: RirBank
    audio_root: Path = Path()
    talk: tuple[str, ...] = ()
    """Files of what is said in the other scenes; a file's folder names its voice."""
    _seconds: dict[str, float] = field(default_factory=dict)

    def seconds(self, file: str) -> float:
        """A clip's duration."""
        if file not in self._seconds:
            info = soundfile.info(str(self.audio_root / file))
            self._seconds[file] = info.frames / info.samplerate
        return self._seconds[file]


def talk_of(mixtures: Mapping[str, Mapping[str, Any]]) -> tuple[str, ...]:
    """Files of the foreground of scenes (rows of scenes.json), each once, in order."""
    rows = (row["recipe"].get("segments") or () for row in mixtures.values())
    return tuple(sorted({segment["file"] for segments in rows for segment in segments}))


def with_overlap(recipe: MixtureRecipe, share: float, around: Surrounding, seed: int) -> MixtureRecipe:
    """The scene with a bystander who talks over the last ``share`` of the words (0: only behind them).

    The scene's own bystander talk is moved; where there is none, something that another voice says elsewhere is added.
    A talk that is shorter than the overlapped part covers as much as it lasts. A scene without words is unchanged.
    """
    if not 0 <= share <= 1:
        raise ValueError(f"overlap:{share:g}: wanted a share of 0 to 1")
    if not recipe.segments:
        return recipe
    begin = min(segment.start_s for segment in recipe.segments)
    end = max(segment.start_s + around.seconds(segment.file) for segment in recipe.segments)
    talk = recipe.sidetalk[0] if recipe.sidetalk else Segment(file=_other_talk(recipe, around, seed), role="bystander")
    start = round(end - share * (end - begin), 4)
    behind = max(end, start + around.seconds(talk.file))
    length = max(recipe.duration_s or 0.0, round(behind + TAIL_S, 4))
    return replace(recipe, sidetalk=(replace(talk, start_s=start), *recipe.sidetalk[1:]), duration_s=length)


def _other_talk(recipe: MixtureRecipe, around: Surrounding, seed: int) -> str:
    mine = {PurePosixPath(segment.file).parent for segment in recipe.segments}
    others = [file for file in around.talk if PurePosixPath(file).parent not in mine]
    if not others:
        raise ValueError("condition overlap: no other voice speaks in these scenes, and this one has no bystander")
    return others[int(np.random.default_rng([seed, 78]).integers(len(others)))]


def with_rt60(recipe: MixtureRecipe, rt60_s: float, around: Surrounding, seed: int) -> MixtureRecipe:
    """The scene in a room of about ``rt60_s``; people stand where that room has places for them."""
    bank = around.bank
    times = {room: bank.entries[bank.select(room=room)[0]].rt60_s for room in bank.rooms(recipe.split)}
    room = _draw_near(times, rt60_s, seed, f"{bank.path}: no room of split {recipe.split!r} has about {rt60_s:g} s")
    return replace(
        recipe, room=room, segments=_unplaced(recipe.segments), sidetalk=_unplaced(recipe.sidetalk)
    )  # fmt: skip


def with_distance(recipe: MixtureRecipe, distance_m: float, around: Surrounding, seed: int) -> MixtureRecipe:
    """The scene with everybody but the wearer about ``distance_m`` away; a scene of the wearer alone is unchanged."""
    bank, segments = around.bank, (*recipe.segments, *recipe.sidetalk)
    roles = sorted({segment.role for segment in segments} - {"wearer"})
    if not roles:
        return recipe
    worst: dict[str, float] = {}
    for room in bank.rooms(recipe.split):
        nearest = [_nearest(bank, room, role, distance_m) for role in roles]
        if all(nearest):
            found = [bank.entries[index[0]].distance_m for index in nearest]
            worst[room] = max(found, key=lambda metres: abs(np.log(metres / distance_m)))
    what = f"{bank.path}: no room of split {recipe.split!r} has {' and '.join(roles)} at about {distance_m:g} m"
    room = _draw_near(worst, distance_m, seed, what)

    def placed(segment: Segment) -> Segment:
        if segment.role == "wearer":
            return replace(segment, rir=None)
        return replace(segment, rir=_nearest(bank, room, segment.role, distance_m)[0])

    return replace(
        recipe, room=room, segments=tuple(map(placed, recipe.segments)), sidetalk=tuple(map(placed, recipe.sidetalk))
    )  # fmt: skip


def with_snr(recipe: MixtureRecipe, snr_db: float, around: Surrounding, seed: int) -> MixtureRecipe:
    """The scene's own noise at another SNR."""
    return replace(recipe, snr_db=snr_db, noise_dba=None, noise_distance_m=None)


def _unplaced(segments: tuple[Segment, ...]) -> tuple[Segment, ...]:
    fields: dict[str, Any] = {"rir": None}
    return tuple(replace(segment, **fields) for segment in segments)


def _nearest(bank: RirBank, room: str, role: str, distance_m: float) -> list[int]:
    """The entry of a role whose distance is most like the asked one, in a list; empty where there is none."""
    indices = bank.select(role=role, room=room)
    return sorted(indices, key=lambda index: abs(np.log(bank.entries[index].distance_m / distance_m)))[:1]


def _draw_near(values: dict[str, float], wanted: float, seed: int, complaint: str) -> str:
    """One of the names whose value is within the tolerance, by seed; ValueError tells the nearest."""
    near = sorted(name for name, value in values.items() if abs(np.log(value / wanted)) <= np.log1p(TOLERANCE))
    if not near:
        closest = min(values.values(), key=lambda value: abs(np.log(value / wanted)), default=float("nan"))
        raise ValueError(f"{complaint} (within {TOLERANCE:.0%}); the nearest is {closest:.2f}")
    return near[int(np.random.default_rng([seed, 77]).integers(len(near)))]
