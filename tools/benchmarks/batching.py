"""Batches by length against shuffled batches of fixed size, at the same memory, on a corpus' real lengths.

Memory is the padded decoder positions that a batch may have: a bucket takes as many rows as fit, a fixed size must fit
the longest row. Both are trained on in turn; the ratio is of rows a second. Then the loader feeds the model from files
of five channels, and what a step waits for data is counted; and the time to the first batch of a run that goes on late
is compared with that of one that starts.
"""

import json
import tempfile
import time
from collections.abc import Callable
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
    train_step,
    used_share,
    write_clips,
)
from torch.utils.data import DataLoader
from tqdm import tqdm

from wearllama.data.collate import Collator
from wearllama.data.sampling import BatchConfig, BucketBatchSampler, Draw
from wearllama.training.config import fast_bf16
from wearllama.training.stream import BatchStream
from wearllama_launch import existing_path, launch

WANTED = {"non_padding": 0.93, "vs_shuffled": 1.5, "data_wait": 0.03, "late_vs_early": 1.5}
"""At least, at least, at most, at most."""


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
    budget_s: float = 240.0
    """Wall time of the measurements, about."""
    fast: bool = False
    """A fifth of it."""
    seed: int = 0

    def __post_init__(self) -> None:
        if self.budget_s <= 0 or self.workers < 1:
            raise ValueError(f"budget_s {self.budget_s} and workers {self.workers}: wanted more than 0")


@launch("benchmark_batching", BatchingBenchmark)
def main(config: BatchingBenchmark) -> None:
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

    speeds = rows_per_second(setting, {"buckets": buckets, "fixed": fixed}, dtype, 0.6 * budget, config.seed)
    waited = data_wait(setting, sampler, config.workers, dtype, 0.3 * budget)
    early, late = (
        first_batch_seconds(sampler, 0),
        first_batch_seconds(sampler, 1_000_000 * len(sampler) + len(sampler) // 2),
    )
    ratios = {
        "non_padding": used_share(buckets, positions),
        "vs_shuffled": speeds["buckets"] / speeds["fixed"],
        "data_wait": waited,
        "late_vs_early": late / early,
    }
    print(f"rows a second: buckets {speeds['buckets']:.2f}, fixed size {speeds['fixed']:.2f}")
    print(f"time to the first batch: at the start {1000 * early:.1f} ms, a million epochs on {1000 * late:.1f} ms")
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
    """Both ways in turn on random batches of theirs, until the time is up; the first step of each warms up.

    A way's time is spread evenly over the rows of its whole epoch: batches are drawn by their rows.
    """
    # On a CPU other programs steal wall time but little processor time; a GPU's work is seen in wall time alone.
    clock = time.perf_counter if torch.cuda.is_available() else time.process_time
    rng = np.random.default_rng(seed)
    collate = Collator(setting.processor)
    rows, spent = dict.fromkeys(ways, 0), dict.fromkeys(ways, 0.0)
    started, rounds = time.perf_counter(), 0
    with tqdm(total=round(budget_s), unit="s", desc="steps") as bar:
        while rounds < 4 or time.perf_counter() - started < budget_s:
            for name, batches in ways.items():
                # About as many rows of either in a round: small batches are timed several together.
                chosen = [batches[i] for i in rng.integers(0, len(batches), size=1 if name == "buckets" else 4)]
                for batch in chosen:
                    inputs = collate([random_item(setting, draw.index, rng) for draw in batch])
                    start = clock()
                    train_step(setting.model, inputs, dtype)
                    if rounds:
                        spent[name] += clock() - start
                        rows[name] += len(batch)
            rounds += 1
            bar.update(min(round(time.perf_counter() - started), round(budget_s)) - bar.n)
    return {name: rows[name] / spent[name] for name in ways}


def data_wait(
    setting: Setting, sampler: BucketBatchSampler, workers: int, dtype: torch.dtype | None, budget_s: float
) -> float:
    """Share of a step's time that it waits for the loader, which reads five-channel files and beamforms."""
    stream = BatchStream(sampler, 12 * len(sampler))
    few = list(sampler)[: 2 + int(budget_s / 2)]
    with tempfile.TemporaryDirectory() as folder:
        write_clips(setting, Path(folder), sorted({draw.index for batch in few for draw in batch}))
        loader = DataLoader(
            file_dataset(setting, Path(folder)),
            batch_sampler=(few * len(stream))[: len(stream)],  # type: ignore[arg-type]
            collate_fn=Collator(setting.processor),
            num_workers=workers,
            prefetch_factor=4,
            worker_init_fn=_one_thread,
        )
        iterator, waited, spent, steps = iter(loader), 0.0, 0.0, 0
        train_step(setting.model, next(iterator), dtype)  # workers start here
        started = time.perf_counter()
        while steps < 4 or time.perf_counter() - started < budget_s:
            before = time.perf_counter()
            batch = next(iterator)
            waited += time.perf_counter() - before
            train_step(setting.model, batch, dtype)
            spent += time.perf_counter() - before
            steps += 1
        del iterator
    return waited / spent


def first_batch_seconds(sampler: BucketBatchSampler, start: int) -> float:
    """Time from starting a stream at a batch to having it, the quickest of five."""
    return min(_timed(lambda: next(iter(BatchStream(sampler, start + 1, start)))) for _ in range(5))


def _timed(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def _one_thread(worker_id: int) -> None:
    torch.set_num_threads(1)


if __name__ == "__main__":
    main()
