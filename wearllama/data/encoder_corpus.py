"""Batches for encoder pre-training: fresh mixtures of a transcribed corpus, with word and acoustic targets.

The corpus is one or more JSONL manifests of ``{"id", "file", "text", "voice", "seconds"}``, paths relative to the
manifest.  Item k of :class:`PretrainingBatches` is the k-th batch of the run, a pure function of (seed, k): any number
of workers gives the same batches and a resumed run goes on where it stopped without replaying anything.
"""

import json
import warnings
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from wearllama.audio.array import ArrayGeometry
from wearllama.audio.beamforming import Beam, select_channels
from wearllama.audio.frontend import LogMel
from wearllama.audio.timebase import (
    HOP_SAMPLES,
    MEL_FRAMES_PER_EMBEDDING,
    SAMPLE_RATE,
    num_encoder_frames,
    num_mel_frames,
)
from wearllama.data.augment import Augmentation
from wearllama.data.ctc_text import WordPieces, char_ids, has_digits, spoken_form
from wearllama.simulation.bank import RirBank
from wearllama.simulation.mixing import Mixture, MixtureRecipe, Segment, render
from wearllama.simulation.noise import NoiseBank

SAMPLES_PER_EMBEDDING = HOP_SAMPLES * MEL_FRAMES_PER_EMBEDDING
CANDIDATES_PER_ROW = 6  # recipes drawn for each one kept, so that a batch holds similar durations


class Utterance(NamedTuple):
    id: str
    file: str
    """Path relative to the corpus root."""
    spoken: str
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


def read_corpus(manifest: Path, *, max_seconds: float) -> list[Utterance]:
    """Utterances that are short enough and spelt out in words; warns of how many are not.

    Raises:
        ValueError: a line is no JSON, lacks a field, or nothing is left.
    """
    utterances, too_long, digits = [], 0, 0
    for number, line in enumerate(manifest.read_text().splitlines(), start=1):
        try:
            row = json.loads(line)
            text, seconds = str(row["text"]), float(row["seconds"])
            if has_digits(text):
                digits += 1
            elif seconds > max_seconds:
                too_long += 1
            elif spoken := spoken_form(text):
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


class Scene(NamedTuple):
    recipe: MixtureRecipe
    utterances: list[Utterance]
    """The transcribed segments in order of time."""
    seconds: float
    seed: int
    channel: int
    """0: c_0, 1: the beam."""


class PretrainingBatches(Dataset[dict[str, Any]]):
    """Map-style: index = number of the batch in the run."""

    def __init__(
        self,
        *,
        utterances: list[Utterance],
        audio_root: Path,
        bank: RirBank,
        noise: NoiseBank,
        array: ArrayGeometry,
        beam: Beam,
        pieces: WordPieces,
        scenes: SceneConfig,
        split: str,
        teacher_dir: Path | None,
        teacher_width: int,
        num_batches: int,
        seed: int,
        augment: bool,
    ) -> None:
        self.audio_root, self.bank, self.noise, self.array, self.beam = audio_root, bank, noise, array, beam
        self.pieces, self.scenes, self.split = pieces, scenes, split
        self.teacher_dir, self.teacher_width = teacher_dir, teacher_width
        self.num_batches, self.seed, self.augment = num_batches, seed, augment
        self.augmentation = Augmentation(warp=scenes.warp, mask_spans=scenes.mask_spans)
        self.frontend = LogMel()
        by_voice: dict[str, list[Utterance]] = defaultdict(list)
        for utterance in utterances:
            by_voice[utterance.voice].append(utterance)
        self.by_voice = dict(sorted(by_voice.items()))
        self.voices = list(self.by_voice)
        # Square root: voices with thousands of clips must not drown those with fifty.
        weights = np.array([np.sqrt(len(self.by_voice[v])) * self._factor(v) for v in self.voices])
        self.voice_weights = weights / weights.sum()

    def __len__(self) -> int:
        return self.num_batches

    def __getitem__(self, index: int) -> dict[str, Any]:
        rng = np.random.default_rng([self.seed, index])
        scenes = self._draw_similar(rng)
        mixtures = [
            render(s.recipe, bank=self.bank, noise=self.noise, seed=s.seed, audio_root=self.audio_root) for s in scenes
        ]
        return self._collate(scenes, mixtures, rng)

    def _factor(self, voice: str) -> float:
        return float(np.prod([f for prefix, f in self.scenes.voice_weights.items() if voice.startswith(prefix)]))

    def _draw_similar(self, rng: np.random.Generator) -> list[Scene]:
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

    def _collate(self, scenes: list[Scene], mixtures: list[Mixture], rng: np.random.Generator) -> dict[str, Any]:
        clips = [
            select_channels(mixture.audio_MN, self.array, self.beam)[scene.channel]
            for scene, mixture in zip(scenes, mixtures, strict=True)
        ]
        mel_lengths_B = torch.tensor([num_mel_frames(len(clip)) for clip in clips])
        audio_BN = torch.zeros(len(clips), max(len(clip) for clip in clips))
        for row, clip in enumerate(clips):
            audio_BN[row, : len(clip)] = clip
        feats_BTF = self.frontend(audio_BN)
        batch = {"feats_BTF": feats_BTF, "mel_lengths_B": mel_lengths_B, "targets": self._targets(scenes, mixtures)}
        if self.augment:
            batch["seen_feats_BTF"] = self.augmentation(feats_BTF, int(rng.integers(2**31)))
        return batch

    def _targets(self, scenes: list[Scene], mixtures: list[Mixture]) -> dict[str, Tensor]:
        texts = [" ".join(u.spoken for u in scene.utterances) for scene in scenes]
        pieces = [torch.tensor(self.pieces.encode(text)) for text in texts]
        chars = [torch.tensor(char_ids(text)) for text in texts]
        lengths = [num_encoder_frames(num_mel_frames(m.audio_MN.shape[1])) for m in mixtures]
        shape = (len(scenes), max(lengths))
        roles_BL = torch.zeros(shape, dtype=torch.long)
        drr_db_BL = torch.full(shape, float("nan"))
        teacher_BLW = torch.zeros(*shape, self.teacher_width, dtype=torch.float16)
        teacher_mask_BL = torch.zeros(shape, dtype=torch.bool)
        for row, (scene, mixture) in enumerate(zip(scenes, mixtures, strict=True)):
            self._fill_acoustics(roles_BL[row], drr_db_BL[row], mixture)
            self._fill_teacher(teacher_BLW[row], teacher_mask_BL[row], scene)
        pad = torch.nn.utils.rnn.pad_sequence
        return {
            "pieces_BU": pad(pieces, batch_first=True),
            "piece_lengths_B": torch.tensor([len(row) for row in pieces]),
            "chars_BU": pad(chars, batch_first=True),
            "char_lengths_B": torch.tensor([len(row) for row in chars]),
            "teacher_BLW": teacher_BLW,
            "teacher_mask_BL": teacher_mask_BL,
            "roles_BL": roles_BL,
            "drr_db_BL": drr_db_BL,
        }

    def _fill_acoustics(self, roles_L: Tensor, drr_db_L: Tensor, mixture: Mixture) -> None:
        """Role bits (1 wearer, 2 somebody else, 3 both) and the ratio of whoever speaks alone."""
        for source in mixture.metadata["sources"]:
            if source["role"] == "noise":
                continue
            frames = slice(*(round(source[k] * SAMPLE_RATE / SAMPLES_PER_EMBEDDING) for k in ("start_s", "end_s")))
            alone = roles_L[frames] == 0
            drr_db_L[frames] = torch.where(alone, source["drr_db"], float("nan"))
            roles_L[frames] |= 1 if source["role"] == "wearer" else 2

    def _fill_teacher(self, teacher_LW: Tensor, mask_L: Tensor, scene: Scene) -> None:
        if self.teacher_dir is None:
            return
        for segment, utterance in zip(scene.recipe.segments, scene.utterances, strict=True):
            path = self.teacher_dir / f"{utterance.id}.npy"
            if not path.is_file():
                continue
            features = torch.from_numpy(np.load(path))
            start = round(segment.start_s * SAMPLE_RATE / SAMPLES_PER_EMBEDDING)
            count = min(len(features), len(mask_L) - start)
            teacher_LW[start : start + count] = features[:count]
            mask_L[start : start + count] = True
