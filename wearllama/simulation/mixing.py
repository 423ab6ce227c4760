"""The mixture S = s*h1 + n*h2 + x*h3 (contract 4): a pure function of (recipe, seed), the same samples anywhere.

Every source image has ONE scalar over all channels and the mixture one more, so that delays and level differences between
microphones are the responses' own.  Talkers keep their true relation: own voice near, others far, each with a drawn
vocal effort.  SNR is set on reverberant images at c_0 over frames with active speech.

Shapes: M microphones, N samples, F bins of one block.
"""

from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from wearllama.audio.io import read_audio
from wearllama.simulation.bank import RirBank
from wearllama.simulation.convolve import BlockPlan, SourceSpectra, channel_image, mix_channels, transform_source
from wearllama.simulation.device import HILBERT_HALF, DeviceDraw, add_self_noise, draw_device, limit_and_quantise
from wearllama.simulation.noise import NoiseBank, NoiseDraw, draw_wind
from wearllama.simulation.recipe import MixtureRecipe, Segment

__all__ = ["Mixture", "MixtureRecipe", "Segment", "render"]

SAMPLE_RATE = 16_000
ACTIVE_FRAME = 320
ACTIVE_RANGE_DB = 30.0
"""Frames this far under a source's loudest count as pauses."""
SOURCE_CACHE_BYTES = 256 * 2**20

Signal = NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class Mixture:
    """A rendered scene."""

    audio_MN: Tensor
    """float32 at 16 kHz, as the device records it."""
    metadata: dict[str, Any]
    """JSON values: room, seed, level, noise with asked and measured SNR, and every source with place, time and level."""


class _Source(NamedTuple):
    segment: Segment
    sidetalk: bool
    rir: int
    effort_db: float
    gain: float
    start: int
    active_N: NDArray[np.bool_]
    spectra: SourceSpectra
    image_N: Signal
    """At c_0, gain included."""

    @property
    def end(self) -> int:
        return self.start + len(self.active_N)

    def active_image(self) -> Signal:
        return self.image_N[self.start : self.end][self.active_N]


def render(
    recipe: MixtureRecipe, *, bank: RirBank, noise: NoiseBank, seed: int, audio_root: str | Path
) -> Mixture:
    """Render ``recipe`` with everything it leaves open drawn from ``seed``.

    Raises:
        ValueError: the bank lacks a room or role that is asked for, or speech ends after ``duration_s``.
        AudioError: a source file is missing, broken, not mono or not 16 kHz.
    """
    places, levels, noises, devices = (np.random.default_rng([seed, stream]) for stream in range(4))
    room = _draw_room(recipe, bank, places)
    rirs = _draw_rirs(recipe, bank, room, places)
    segments = [(s, False) for s in recipe.segments] + [(s, True) for s in recipe.sidetalk]
    files = [load_source(Path(audio_root) / segment.file) for segment, _ in segments]
    length = _length(recipe, [round(s.start_s * SAMPLE_RATE) + len(f.signal_N) for (s, _), f in zip(segments, files, strict=True)], places)
    plan = BlockPlan(length=length, taps=bank.num_taps, margin=HILBERT_HALF)
    sources = []
    for (segment, sidetalk), file, rir in zip(segments, files, rirs, strict=True):
        effort = float(levels.normal()) * recipe.effort_db
        sources.append(_place(plan, bank, file, segment, sidetalk, rir, effort))
    own_power = _own_voice_power(bank, room)
    level = _draw(recipe.level_dbfs, levels)
    sources = _set_sidetalk(sources, recipe, levels)
    device = draw_device(recipe.device, bank.num_channels, bank.reference, devices)
    background = _Background(recipe, plan, bank, noise, room, sources, own_power, noises)
    audio_MN = _sum(plan, bank, sources, background, device)
    if device.self_noise_db is not None:
        add_self_noise(audio_MN, float(np.sqrt(own_power)) * 10 ** (-device.self_noise_db / 20), devices)
    scale = 10 ** (level / 20) / np.sqrt(own_power)
    audio_MN *= np.float32(scale)
    limit_and_quantise(audio_MN, recipe.device)
    metadata = {
        "room": room,
        "split": recipe.split,
        "rt60_s": bank.entries[bank.select(room=room)[0]].rt60_s,
        "seed": int(seed),
        "level_dbfs": round(level, 2),
        "overlap_s": round(_overlap(sources, length), 3),
        "sources": [_describe(source, bank, scale) for source in sources],
        **background.metadata(),
    }
    return Mixture(audio_MN=torch.from_numpy(audio_MN), metadata=metadata)


class SourceFile(NamedTuple):
    """A source as mixtures use it: RMS 1 over its active samples."""

    signal_N: Signal
    active_N: NDArray[np.bool_]


_sources: OrderedDict[str, SourceFile] = OrderedDict()
_source_bytes = 0


def load_source(path: Path) -> SourceFile:
    """Read (or recall) a mono source."""
    global _source_bytes
    key = str(path)
    if key in _sources:
        _sources.move_to_end(key)
        return _sources[key]
    signal_N = read_audio(path, channels=1)[0].numpy()
    active_N = active_samples(signal_N)
    power = float(np.mean(np.square(signal_N[active_N], dtype=np.float64))) if active_N.any() else 1.0
    source = SourceFile((signal_N / np.sqrt(power)).astype(np.float32), active_N)
    _sources[key] = source
    _source_bytes += source.signal_N.nbytes + active_N.nbytes
    while _source_bytes > SOURCE_CACHE_BYTES and len(_sources) > 1:
        old = _sources.popitem(last=False)[1]
        _source_bytes -= old.signal_N.nbytes + old.active_N.nbytes
    return source


def active_samples(signal_N: Signal) -> NDArray[np.bool_]:
    """Which samples lie in 20 ms frames within 30 dB of the loudest; none in digital silence."""
    frames = -(-len(signal_N) // ACTIVE_FRAME)
    padded_N = np.zeros(frames * ACTIVE_FRAME, np.float64)
    padded_N[: len(signal_N)] = signal_N
    energy = np.sum(padded_N.reshape(frames, ACTIVE_FRAME) ** 2, axis=1)
    active = energy > max(energy.max() * 10 ** (-ACTIVE_RANGE_DB / 10), 1e-12)
    return np.repeat(active, ACTIVE_FRAME)[: len(signal_N)]


def _draw(value: float | tuple[float, float], rng: np.random.Generator) -> float:
    position = rng.uniform()
    return value[0] + position * (value[1] - value[0]) if isinstance(value, tuple) else float(value)


def _draw_room(recipe: MixtureRecipe, bank: RirBank, rng: np.random.Generator) -> str:
    fixed = {bank.entries[s.rir].room for s in (*recipe.segments, *recipe.sidetalk) if s.rir is not None}
    position = rng.uniform()
    if recipe.room is not None or fixed:
        room = recipe.room or min(fixed)
        if fixed - {room} or room not in bank.rooms():
            raise ValueError(f"mixture: rooms {sorted(fixed | {room})}, wanted one room of the bank {bank.path}")
        return room
    rooms = bank.rooms(recipe.split)
    if not rooms:
        raise ValueError(f"{bank.path}: no room of split {recipe.split!r}, found {sorted({e.split for e in bank.entries})}")
    return rooms[int(position * len(rooms))]


def _draw_rirs(recipe: MixtureRecipe, bank: RirBank, room: str, rng: np.random.Generator) -> list[int]:
    """One entry a segment: a role has one place in the segments and one more in the sidetalk; the wearer only one."""
    chosen: dict[tuple[str, bool], int] = {}
    rirs = []
    for segment, sidetalk in [(s, False) for s in recipe.segments] + [(s, True) for s in recipe.sidetalk]:
        key = (segment.role, sidetalk and segment.role != "wearer")
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
        return max(ends) + round((0.15 + 0.25 * position) * SAMPLE_RATE) if ends else round((1.5 + 2.5 * position) * SAMPLE_RATE)
    length = round(recipe.duration_s * SAMPLE_RATE)
    if ends and max(ends) > length:
        found = max(ends) / SAMPLE_RATE
        raise ValueError(f"mixture: speech ends at {found:.2f} s, after duration_s = {recipe.duration_s}")
    return length


def _place(
    plan: BlockPlan, bank: RirBank, file: SourceFile, segment: Segment, sidetalk: bool, rir: int, effort_db: float
) -> _Source:
    start = round(segment.start_s * SAMPLE_RATE)
    gain = 10 ** ((effort_db + segment.gain_db) / 20)
    spectra = transform_source(plan, file.signal_N, start - bank.pre_samples)
    image_N = channel_image(plan, spectra, bank.spectrum(rir, plan.n_fft)[bank.reference])
    image_N *= np.float32(gain)
    return _Source(segment, sidetalk, rir, effort_db, gain, start, file.active_N, spectra, image_N)


def _own_voice_power(bank: RirBank, room: str) -> float:
    """Power at c_0 of own voice with nominal effort: the unit of levels and of self-noise."""
    entries = bank.select(role="wearer", room=room) or bank.select(room=room)
    return float(np.mean([bank.energy(index)[0] for index in entries]))


def _power(signal_N: Signal) -> float:
    return float(np.mean(np.square(signal_N, dtype=np.float64))) if len(signal_N) else 0.0


def _set_sidetalk(sources: list[_Source], recipe: MixtureRecipe, rng: np.random.Generator) -> list[_Source]:
    """Scale all sidetalk by one factor to the asked ratio, if one is asked."""
    if recipe.sidetalk_snr_db is None:
        return sources
    asked = _draw(recipe.sidetalk_snr_db, rng)
    powers = [
        _power(np.concatenate([s.active_image() for s in sources if s.sidetalk is side] or [np.zeros(0, np.float32)]))
        for side in (False, True)
    ]
    if min(powers) <= 0:
        return sources
    factor = float(np.sqrt(powers[0] / powers[1] / 10 ** (asked / 10)))
    return [s._replace(gain=s.gain * factor, image_N=s.image_N * np.float32(factor)) if s.sidetalk else s for s in sources]


class _Background:
    """Noise of a mixture: drawn, convolved at c_0 and scaled to the asked SNR."""

    def __init__(
        self,
        recipe: MixtureRecipe,
        plan: BlockPlan,
        bank: RirBank,
        noise: NoiseBank,
        room: str,
        sources: list[_Source],
        own_power: float,
        rng: np.random.Generator,
    ) -> None:
        self.name: str | None = None
        self.spectra: SourceSpectra | None = None
        self.wind_MN: Signal | None = None
        self.rir: int | None = None
        self.gain = 0.0
        self.rows: dict[str, Any] = {"noise_type": None, "snr_db": None}
        names = noise.names
        drawn = names[int(rng.integers(len(names)))]
        if recipe.snr_db is None:
            return
        self.asked = _draw(recipe.snr_db, rng)
        self.name = recipe.noise_type if recipe.noise_type is not None else drawn
        self.draw = noise.draw(self.name, plan.length + bank.num_taps, rng)
        image_N = self._image(plan, bank, room, rng)
        self._scale(image_N, sources, own_power, bank)

    def _image(self, plan: BlockPlan, bank: RirBank, room: str, rng: np.random.Generator) -> Signal:
        if self.draw.field == "wind":
            self.wind_MN = draw_wind(bank.num_channels, plan.length, rng)
            return self.wind_MN[bank.reference]
        self.rir = _noise_rir(bank, room, self.draw, rng)
        self.spectra = transform_source(plan, self.draw.signal_N, -bank.num_taps)
        self.image_N = channel_image(plan, self.spectra, bank.spectrum(self.rir, plan.n_fft)[bank.reference])
        return self.image_N

    def _scale(self, image_N: Signal, sources: list[_Source], own_power: float, bank: RirBank) -> None:
        speech_N = np.zeros(len(image_N), np.float32)
        active_N = np.zeros(len(image_N), bool)
        direct = 0.0
        for source in (s for s in sources if not s.sidetalk):
            speech_N += source.image_N
            active_N[source.start : source.end] |= source.active_N
            direct += source.gain**2 * bank.energy(source.rir)[1] * int(source.active_N.sum())
        has_speech = bool(active_N.any())
        signal_power = _power(speech_N[active_N]) if has_speech else own_power
        noise_power = _power(image_N[active_N] if has_speech else image_N)
        self.gain = float(np.sqrt(signal_power / max(noise_power, 1e-30) / 10 ** (self.asked / 10)))
        self.rows = {"noise_type": self.name, "noise_source": self.draw.source, "noise_field": self.draw.field}
        self.rows["snr_db"] = round(self.asked, 3)
        if has_speech and noise_power > 0:
            scaled = _power(np.float32(self.gain) * image_N[active_N])
            self.rows["snr_measured_db"] = round(10 * float(np.log10(signal_power / scaled)), 3)
            self.rows["snr_dry_db"] = round(10 * float(np.log10(direct / int(active_N.sum()) / scaled)), 3)

    def metadata(self) -> dict[str, Any]:
        """Name, place and SNR: asked, measured on images, and of the direct sound alone over the noise."""
        return self.rows


def _noise_rir(bank: RirBank, room: str, draw: NoiseDraw, rng: np.random.Generator) -> int:
    wanted = bank.select(role="diffuse" if draw.field == "diffuse" else "noise", room=room)
    others = bank.select(role="noise", room=room) or bank.select(role="bystander", room=room)
    candidates = wanted or others or bank.select(room=room)
    return candidates[int(rng.integers(len(candidates)))]


def _sum(
    plan: BlockPlan, bank: RirBank, sources: list[_Source], background: _Background, device: DeviceDraw
) -> Signal:
    """All channels (M, N) behind the device's filters; c_0 is the sum of the images that are there already."""
    reference = bank.reference
    spectra = [source.spectra for source in sources]
    rirs = [source.rir for source in sources]
    gains = [source.gain for source in sources]
    audio_MN = np.zeros((bank.num_channels, plan.length), np.float32)
    for source in sources:
        audio_MN[reference] += source.image_N
    if background.spectra is not None and background.rir is not None:
        spectra.append(background.spectra)
        rirs.append(background.rir)
        gains.append(background.gain)
        audio_MN[reference] += np.float32(background.gain) * background.image_N
    audio_MN[reference] *= np.float32(device.gain_M[reference])
    others = [channel for channel in range(bank.num_channels) if channel != reference]
    responses = [bank.spectrum(rir, plan.n_fft) for rir in rirs]
    filters_MF = None if device.is_linear_identity else device.response_MF(plan.n_fft)
    audio_MN[others] = mix_channels(plan, spectra, responses, gains, others, filters_MF)
    if background.wind_MN is not None:
        audio_MN += np.float32(background.gain) * background.wind_MN
    return audio_MN


def _overlap(sources: list[_Source], length: int) -> float:
    talking_N = np.zeros(length, np.int8)
    for source in sources:
        talking_N[source.start : source.end] += source.active_N
    return float(np.count_nonzero(talking_N > 1)) / SAMPLE_RATE


def _describe(source: _Source, bank: RirBank, scale: float) -> dict[str, Any]:
    entry = bank.entries[source.rir]
    power = _power(source.active_image()) * scale**2
    return {
        "role": source.segment.role,
        "sidetalk": source.sidetalk,
        "file": source.segment.file,
        "start_s": source.start / SAMPLE_RATE,
        "end_s": source.end / SAMPLE_RATE,
        "rir": entry.id,
        "azimuth_deg": entry.azimuth_deg,
        "elevation_deg": entry.elevation_deg,
        "distance_m": entry.distance_m,
        "drr_db": entry.drr_db,
        "effort_db": round(source.effort_db, 2),
        "level_dbfs": round(10 * float(np.log10(max(power, 1e-20))), 2),
    }
