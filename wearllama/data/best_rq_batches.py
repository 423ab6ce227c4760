"""Batches for BEST-RQ: clips of a folder or mixtures through an RIR bank, with masked spans.

Item k of :class:`BestRqBatches` is the k-th batch of the run, a pure function of (seed, k), whatever the number of
workers.  A clip of an array has up to two views, c_0 and c_x, which share masks and targets.

Shape suffixes: V views, N samples, B rows (views times clips, the first view of all clips first), C clips, T mel
frames, F mel bins, L encoder frames.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from wearllama.audio.array import ArrayGeometry
from wearllama.audio.beamforming import design_beam, select_channels
from wearllama.audio.frontend import LogMelConfig, mel_power, normalised_log
from wearllama.audio.io import FirstDamaged
from wearllama.audio.timebase import HOP_SAMPLES, SAMPLE_RATE, WINDOW_SAMPLES, num_mel_frames
from wearllama.data.audio_folder import AudioClip, read_clip
from wearllama.data.pretraining_scenes import SceneSource
from wearllama.modeling.best_rq import IGNORED, BestRqConfig, draw_spans

Channels = Literal["mono", "c0", "cx", "mc"]
NOISE_STD = 0.1
"""Of what stands in masked spans, in units of the normalised features (Chiu et al. 2022, section 4.1)."""


@dataclass(kw_only=True)
class ClipConfig:
    """How clips of a folder become batches."""

    batch_seconds: float = 110.0
    """Audio seconds of a batch, padding and both views included."""
    crop_frames: int = 6000
    """Mel frames of a clip at most; of a longer one, another part in every epoch."""
    min_seconds: float = 0.5
    """Shorter files are left out."""
    buckets: int = 12
    """Groups of similar duration that batches are drawn from."""
    gain_db: tuple[float, float] = (-24.0, 6.0)
    """Range of the level augmentation of what the encoder sees, one gain a clip and all its views."""
    resample: bool = False
    """Convert files of another rate than 16 kHz; without it they are an error."""

    def __post_init__(self) -> None:
        if self.crop_frames < 1 or self.buckets < 1:
            raise ValueError(
                f"clips.crop_frames and clips.buckets are {self.crop_frames} and {self.buckets}, wanted at least 1"
            )
        if not self.gain_db[0] <= self.gain_db[1]:
            raise ValueError(f"clips.gain_db is {self.gain_db}, wanted a rising range in dB")

    @property
    def crop_samples(self) -> int:
        return HOP_SAMPLES * (self.crop_frames - 1) + WINDOW_SAMPLES


class Source(Protocol):
    """Where a batch's clips come from."""

    def draw(self, index: int, rng: np.random.Generator) -> list[Tensor]:
        """Clips of batch ``index``, each (V, N) at 16 kHz."""

    def gains_db(self, clips: int, rng: np.random.Generator) -> np.ndarray:
        """Level augmentation, (clips,)."""


class FolderSource:
    """Every clip once an epoch, in batches of similar duration; buckets are fixed, their order and cuts are drawn."""

    def __init__(
        self,
        folder: Path,
        clips: Sequence[AudioClip],
        *,
        config: ClipConfig,
        channels: Channels,
        array: ArrayGeometry | None,
        seed: int,
    ) -> None:
        """
        Args:
            folder: that the clips' files are relative to.
            clips: at least one.
            config: how they become batches.
            channels: which views an array recording gives; ``mono`` for files of one channel.
            array: of the recordings; None for mono files.
            seed: of the order.

        Raises:
            ValueError: channels and array do not go together, or a clip is longer than a batch may be.
        """
        if (channels == "mono") != (array is None):
            raise ValueError(f"channels={channels} with array={array and array.name}: wanted an array unless mono")
        self.folder, self.clips, self.config, self.seed = folder, list(clips), config, seed
        self.channels, self.array = channels, array
        self.beam = design_beam(array) if array is not None else None
        seconds = np.array([min(clip.samples, config.crop_samples) for clip in clips]) / SAMPLE_RATE
        views = 2 if channels == "mc" else 1
        order = np.argsort(seconds, kind="stable")
        if seconds[order[-1]] * views > config.batch_seconds:
            raise ValueError(
                f"{folder / self.clips[order[-1]].file} gives {views} x {seconds[order[-1]]:.1f} s, "
                f"wanted at most clips.batch_seconds = {config.batch_seconds}"
            )
        self._buckets = []
        for rows in np.array_split(order, min(config.buckets, len(order))):
            size = int(config.batch_seconds / (views * seconds[rows[-1]]))
            self._buckets.append((rows, -(-len(rows) // size)))
        self.batches_per_epoch = sum(count for _, count in self._buckets)
        self._dealt: tuple[int, list[np.ndarray]] = (-1, [])
        self._damaged = FirstDamaged()

    def draw(self, index: int, rng: np.random.Generator) -> list[Tensor]:
        epoch, place = divmod(index, self.batches_per_epoch)
        if self._dealt[0] != epoch:
            self._dealt = (epoch, self._deal(epoch))
        return [self._read(self.clips[row], rng) for row in self._dealt[1][place]]

    def gains_db(self, clips: int, rng: np.random.Generator) -> np.ndarray:
        return rng.uniform(*self.config.gain_db, clips)

    def _deal(self, epoch: int) -> list[np.ndarray]:
        rng = np.random.default_rng([self.seed, epoch])
        batches = [part for rows, count in self._buckets for part in np.array_split(rng.permutation(rows), count)]
        return [batches[place] for place in rng.permutation(len(batches))]

    def _read(self, clip: AudioClip, rng: np.random.Generator) -> Tensor:
        wanted = min(clip.samples, self.config.crop_samples)
        start = int(rng.integers(clip.samples - wanted + 1))
        mics = 1 if self.array is None else self.array.num_mics
        with self._damaged.watching():
            audio_MN = read_clip(self.folder, clip, channels=mics, start=start, samples=wanted)
        if self.array is None or self.beam is None:
            return audio_MN
        return _views(select_channels(audio_MN, self.array, self.beam), self.channels)


class MixtureSource:
    """Fresh scenes of a corpus in every batch; their levels are drawn with them."""

    def __init__(self, scenes: SceneSource, *, channels: Channels) -> None:
        if channels == "mono":
            raise ValueError("channels=mono with a bank: wanted c0, cx or mc, mixtures have an array's channels")
        self.scenes, self.channels = scenes, channels

    def draw(self, index: int, rng: np.random.Generator) -> list[Tensor]:
        scenes = self.scenes.draw(rng)
        return [_views(self.scenes.channels(self.scenes.render(scene)), self.channels) for scene in scenes]

    def gains_db(self, clips: int, rng: np.random.Generator) -> np.ndarray:
        return np.zeros(clips)


def _views(channels: tuple[Tensor, Tensor], chosen: Channels) -> Tensor:
    """c_0, c_x or both as (V, N)."""
    return torch.stack(channels if chosen == "mc" else [channels[0 if chosen == "c0" else 1]])


class BestRqBatches(Dataset[dict[str, Any]]):
    """Map-style: index = number of the batch in the run; items are what ``EncoderForBestRq`` takes."""

    def __init__(
        self, source: Source, config: BestRqConfig, *, num_batches: int, seed: int, target_view: int = 0
    ) -> None:
        """
        Args:
            source: of the clips.
            config: masks and stack.
            num_batches: length of the run.
            seed: of the run.
            target_view: view whose labels all views of a clip learn (0: c_0, 1: c_x).
        """
        self.source, self.config, self.num_batches, self.seed = source, config, num_batches, seed
        self.target_view = target_view
        self.frontend = LogMelConfig(n_mels=config.encoder.n_mels)

    def __len__(self) -> int:
        return self.num_batches

    def __getitem__(self, index: int) -> dict[str, Any]:
        rng = np.random.default_rng([self.seed, index])
        clips = self.source.draw(index, rng)
        views = len(clips[0])
        gains_C = torch.from_numpy(10.0 ** (self.source.gains_db(len(clips), rng) / 10.0)).float()
        audio_VCN = torch.zeros(views, len(clips), max(clip.shape[1] for clip in clips))
        for row, clip in enumerate(clips):
            audio_VCN[:, row, : clip.shape[1]] = clip
        lengths = [num_mel_frames(clip.shape[1]) for clip in clips]
        power_VCTF = mel_power(audio_VCN, self.frontend)
        feats_VCTF = normalised_log(power_VCTF * gains_C[:, None, None], self.frontend)
        labels_CL = self._mask(feats_VCTF, lengths, rng)
        return {
            "seen_feats_BTF": feats_VCTF.flatten(0, 1),
            "mel_lengths_B": torch.tensor(lengths).repeat(views),
            "power_CTF": power_VCTF[self.target_view],
            "labels": labels_CL.repeat(views, 1),
        }

    def _mask(self, feats_VCTF: Tensor, lengths: list[int], rng: np.random.Generator) -> Tensor:
        """Put noise into spans of all views, in place; returns which frames carry loss, (C, L) as ``labels``."""
        c, stack = self.config, self.config.stack
        labels_CL = torch.full((len(lengths), -(-max(lengths) // stack)), IGNORED)
        for row, frames in enumerate(lengths):
            spans_L = draw_spans(
                frames, stack=stack, span_frames=c.span_frames, start_probability=c.start_probability, rng=rng
            )
            masked_T = torch.from_numpy(spans_L.repeat(stack)[:frames])
            shape = (len(feats_VCTF), int(masked_T.sum()), feats_VCTF.shape[-1])
            noise_VMF = rng.standard_normal(shape, dtype=np.float32) * np.float32(NOISE_STD)
            feats_VCTF[:, row, :frames][:, masked_T] = torch.from_numpy(noise_VMF)
            whole = torch.from_numpy(spans_L[: frames // stack])  # a last, partly filled stack has no target
            labels_CL[row, : len(whole)][whole] = 0
        return labels_CL
