"""The mixture S = s*h1 + n*h2 + x*h3 (contract 4): a pure function of (recipe, seed), the same samples anywhere.

Every source image has ONE scalar over all channels and the mixture one more, so that delays and level differences
between microphones are the responses' own.  Talkers keep their true relation: own voice near, others far, each with a
drawn vocal effort.  SNR is set on reverberant images at c_0 over frames with active speech.

Shapes: M microphones, N samples, F bins of one block.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from wearllama.simulation.background import Background, plan_noise
from wearllama.simulation.bank import RirBank
from wearllama.simulation.convolve import BlockPlan, mix_channels
from wearllama.simulation.device import HILBERT_HALF, DeviceDraw, add_self_noise, draw_device, limit_and_quantise
from wearllama.simulation.moving import draw_motion, follow, motion_metadata
from wearllama.simulation.noise import NoiseBank
from wearllama.simulation.recipe import MixtureRecipe, Segment, draw_from
from wearllama.simulation.sources import PlacedSource, SourceFile, load_source, place_source, power

__all__ = ["Mixture", "MixtureRecipe", "Segment", "render"]

SAMPLE_RATE = 16_000

Signal = NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class Mixture:
    """A rendered scene."""

    audio_MN: Tensor
    """float32 at 16 kHz, as the device records it."""
    metadata: dict[str, Any]
    """JSON values: room, seed, level, noise with asked and measured SNR, every source with place, time and level."""


def render(recipe: MixtureRecipe, *, bank: RirBank, noise: NoiseBank, seed: int, audio_root: str | Path) -> Mixture:
    """Render ``recipe`` with everything it leaves open drawn from ``seed``.

    Raises:
        ValueError: the bank lacks a room or role that is asked for, or speech ends after ``duration_s``.
        AudioError: a source file is missing, broken, not mono or not 16 kHz.
    """
    places, levels, noises, devices, motions = (np.random.default_rng([seed, stream]) for stream in range(5))
    room = _draw_room(recipe, bank, places)
    rirs = _draw_rirs(recipe, bank, room, places)
    segments = [(s, False) for s in recipe.segments] + [(s, True) for s in recipe.sidetalk]
    files = [load_source(Path(audio_root) / segment.file) for segment, _ in segments]
    ends = [round(s.start_s * SAMPLE_RATE) + len(f.signal_N) for (s, _), f in zip(segments, files, strict=True)]
    length = _length(recipe, ends, places)
    files = [_cut(f, length - round(s.start_s * SAMPLE_RATE)) for (s, _), f in zip(segments, files, strict=True)]
    plan = BlockPlan(length=length, taps=bank.num_taps, margin=HILBERT_HALF)
    noise_plan = plan_noise(recipe, noise, noises)
    track = draw_motion(recipe.moving, bank, room, length / SAMPLE_RATE, motions)
    sources = []
    for (segment, sidetalk), file, rir in zip(segments, files, rirs, strict=True):
        effort = float(levels.normal()) * recipe.effort_db + noise_plan.lombard_db
        path = segment.path or follow(track, bank, rir)
        sources.append(place_source(plan, bank, file, segment, sidetalk, path, effort))
    own_power = _own_voice_power(bank, room)
    level = draw_from(recipe.level_dbfs, levels)
    sources = _set_sidetalk(sources, recipe, levels)
    device = draw_device(recipe.device, bank.num_channels, bank.reference, devices)
    background = Background(recipe, noise_plan, plan, bank, noise, room, track, sources, own_power, noises)
    scale = float(10 ** (level / 20) / np.sqrt(own_power))
    audio_MN = _sum(plan, bank, sources, background, device, scale)
    if device.self_noise_db is not None:
        add_self_noise(audio_MN, 10 ** ((level - device.self_noise_db) / 20), devices)
    limit_and_quantise(audio_MN, device.clip, recipe.device.quantise)
    metadata = {
        "room": room,
        "split": recipe.split,
        "rt60_s": bank.entries[bank.select(room=room)[0]].rt60_s,
        "seed": int(seed),
        "level_dbfs": round(level, 2),
        "overlap_s": round(_overlap(sources, length), 3),
        **({"motion": motion_metadata(track, bank, room)} if track else {}),
        "sources": [_describe(source, bank, scale) for source in sources],
        **background.metadata(),
        **device.failures(),
    }
    return Mixture(audio_MN=torch.from_numpy(audio_MN), metadata=metadata)


def _draw_room(recipe: MixtureRecipe, bank: RirBank, rng: np.random.Generator) -> str:
    segments = (*recipe.segments, *recipe.sidetalk)
    chosen = {rir for s in segments for rir in (s.rir, *(rir for _, rir in s.path)) if rir is not None}
    if outside := [rir for rir in sorted(chosen) if not 0 <= rir < len(bank)]:
        raise ValueError(f"mixture: entries {outside} are wanted, the bank {bank.path} has {len(bank)}")
    fixed = {bank.entries[rir].room for rir in chosen}
    position = rng.uniform()
    if recipe.room is not None or fixed:
        room = recipe.room or min(fixed)
        if fixed - {room} or room not in bank.rooms():
            raise ValueError(f"mixture: rooms {sorted(fixed | {room})}, wanted one room of the bank {bank.path}")
        return room
    rooms = bank.rooms(recipe.split)
    if not rooms:
        found = sorted({entry.split for entry in bank.entries})
        raise ValueError(f"{bank.path}: no room of split {recipe.split!r}, found {found}")
    return rooms[int(position * len(rooms))]


def _draw_rirs(recipe: MixtureRecipe, bank: RirBank, room: str, rng: np.random.Generator) -> list[int]:
    """One entry a segment: a role has one place in the segments and one more in the sidetalk; the wearer only one."""
    chosen: dict[tuple[str, bool], int] = {}
    rirs = []
    for segment, sidetalk in [(s, False) for s in recipe.segments] + [(s, True) for s in recipe.sidetalk]:
        key = (segment.role, sidetalk and segment.role != "wearer")
        if segment.path:
            rirs.append(segment.path[0][1])
            continue
        if segment.rir is None and key not in chosen:
            candidates = bank.select(role=segment.role, room=room)
            taken = set(chosen.values())
            free = [index for index in candidates if index not in taken] or candidates
            if not free:
                raise ValueError(f"{bank.path}: room {room} has no response for a {segment.role}")
            chosen[key] = free[int(rng.integers(len(free)))]
        rirs.append(chosen[key] if segment.rir is None else segment.rir)
    return rirs


def _length(recipe: MixtureRecipe, ends: list[int], rng: np.random.Generator) -> int:
    position = rng.uniform()
    if recipe.duration_s is None:
        drawn = 0.15 + 0.25 * position if ends else 1.5 + 2.5 * position
        return max(ends, default=0) + round(drawn * SAMPLE_RATE)
    length = round(recipe.duration_s * SAMPLE_RATE)
    spoken = ends[: len(recipe.segments)]  # the task's words must be whole; bystanders may go on talking
    if spoken and max(spoken) > length:
        found = max(spoken) / SAMPLE_RATE
        raise ValueError(f"mixture: speech ends at {found:.2f} s, after duration_s = {recipe.duration_s}")
    return length


def _cut(file: SourceFile, samples: int) -> SourceFile:
    """What is heard of a clip before the mixture ends."""
    samples = max(samples, 0)
    return file._replace(signal_N=file.signal_N[:samples], active_N=file.active_N[:samples])


def _own_voice_power(bank: RirBank, room: str) -> float:
    """Power at c_0 of own voice with nominal effort: the unit of levels and of self-noise."""
    entries = bank.select(role="wearer", room=room) or bank.select(room=room)
    return float(np.mean([bank.energy(index)[0] for index in entries]))


def _set_sidetalk(sources: list[PlacedSource], recipe: MixtureRecipe, rng: np.random.Generator) -> list[PlacedSource]:
    """Scale all sidetalk by one factor to the asked ratio, if one is asked."""
    if recipe.sidetalk_snr_db is None:
        return sources
    asked = draw_from(recipe.sidetalk_snr_db, rng)
    powers = [
        power(np.concatenate([s.active_image() for s in sources if s.sidetalk is side] or [np.zeros(0, np.float32)]))
        for side in (False, True)
    ]
    if min(powers) <= 0:
        return sources
    factor = float(np.sqrt(powers[0] / powers[1] / 10 ** (asked / 10)))
    return [s.scaled(factor) if s.sidetalk else s for s in sources]


def _sum(
    plan: BlockPlan,
    bank: RirBank,
    sources: list[PlacedSource],
    background: Background,
    device: DeviceDraw,
    scale: float,
) -> Signal:
    """All channels (M, N) behind the device's filters; c_0 is the sum of the images that are there already."""
    reference = bank.reference
    spectra = [heard for source in sources for heard in source.spectra]
    rirs = [rir for source in sources for _, rir in source.path]
    audio_MN = np.empty((bank.num_channels, plan.length), np.float32)
    c0_N = audio_MN[reference]
    c0_N[:] = sources[0].image_N if sources else 0.0
    for source in sources[1:]:
        c0_N += source.image_N
    responses = [bank.spectrum(rir, plan.n_fft) for rir in rirs]
    if background.parts:
        assert background.image_N is not None, "parts come with their image at c_0"
        spectra += [heard.scaled(background.gain) for heard, _ in background.parts]
        responses += [response_MF for _, response_MF in background.parts]
        c0_N += np.float32(background.gain) * background.image_N
    c0_N *= np.float32(device.gain_M[reference] * scale)
    whole = range(bank.num_channels)
    others = [channel for channel in whole if channel != reference or device.cover_db_M[channel]]
    filters_MF = None if device.is_linear_identity else device.response_MF(plan.n_fft)
    mix_channels(plan, spectra, responses, others, audio_MN, device_MF=filters_MF, gain=scale)
    if background.wind_MN is not None:
        audio_MN += np.float32(background.gain * scale) * background.wind_MN
    audio_MN[device.dead_M] = 0.0
    return audio_MN


def _overlap(sources: list[PlacedSource], length: int) -> float:
    talking_N = np.zeros(length, np.int8)
    for source in sources:
        talking_N[source.start : source.end] += source.active_N
    return float(np.count_nonzero(talking_N > 1)) / SAMPLE_RATE


def _describe(source: PlacedSource, bank: RirBank, scale: float) -> dict[str, Any]:
    entry = bank.entries[source.rir]
    level = source.active_power() * scale**2
    return {
        "role": source.segment.role,
        "sidetalk": source.sidetalk,
        "file": source.segment.file,
        "start_s": source.start / SAMPLE_RATE,
        "end_s": source.end / SAMPLE_RATE,
        "rir": entry.id,
        **({"path": [(round(t, 3), bank.entries[rir].id) for t, rir in source.path]} if len(source.path) > 1 else {}),
        "azimuth_deg": entry.azimuth_deg,
        "elevation_deg": entry.elevation_deg,
        "distance_m": entry.distance_m,
        "drr_db": entry.drr_db,
        "effort_db": round(source.effort_db, 2),
        "level_dbfs": round(10 * float(np.log10(max(level, 1e-20))), 2),
    }
