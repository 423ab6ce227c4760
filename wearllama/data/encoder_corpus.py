"""Batches for encoder pre-training: fresh mixtures of a corpus, with word and acoustic targets.

Item k of :class:`PretrainingBatches` is the k-th batch of the run, a pure function of (seed, k): any number of workers
gives the same batches and a resumed run goes on where it stopped without replaying anything.
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from wearllama.audio.frontend import LogMel
from wearllama.audio.timebase import (
    HOP_SAMPLES,
    MEL_FRAMES_PER_EMBEDDING,
    SAMPLE_RATE,
    num_encoder_frames,
    num_mel_frames,
)
from wearllama.data.augment import Augmentation
from wearllama.data.ctc_text import WordPieces, char_ids
from wearllama.data.pretraining_scenes import Scene, SceneSource
from wearllama.simulation.mixing import Mixture

SAMPLES_PER_EMBEDDING = HOP_SAMPLES * MEL_FRAMES_PER_EMBEDDING


class PretrainingBatches(Dataset[dict[str, Any]]):
    """Map-style: index = number of the batch in the run."""

    def __init__(
        self,
        source: SceneSource,
        *,
        pieces: WordPieces | None,
        teacher_dir: Path | None,
        teacher_width: int,
        num_batches: int,
        seed: int,
        augment: bool,
    ) -> None:
        """
        Args:
            source: draws and renders the scenes.
            pieces: word pieces of the top CTC; None where no words are asked for.
            teacher_dir: folder of Whisper features by utterance id, if there is one.
            teacher_width: their width.
            num_batches: length of the run.
            seed: of the run.
            augment: warp and mask what the encoder sees.
        """
        self.source, self.pieces = source, pieces
        self.teacher_dir, self.teacher_width = teacher_dir, teacher_width
        self.num_batches, self.seed, self.augment = num_batches, seed, augment
        self.augmentation = Augmentation(warp=source.scenes.warp, mask_spans=source.scenes.mask_spans)
        self.frontend = LogMel()

    def __len__(self) -> int:
        return self.num_batches

    def __getitem__(self, index: int) -> dict[str, Any]:
        rng = np.random.default_rng([self.seed, index])
        scenes = self.source.draw(rng)
        return self._collate(scenes, [self.source.render(scene) for scene in scenes], rng)

    def _collate(self, scenes: list[Scene], mixtures: list[Mixture], rng: np.random.Generator) -> dict[str, Any]:
        clips = [self.source.channels(mixture)[scene.channel] for scene, mixture in zip(scenes, mixtures, strict=True)]
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
        pieces = [torch.tensor(self.pieces.encode(text) if self.pieces else [], dtype=torch.long) for text in texts]
        chars = [torch.tensor(char_ids(text), dtype=torch.long) for text in texts]
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
