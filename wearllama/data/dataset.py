"""Examples as a torch dataset: each access renders or reads one example's sound and makes (c_0, c_x) of it.

A mixture is rendered anew in every epoch, from a seed that is a hash of (run seed, id, epoch, repeat): the same samples
come out whatever the number of workers or ranks, and after a resume.

Shapes: M microphones, N samples.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from wearllama.audio.array import ArrayGeometry
from wearllama.audio.beamforming import Beam, select_channels
from wearllama.audio.io import audio_info
from wearllama.audio.timebase import SAMPLE_RATE
from wearllama.data.augment import Augmentation
from wearllama.data.manifest import Example, Renderer, example_seed, load_audio, seed_id
from wearllama.data.sampling import Draw
from wearllama.simulation.bank import RirBank
from wearllama.simulation.mixing import MixtureRecipe, render
from wearllama.simulation.noise import NoiseBank

DEVICE_STREAM = 79
"""Sets the draw of a device apart from what else the seed of a rendering decides."""


class Item(NamedTuple):
    """One example with its sound."""

    example: Example
    audio: tuple[Tensor, Tensor] | None
    """(c_0, c_x), each (N,) float32 at 16 kHz and aligned; None for text-only rows."""
    augment: Callable[[Tensor], Tensor] | None = None
    """What training does to the features (1, C, T, F)."""
    fault: str = ""
    """Why its sound could not be had; the row is then no row."""


@dataclass(frozen=True, kw_only=True)
class MixtureRenderer:
    """Renders recipes against one RIR bank and one noise bank; picklable into data workers."""

    bank: RirBank
    noise: NoiseBank
    audio_root: Path
    """Folder that the recipes' files are relative to."""

    def __call__(self, recipe: Mapping[str, Any], seed: int) -> Tensor:
        """Samples (M, N) of a recipe in its JSON form."""
        mixture = render(
            MixtureRecipe.from_dict(recipe), bank=self.bank, noise=self.noise, seed=seed, audio_root=self.audio_root
        )
        return torch.as_tensor(mixture.audio_MN, dtype=torch.float32)


class Device(NamedTuple):
    """What a mixture is heard with."""

    array: ArrayGeometry
    beam: Beam
    renderer: Renderer | None
    """Against a bank of that array."""


class ExampleDataset(Dataset[Item]):
    """Examples by index, or by :class:`Draw` (index, epoch, repeat) as the batch sampler hands them out."""

    def __init__(
        self,
        examples: Sequence[Example],
        *,
        root: str | Path,
        array: ArrayGeometry,
        beam: Beam,
        renderer: Renderer | None = None,
        others: Sequence[Device] = (),
        augment: Augmentation | None = None,
        seed: int = 0,
        tolerant: bool = False,
    ) -> None:
        """
        Args:
            examples: rows of a manifest.
            root: folder that file paths of the rows are relative to.
            array: geometry that recordings and the bank have.
            beam: makes c_x where a row brings no recorded beam.
            renderer: needed when rows are mixture recipes.
            others: more devices; every rendering of a mixture draws one of all, recordings stay those of ``array``.
            augment: what the collator does to the features; None for evaluation.
            seed: of the run; other seeds give other mixtures.
            tolerant: give rows that cannot be read as items with a ``fault`` instead of raising.
        """
        self.examples = examples
        self.root = Path(root)
        self.array, self.beam, self.renderer, self.augment, self.seed = array, beam, renderer, augment, seed
        self.others = tuple(others)
        self.tolerant = tolerant
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of plain integer indices. Draws bring their own, which also reaches running workers."""
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, key: int | Draw) -> Item:
        draw = key if isinstance(key, Draw) else Draw(key, self.epoch)
        example = self.examples[draw.index]
        seed = example_seed(seed_id(example), epoch=draw.epoch, repeat=draw.repeat, seed=self.seed)
        try:
            audio = self._channels(example, seed)
        except ValueError as error:
            if self.tolerant:
                return Item(example, None, fault=str(error))
            raise ValueError(f"example {example.id!r}: {error}") from error
        return Item(example, audio, partial(self.augment, seed=seed) if self.augment and audio else None)

    def _channels(self, example: Example, seed: int) -> tuple[Tensor, Tensor] | None:
        device = self._device(example, seed)
        clip = load_audio(example, self.root, device.renderer, channels=device.array.num_mics, seed=seed)
        if clip is None:
            return None
        if clip.beam_N is not None:
            return clip.audio_MN[device.array.reference], clip.beam_N
        c0_N, cx_N = select_channels(clip.audio_MN, device.array, device.beam)
        return c0_N, cx_N

    def _device(self, example: Example, seed: int) -> Device:
        """The one that hears this rendering: both sides of a pair, which share the seed, share it too."""
        own = Device(self.array, self.beam, self.renderer)
        if not (self.others and example.audio and "mixture" in example.audio):
            return own
        devices = [own, *self.others]
        return devices[int(np.random.default_rng([seed, DEVICE_STREAM]).integers(len(devices)))]


def example_seconds(example: Example, root: str | Path) -> float:
    """Seconds of an example's sound: ``metadata.seconds``, or a file's header; 0 for text-only rows.

    A recipe's length is not known without reading its sources: whoever writes one writes ``metadata.seconds``.
    """
    if example.audio is None:
        return 0.0
    if "seconds" in example.metadata:
        return example.seconds
    if "mc" in example.audio:
        info = audio_info(Path(root) / example.audio["mc"])
        return info.frames / SAMPLE_RATE
    raise ValueError(f"example {example.id!r} is a mixture without metadata.seconds, which batching needs")
