"""Scenes for encoder pre-training: who speaks, from where, in what noise, drawn from a corpus and an RIR bank.

The corpus is one or more JSONL manifests of ``{"id", "file", "text", "voice", "seconds"}``, paths relative to the
manifest, or a folder of recordings without any text.
"""

import json
import warnings
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
from torch import Tensor

from wearllama.audio.array import ArrayGeometry
from wearllama.audio.beamforming import Beam, select_channels
from wearllama.data.audio_folder import find_clips
from wearllama.data.ctc_text import has_digits, spoken_form
from wearllama.simulation.bank import RirBank
from wearllama.simulation.mixing import Mixture, MixtureRecipe, Segment, render
from wearllama.simulation.noise import NoiseBank

CANDIDATES_PER_ROW = 6  # recipes drawn for each one kept, so that a batch holds similar durations


class Utterance(NamedTuple):
    id: str
    file: str
    """Path relative to the corpus root."""
    spoken: str
    """Words as they are said; empty where there is no transcript."""
    voice: str
    seconds: float


@dataclass(kw_only=True)
class SceneConfig:
    """How scenes are drawn."""

    batch_seconds: float = 110.0
    """Audio seconds of a batch, padding included."""
    max_seconds: float = 9.0
    wearer: float = 0.65
    """Probability that a segment is the wearer's own voice; otherwise partner or bystander, evenly."""
    second_segment: float = 0.35
    sidetalk: float = 0.2
    """Probability of somebody talking over the wearer's words; never transcribed."""
    snr_db: tuple[float, float] = (-5.0, 40.0)
    level_dbfs: tuple[float, float] = (-45.0, -15.0)
    voice_weights: dict[str, float] = field(default_factory=dict)
    """Factor on the share of voices whose name starts with the key (``espeak: 0.3``)."""
    noise_types: tuple[str, ...] = ()
    """Names of the noise bank; empty: all that it has."""
    warp: float = 0.12
    """Half-width of the uniform frequency-warp factor around 1."""
    mask_spans: int = 2
    """SpecAugment spans a clip, in time and in frequency each."""


def read_corpus(manifest: Path, *, max_seconds: float, words: bool = True) -> list[Utterance]:
    """Utterances that are short enough and, where ``words`` are wanted, spelt out; warns of how many are not.

    Raises:
        ValueError: a line is no JSON, lacks a field, or nothing is left.
    """
    utterances, too_long, digits = [], 0, 0
    for number, line in enumerate(manifest.read_text().splitlines(), start=1):
        try:
            row = json.loads(line)
            text, seconds = str(row["text"]) if words else "", float(row["seconds"])
            if has_digits(text):
                digits += 1
            elif seconds > max_seconds:
                too_long += 1
            elif (spoken := spoken_form(text)) or not words:
                utterances.append(Utterance(row["id"], row["file"], spoken, row["voice"], seconds))
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{manifest}, line {number}: {error!r}") from error
    if too_long or digits:
        warnings.warn(
            f"{manifest}: left out {too_long} utterances over {max_seconds} s and {digits} written with digits",
            stacklevel=2,
        )
    if not utterances:
        raise ValueError(f"{manifest}: no utterance of at most {max_seconds} s")
    return utterances


def read_recordings(folder: Path, *, max_seconds: float) -> list[Utterance]:
    """The mono 16 kHz files of a folder as utterances without words; each folder of files counts as one voice.

    Raises:
        ValueError: no file of at most ``max_seconds``, or one of another rate or number of channels.
    """
    clips = find_clips(folder, channels=1)
    kept = [clip for clip in clips if clip.seconds <= max_seconds]
    if not kept:
        raise ValueError(f"{folder}: no recording of at most {max_seconds} s")
    if len(kept) < len(clips):
        warnings.warn(f"{folder}: left out {len(clips) - len(kept)} recordings over {max_seconds} s", stacklevel=2)
    return [Utterance(clip.file, clip.file, "", str(Path(clip.file).parent), clip.seconds) for clip in kept]


class Scene(NamedTuple):
    recipe: MixtureRecipe
    utterances: list[Utterance]
    """The transcribed segments in order of time."""
    seconds: float
    seed: int
    channel: int
    """0: c_0, 1: the beam."""


class SceneSource:
    """Draws scenes and renders them; what it draws follows from the generator that it is given."""

    def __init__(
        self,
        utterances: Sequence[Utterance],
        *,
        audio_root: Path,
        bank: RirBank,
        noise: NoiseBank,
        array: ArrayGeometry,
        beam: Beam,
        scenes: SceneConfig,
        split: str,
    ) -> None:
        """
        Args:
            utterances: what may be said.
            audio_root: folder that their files are relative to.
            bank: rooms; ``split`` says which.
            noise: kinds of background noise.
            array: geometry of the bank.
            beam: makes c_x.
            scenes: how scenes are drawn.
            split: of the bank's rooms.

        Raises:
            ValueError: the bank is of another array.
        """
        bank.require_array(array)
        self.audio_root, self.bank, self.noise, self.array, self.beam = audio_root, bank, noise, array, beam
        self.scenes, self.split = scenes, split
        by_voice: dict[str, list[Utterance]] = defaultdict(list)
        for utterance in utterances:
            by_voice[utterance.voice].append(utterance)
        self.by_voice = dict(sorted(by_voice.items()))
        self.voices = list(self.by_voice)
        # Square root: voices with thousands of clips must not drown those with fifty.
        weights = np.array([np.sqrt(len(self.by_voice[v])) * self._factor(v) for v in self.voices])
        self.voice_weights = weights / weights.sum()

    def render(self, scene: Scene) -> Mixture:
        """All channels of a scene."""
        return render(scene.recipe, bank=self.bank, noise=self.noise, seed=scene.seed, audio_root=self.audio_root)

    def channels(self, mixture: Mixture) -> tuple[Tensor, Tensor]:
        """c_0 and c_x of a mixture, each (N,)."""
        return select_channels(mixture.audio_MN, self.array, self.beam)

    def draw(self, rng: np.random.Generator) -> list[Scene]:
        """Scenes of similar duration that fill ``batch_seconds``."""
        s = self.scenes
        candidates = [self._draw(rng) for _ in range(int(CANDIDATES_PER_ROW * s.batch_seconds / 4))]
        candidates.sort(key=lambda scene: scene.seconds)
        start = int(rng.integers(0, len(candidates)))
        chosen: list[Scene] = []
        for scene in candidates[start:] + candidates[:start][::-1]:
            longest = max([scene.seconds, *(c.seconds for c in chosen)])
            if chosen and longest * (len(chosen) + 1) > s.batch_seconds:
                break
            chosen.append(scene)
        return chosen

    def _factor(self, voice: str) -> float:
        return float(np.prod([f for prefix, f in self.scenes.voice_weights.items() if voice.startswith(prefix)]))

    def _pick(self, rng: np.random.Generator, voice: str | None = None) -> Utterance:
        voice = voice or self.voices[rng.choice(len(self.voices), p=self.voice_weights)]
        rows = self.by_voice[voice]
        return rows[rng.integers(len(rows))]

    def _role(self, rng: np.random.Generator) -> str:
        if rng.random() < self.scenes.wearer:
            return "wearer"
        return "partner" if rng.random() < 0.5 else "bystander"

    def _draw(self, rng: np.random.Generator) -> Scene:
        s = self.scenes
        first, role = self._pick(rng), self._role(rng)
        start = float(rng.uniform(0.05, 0.4))
        segments = [Segment(file=first.file, role=role, start_s=start)]
        spoken, end = [first], start + first.seconds
        if rng.random() < s.second_segment:
            same = rng.random() < 0.5
            second = self._pick(rng, first.voice if same else None)
            second_role = self._role(rng)
            if end + second.seconds + 0.8 <= s.max_seconds:
                start = end + float(rng.uniform(0.1, 0.8))
                segments.append(Segment(file=second.file, role=second_role, start_s=start))
                spoken.append(second)
                end = start + second.seconds
        sidetalk = []
        if rng.random() < s.sidetalk and all(segment.role == "wearer" for segment in segments):
            other = self._pick(rng)
            sidetalk = [Segment(file=other.file, role="bystander", start_s=float(rng.uniform(0.0, end / 2)))]
            end = max(end, sidetalk[0].start_s + other.seconds)
        recipe = MixtureRecipe(
            segments=tuple(segments),
            sidetalk=tuple(sidetalk),
            noise_type=str(rng.choice(s.noise_types or self.noise.drawn)),
            snr_db=s.snr_db,
            level_dbfs=s.level_dbfs,
            split=self.split,
        )
        return Scene(recipe, spoken, end, int(rng.integers(2**31)), int(rng.integers(2)))
