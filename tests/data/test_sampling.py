"""Batches: within budget, rows as often as their weight says, equal steps on every rank, the same by (seed, epoch)."""

from collections import Counter

import numpy as np
import pytest

from wearllama.data.sampling import BatchConfig, BucketBatchSampler, Draw, Lengths


def _lengths(count: int = 300, text_only: int = 40, seed: int = 0) -> Lengths:
    rng = np.random.default_rng(seed)
    seconds = rng.uniform(0.5, 12.0, count)
    seconds[rng.permutation(count)[:text_only]] = 0.0
    return Lengths(
        seconds=seconds,
        embeddings=np.where(seconds > 0, 2 * np.ceil(seconds * 12.5), 0).astype(np.int64),
        tokens=rng.integers(20, 120, count),
        tasks=[("tool_call", "asr", "rare")[i % 3 if i % 30 else 2] for i in range(count)],
    )


def _rows(batches: list[list[Draw]]) -> list[int]:
    return [draw.index for batch in batches for draw in batch]


def test_budget_and_every_row_once() -> None:
    lengths, config = _lengths(), BatchConfig(max_rows=16, max_positions=2500, max_audio_seconds=90.0)
    sampler = BucketBatchSampler(lengths, config)
    batches = list(sampler)
    assert len(batches) == len(sampler)
    assert sorted(_rows(batches)) == list(range(300))
    positions = lengths.embeddings + lengths.tokens
    for batch in batches:
        rows = [draw.index for draw in batch]
        assert len(rows) <= 16
        assert positions[rows].max() * len(rows) <= 2500
        assert lengths.seconds[rows].max() * len(rows) <= 90.0
        assert lengths.seconds[rows].max() > 0, "a batch without sound"


def test_buckets_pad_less_than_chance() -> None:
    lengths = _lengths(600, 0)
    bucketed = BucketBatchSampler(lengths, BatchConfig(max_rows=8)).padding_ratio()
    flat = BucketBatchSampler(lengths, BatchConfig(max_rows=8, audio_buckets=1, text_buckets=1)).padding_ratio()
    assert bucketed < 0.6 * flat


def test_deterministic_and_new_every_epoch() -> None:
    first, second = (BucketBatchSampler(_lengths(), BatchConfig(), seed=3) for _ in range(2))
    list(first)  # what was drawn before does not matter
    assert list(first) == list(second)
    second.set_epoch(1)
    later = list(second)
    assert len(later) == len(first) and later != list(first)
    assert {draw.epoch for batch in later for draw in batch} == {1}
    assert list(BucketBatchSampler(_lengths(), BatchConfig(), seed=4)) != list(first)


@pytest.mark.parametrize("world_size", [2, 3, 7])
def test_ranks_share_one_list(world_size: int) -> None:
    config = BatchConfig(max_rows=16)
    alone = list(BucketBatchSampler(_lengths(), config))
    ranks = [
        list(BucketBatchSampler(_lengths(), config, rank=rank, world_size=world_size)) for rank in range(world_size)
    ]
    assert len({len(batches) for batches in ranks}) == 1
    together = [batch for step in zip(*ranks, strict=True) for batch in step]
    assert together[: len(alone)] == alone
    assert len(together) - len(alone) < world_size
    draws = [draw for batch in together for draw in batch]
    assert len(set(draws)) == len(draws), "one rendering is drawn twice"


def test_weights() -> None:
    lengths = _lengths(240, 30)
    config = BatchConfig(weights={"rare": 3.0, "asr": 0.5, "tool_call": 1.0})
    sampler = BucketBatchSampler(lengths, config)
    draws = [draw for batch in sampler for draw in batch]
    assert len(set(draws)) == len(draws)
    times = Counter(draw.index for draw in draws)
    per_task = Counter(lengths.tasks[draw.index] for draw in draws)
    rows = Counter(lengths.tasks)
    assert per_task["rare"] == 3 * rows["rare"] and per_task["tool_call"] == rows["tool_call"]
    assert abs(per_task["asr"] - rows["asr"] / 2) <= 12  # rounded once a bucket and kind
    assert {times[i] for i, task in enumerate(lengths.tasks) if task == "rare"} == {3}
    sampler.set_epoch(1)
    assert len(list(sampler)) == len(sampler)
    none = BucketBatchSampler(lengths, BatchConfig(weights={"asr": 0.0}))
    assert "asr" not in {lengths.tasks[row] for row in _rows(list(none))}


def test_only_text() -> None:
    sampler = BucketBatchSampler(_lengths(50, 50), BatchConfig(max_rows=8))
    assert sorted(_rows(list(sampler))) == list(range(50))


def test_bad_settings() -> None:
    lengths = _lengths()
    with pytest.raises(ValueError, match="rows are longer than a batch may be"):
        BucketBatchSampler(lengths, BatchConfig(max_positions=100))
    with pytest.raises(ValueError, match=r"weights names tasks \['tol_call'\]"):
        BucketBatchSampler(lengths, BatchConfig(weights={"tol_call": 2.0}))
    with pytest.raises(ValueError, match="rank 2 of 2"):
        BucketBatchSampler(lengths, BatchConfig(), rank=2, world_size=2)
    with pytest.raises(ValueError, match="max_rows is 0"):
        BatchConfig(max_rows=0)
    with pytest.raises(ValueError, match="every task has weight 0"):
        BucketBatchSampler(lengths, BatchConfig(weights=dict.fromkeys(lengths.tasks, 0.0)))
