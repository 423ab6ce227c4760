"""Batches by length against shuffled batches of fixed size, at the same memory, on a corpus' real lengths.

Memory is the padded decoder positions that a batch may have: a bucket takes as many rows as fit, a fixed size must fit
the longest row. Both are trained on; the ratio is of rows a second. Then the loader feeds the model from files of five
channels, and the time that a step stands in ``next(loader)`` is counted; and a run that goes on from a checkpoint a
million epochs on is timed to its first step against one that goes on from its second step.
"""

import json
import tempfile
import time
import warnings
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from benchmarks.batching_data import (  # beside this script
    Setting,
    file_dataset,
    fixed_batches,
    load_setting,
    random_item,
    resumed_seconds,
    train_step,
    used_share,
    write_clips,
)
from torch.utils.data import DataLoader
from tqdm import tqdm

from wearllama.audio.io import AudioWarning
from wearllama.data.collate import Collator
from wearllama.data.sampling import BatchConfig, BucketBatchSampler, Draw
from wearllama.training.config import fast_bf16
from wearllama_launch import existing_path, launch

WANTED = {"non_padding": 0.93, "vs_shuffled": 1.5, "data_wait": 0.03, "late_vs_early": 1.5}
"""At least, at least, at most, at most."""
LEAST_BATCHES = 3
"""Of each way in a round."""
DISTINCT = 6
"""Batches that the loader gives over and over."""


@dataclass(kw_only=True)
class BatchingBenchmark:
    """What is batched, and for how long it is measured."""

    data: str = "../shared/data/speech_en/manifest.jsonl"
    """JSONL with id, audio, seconds, text."""
    model: str = "demo"
    """Scale, a file of conf/model."""
    batches: BatchConfig = field(default_factory=BatchConfig)
    """The benchmark's own are in conf/benchmark_batching.yaml."""
    workers: int = 1
    budget_s: float = 120.0
    """Wall time of the measured steps, about."""
    fast: bool = False
    """A fifth of it."""
    seed: int = 0

    def __post_init__(self) -> None:
        if self.budget_s <= 0 or self.workers < 1:
            raise ValueError(f"budget_s {self.budget_s} and workers {self.workers}: wanted more than 0")


@launch("benchmark_batching", BatchingBenchmark)
def main(config: BatchingBenchmark) -> None:
    warnings.filterwarnings("ignore", category=AudioWarning)  # of the corpus' own clipped clips
    torch.set_num_threads(1)
    torch.manual_seed(config.seed)
    budget = config.budget_s / (5 if config.fast else 1)
    setting = load_setting(existing_path(config.data, "data"), config.model, None)
    if torch.cuda.is_available():
        setting.model.cuda()
    dtype = torch.bfloat16 if fast_bf16(on_cpu=not torch.cuda.is_available()) else None
    sampler = BucketBatchSampler(setting.lengths, config.batches, seed=config.seed)
    buckets = sampler.global_batches()
    positions = setting.lengths.embeddings + setting.lengths.tokens
    fixed_rows = int(config.batches.max_positions // positions.max())
    fixed = fixed_batches(len(positions), fixed_rows, np.random.default_rng(config.seed))
    describe(setting, buckets, fixed, positions)

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        speeds = rows_per_second(setting, {"buckets": buckets, "fixed": fixed}, dtype, 0.6 * budget, config.seed)
        write_clips(setting, folder, sorted({draw.index for batch in buckets[:DISTINCT] for draw in batch}))
        waited = data_wait(setting, folder, buckets[:DISTINCT], config.workers, dtype, 0.4 * budget)
        early, late = (resumed_seconds(setting, folder, at) for at in (2, 1_000_000 * len(buckets) + 2))
    ratios = {
        "non_padding": used_share(buckets, positions),
        "vs_shuffled": speeds["buckets"] / speeds["fixed"],
        "data_wait": waited,
        "late_vs_early": late / early,
    }
    print(f"rows a second: buckets {speeds['buckets']:.2f}, fixed size {speeds['fixed']:.2f}")
    print(f"resume=auto to the end of the first step: at step 2 {early:.2f} s, a million epochs on {late:.2f} s")
    for key, wanted in WANTED.items():
        at_least = key in ("non_padding", "vs_shuffled")
        met = ratios[key] >= wanted if at_least else ratios[key] <= wanted
        print(f"{key}: {ratios[key]:.3f}, wanted {'at least' if at_least else 'at most'} {wanted:g}: "
              f"{'met' if met else 'NOT MET'}")  # fmt: skip
    print(json.dumps({"benchmark": "batching", "ratios": {key: round(value, 4) for key, value in ratios.items()}}))


def describe(setting: Setting, buckets: list[list[Draw]], fixed: list[list[Draw]], positions: np.ndarray) -> None:
    """Sizes and padding of both ways."""
    seconds = setting.lengths.seconds
    print(
        f"{len(seconds)} clips of {seconds.min():.1f} to {seconds.max():.1f} s, median {np.median(seconds):.1f}; "
        f"decoder positions {positions.min()} to {positions.max()}, median {np.median(positions):.0f}"
    )
    for name, batches in (("buckets", buckets), ("fixed size", fixed)):
        sizes = [len(batch) for batch in batches]
        largest = max(int(positions[[draw.index for draw in batch]].max()) * len(batch) for batch in batches)
        print(
            f"{name:11} {len(batches)} batches of {min(sizes)} to {max(sizes)} rows, largest {largest} positions; "
            f"used: positions {used_share(batches, positions):.1%}, sound {used_share(batches, seconds):.1%}"
        )


def rows_per_second(
    setting: Setting, ways: dict[str, list[list[Draw]]], dtype: torch.dtype | None, budget_s: float, seed: int
) -> dict[str, float]:
    """Both ways in turn on batches that stand for their whole epoch; the first step of each warms up.

    A way's batches are taken at even distances of its list by length, so that short and long ones have their share of
    the epoch's time however few there is time for.
    """
    # On a CPU other programs steal wall time but little processor time; a GPU's work is seen in wall time alone.
    clock = time.perf_counter if torch.cuda.is_available() else time.process_time
    rng = np.random.default_rng(seed)
    collate = Collator(setting.processor)
    positions = setting.lengths.embeddings + setting.lengths.tokens
    rows, spent = dict.fromkeys(ways, 0), dict.fromkeys(ways, 0.0)
    started, count = time.perf_counter(), LEAST_BATCHES
    warm = False
    with tqdm(total=round(budget_s), unit="s", desc="steps") as bar:
        while not warm or time.perf_counter() - started < budget_s:
            for name, batches in ways.items():
                by_length = sorted(batches, key=lambda batch: int(positions[[draw.index for draw in batch]].max()))
                places = (np.arange(count) + 0.5) / count * len(batches)
                for batch in [by_length[int(place)] for place in places[: None if warm else 1]]:
                    inputs = collate([random_item(setting, draw.index, rng) for draw in batch])
                    start = clock()
                    train_step(setting.model, inputs, dtype)
                    if warm:
                        spent[name] += clock() - start
                        rows[name] += len(batch)
            started = started if warm else time.perf_counter()
            warm = True
            bar.update(min(round(time.perf_counter() - started), round(budget_s)) - bar.n)
    return {name: rows[name] / spent[name] for name in ways}


def data_wait(
    setting: Setting, folder: Path, batches: list[list[Draw]], workers: int, dtype: torch.dtype | None, budget_s: float
) -> float:
    """Share of a step's time that it stands in ``next(loader)``, which reads five-channel files and beamforms."""
    dataset, collate = file_dataset(setting, folder), Collator(setting.processor)
    loader = DataLoader(
        dataset,
        batch_sampler=batches * 1000,  # type: ignore[arg-type]
        collate_fn=collate,
        num_workers=workers,
        prefetch_factor=4,
        worker_init_fn=_one_thread,
    )
    iterator, waited, spent, steps = iter(loader), 0.0, 0.0, 0
    train_step(setting.model, next(iterator), dtype)  # workers start here
    started = time.perf_counter()
    while steps < len(batches) or time.perf_counter() - started < budget_s:
        before = time.perf_counter()
        batch = next(iterator)
        waited += time.perf_counter() - before
        train_step(setting.model, batch, dtype)
        spent += time.perf_counter() - before
        steps += 1
    del iterator
    start = time.process_time()
    batch = collate([dataset[draw] for draw in batches[0]])
    made, start = time.process_time() - start, time.process_time()
    train_step(setting.model, batch, dtype)
    trained = time.process_time() - start
    print(f"{steps} steps of {spent / steps:.2f} s, {1000 * waited / steps:.1f} ms of it in next(loader); processor "
          f"time of a batch: {made:.2f} s to make, {trained:.2f} s to train on")  # fmt: skip
    return waited / spent


def _one_thread(worker_id: int) -> None:
    torch.set_num_threads(1)


if __name__ == "__main__":
    main()
