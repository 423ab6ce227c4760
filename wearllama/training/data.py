"""From a manifest to what the trainer draws from: dataset, lengths and this rank's batches."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tqdm import tqdm

from wearllama.audio.array import ArrayGeometry
from wearllama.audio.beamforming import design_beam
from wearllama.audio.timebase import SAMPLE_RATE, num_embeddings
from wearllama.data.augment import Augmentation
from wearllama.data.dataset import Device, ExampleDataset, MixtureRenderer, example_seconds
from wearllama.data.manifest import Example, Renderer, read_manifest
from wearllama.data.sampling import BatchConfig, BucketBatchSampler, Lengths
from wearllama.data.shards import ShardReader
from wearllama.simulation.bank import RirBank
from wearllama.simulation.noise import NoiseBank


@dataclass(kw_only=True)
class SftData:
    """What to train on; relative paths are relative to the current directory."""

    manifest: str
    """JSONL of examples (contract 7)."""
    root: str | None = None
    """Folder that the rows' paths are relative to; the manifest's own if not given."""
    bank: str | None = None
    """RIR bank, for rows that are mixture recipes."""
    other_banks: list[str] = field(default_factory=list)
    """RIR banks of other arrays: every rendering draws the one it is heard with, and so its array and beam."""
    noise: list[str] = field(default_factory=list)
    """Folders of noise recordings, for the same rows."""
    shards: str | None = None
    """Folder of tools/render_shards.py: what it holds is read instead of rendered; the rest needs ``bank``."""
    augment: Augmentation = field(default_factory=Augmentation)
    """Of the training rows' features."""
    tolerance: float = 0.0
    """Share of the training rows whose sound may be unreadable: they are left out and named in
    run_dir/faults-rankN.jsonl. 0 stops at the first."""
    train_split: str = "train"
    validation_split: str = "validation"

    def __post_init__(self) -> None:
        if self.other_banks and (self.bank is None or self.shards is not None):
            raise ValueError(
                f"data.other_banks is {self.other_banks} with data.bank={self.bank} and data.shards={self.shards}: "
                "wanted a bank of the model's own array beside them, and no shards, which hold one array's renderings"
            )

    @property
    def banks(self) -> list[str]:
        """All of them, the one of the model's own array first."""
        return [*([] if self.bank is None else [self.bank]), *self.other_banks]

    @property
    def audio_root(self) -> Path:
        return Path(self.root) if self.root is not None else Path(self.manifest).parent


class SftSets(NamedTuple):
    """Training rows and, where the manifest has such a split, validation rows."""

    train: ExampleDataset
    validation: ExampleDataset | None


def load_sets(data: SftData, processor: Any, *, seed: int = 0) -> SftSets:
    """Datasets of the manifest's splits, rendered and beamformed as `processor` will do it for evaluation.

    Raises ValueError when the training split is empty, rows are recipes without a bank, or a bank is of another array
    or shards are of another seed.
    """
    examples = read_manifest(data.manifest)
    rows = {name: [row for row in examples if row.split == name] for name in (data.train_split, data.validation_split)}
    if not rows[data.train_split]:
        found = sorted({row.split for row in examples})
        raise ValueError(f"{data.manifest} has no rows of split {data.train_split!r}, found splits {found}")
    renderer, others = _renderer(data, examples, processor.array), _other_devices(data)
    if isinstance(renderer, ShardReader) and renderer.seed != seed:
        raise ValueError(f"data.shards={data.shards} were rendered for seed {renderer.seed}, train.seed is {seed}: "
                         f"wanted shards of tools/render_shards.py shards.seed={seed}")  # fmt: skip
    sets = {
        name: ExampleDataset(
            chosen,
            root=data.audio_root,
            array=processor.array,
            beam=processor.beam,
            renderer=renderer,
            others=others if name == data.train_split else (),
            augment=data.augment if name == data.train_split else None,
            seed=seed,
            tolerant=data.tolerance > 0 and name == data.train_split,
        )
        for name, chosen in rows.items()
        if chosen
    }
    return SftSets(sets[data.train_split], sets.get(data.validation_split))


def _renderer(data: SftData, examples: list[Example], array: ArrayGeometry) -> Renderer | None:
    if not any(row.audio and "mixture" in row.audio for row in examples):
        return None
    if data.bank is None and data.shards is None:
        raise ValueError(f"{data.manifest} has mixture recipes, which need data.bank or data.shards")
    render = None
    if data.bank is not None:
        render = _bank_renderer(data, data.bank)
        render.bank.require_array(array)
    return render if data.shards is None else ShardReader(data.shards, render)


def _bank_renderer(data: SftData, bank: str) -> MixtureRenderer:
    return MixtureRenderer(bank=RirBank.open(Path(bank)), noise=NoiseBank(data.noise), audio_root=data.audio_root)


def _other_devices(data: SftData) -> list[Device]:
    renderers = [_bank_renderer(data, bank) for bank in data.other_banks]
    return [Device(render.bank.array, design_beam(render.bank.array), render) for render in renderers]


def row_lengths(dataset: ExampleDataset, processor: Any, channels: int) -> Lengths:
    """Seconds, embeddings and text positions of every row, without touching its sound where metadata tell them."""
    count = len(dataset)
    seconds, embeddings, tokens = np.zeros(count), np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    prompts: dict[str, int] = {}  # few different prompts, many rows
    for index, row in enumerate(tqdm(dataset.examples, desc="lengths", unit="row", disable=count < 2000)):
        seconds[index] = example_seconds(row, dataset.root)
        samples = round(seconds[index] * SAMPLE_RATE)
        embeddings[index] = num_embeddings(samples, channels) if row.audio else 0
        key = repr((row.messages, bool(row.audio)))
        if key not in prompts:
            probe = [SAMPLE_RATE] if row.audio else []
            taken = num_embeddings(SAMPLE_RATE, channels) if row.audio else 0
            prompts[key] = len(processor.encode_prompt(row.messages, num_samples=probe)) - taken
        tokens[index] = prompts[key] + len(processor.encode_target(row.target))
    tasks, sources = zip(*((row.task, str(row.metadata.get("source", ""))) for row in dataset.examples), strict=True)
    several = sources if len(set(sources)) > 1 else ()
    return Lengths(seconds=seconds, embeddings=embeddings, tokens=tokens, tasks=tasks, sources=several)


def batch_sampler(
    dataset: ExampleDataset,
    processor: Any,
    channels: int,
    config: BatchConfig,
    *,
    seed: int = 0,
    rank: int = 0,
    world_size: int = 1,
) -> BucketBatchSampler:
    """This rank's batches of `dataset`, bucketed by sound and text."""
    lengths = row_lengths(dataset, processor, channels)
    return BucketBatchSampler(lengths, config, seed=seed, rank=rank, world_size=world_size)
