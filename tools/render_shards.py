"""Render a manifest's mixtures to sharded files, for training that reads instead of rendering.

The samples are those that training renders on the fly for the same seed and epochs (train with data.shards=OUT_DIR).
A killed run goes on where it was; PART of PARTS machines share the work and one folder.

Run as: python tools/render_shards.py manifest=data/demo/train.jsonl bank=data/demo/rir_bank out_dir=data/demo/shards
        python tools/render_shards.py ... shards.epochs=4 shards.seed=1 workers=8
        python tools/render_shards.py ... part=0 parts=16
"""

import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path

import torch
from tqdm import tqdm

from wearllama.data.dataset import MixtureRenderer
from wearllama.data.manifest import Renderer, read_manifest
from wearllama.data.shards import Item, ShardConfig, begin, fingerprint, is_done, shard_items, write_shard
from wearllama.simulation.bank import RirBank
from wearllama.simulation.noise import NoiseBank
from wearllama_launch import existing_path, launch


@dataclass(kw_only=True)
class RenderShards:
    manifest: str
    """JSONL of examples; rows that are no mixtures are left out."""
    bank: str
    noise: list[str] = field(default_factory=list)
    """Folders of noise recordings, as in training."""
    root: str | None = None
    """Folder that the rows' paths are relative to; the manifest's own if not given."""
    split: str = "train"
    out_dir: str
    shards: ShardConfig = field(default_factory=ShardConfig)
    workers: int | None = None
    """Processes; all cores if not given."""
    part: int = 0
    parts: int = 1
    """Machines that share the work, and which of them this one is."""

    def __post_init__(self) -> None:
        if not 0 <= self.part < self.parts:
            raise ValueError(f"part is {self.part} of {self.parts} parts, wanted 0..{self.parts - 1}")


@launch("render_shards", RenderShards)
def main(config: RenderShards) -> None:
    manifest = existing_path(config.manifest, "manifest")
    renderer = MixtureRenderer(
        bank=RirBank.open(existing_path(config.bank, "bank")),
        noise=NoiseBank(config.noise),
        audio_root=Path(config.root) if config.root else manifest.parent,
    )
    examples = [example for example in read_manifest(manifest) if example.split == config.split]
    shards = shard_items(examples, config.shards)
    if not shards:
        raise ValueError(f"{manifest}: no mixture of split {config.split!r} to render")
    folder = Path(config.out_dir)
    begin(folder, fingerprint(examples, config.shards, renderer), config.shards, len(shards))
    mine = range(config.part, len(shards), config.parts)
    missing = [number for number in mine if not is_done(folder, number)]
    jobs = [(folder, number, shards[number], renderer) for number in missing]
    total, done = (sum(len(shards[number]) for number in numbers) for numbers in (mine, set(mine) - set(missing)))
    with tqdm(total=total, initial=done, desc="renderings", unit="mixture") as bar:
        for count in _run(jobs, config.workers or os.cpu_count() or 1):
            bar.update(count)
    size = sum(path.stat().st_size for path in folder.glob("shard-*.tar"))
    print(f"{folder}: {sum(map(len, shards))} mixtures in {len(shards)} shards, {size / 2**20:,.0f} MiB so far")


def _run(jobs: list[tuple[Path, int, list[Item], Renderer]], workers: int) -> Iterator[int]:
    if workers <= 1 or len(jobs) <= 1:
        for job in jobs:
            yield _job(*job)
        return
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        futures = [pool.submit(_job, *job) for job in jobs]
        try:
            for future in as_completed(futures):
                yield future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _job(folder: Path, number: int, items: list[Item], renderer: Renderer) -> int:
    torch.set_num_threads(1)
    write_shard(folder, number, items, renderer)
    return len(items)


if __name__ == "__main__":
    main()
