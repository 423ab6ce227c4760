"""Weights by source, and a temperature over the sources' sizes."""

from collections import Counter

import numpy as np
import pytest

from wearllama.data.sampling import BatchConfig, BucketBatchSampler, Lengths, row_weights


def lengths(sources: list[str]) -> Lengths:
    count = len(sources)
    return Lengths(
        seconds=np.linspace(1, 4, count), embeddings=np.arange(count) + 10, tokens=np.full(count, 20),
        tasks=["asr"] * count, sources=sources,
    )  # fmt: skip


ROWS = ["large"] * 900 + ["small"] * 100


def drawn(config: BatchConfig, seed: int = 0, epoch: int = 0) -> Counter[str]:
    sampler = BucketBatchSampler(lengths(ROWS), config, seed=seed)
    sampler.set_epoch(epoch)
    return Counter(ROWS[draw.index] for batch in sampler for draw in batch)


def test_temperature_draws_small_sources_more_often_and_as_much_in_all() -> None:
    found = drawn(BatchConfig(max_rows=8, temperature=2.0))
    assert found["large"] / found["small"] == pytest.approx(3, rel=0.05)  # sqrt(900) : sqrt(100)
    assert sum(found.values()) == pytest.approx(1000, rel=0.02)
    assert drawn(BatchConfig(max_rows=8)) == {"large": 900, "small": 100}
    assert drawn(BatchConfig(max_rows=8, temperature=1e6))["small"] == pytest.approx(500, rel=0.02)


def test_weights_of_sources_multiply_those_of_tasks() -> None:
    config = BatchConfig(max_rows=8, source_weights={"small": 3.0, "large": 0.0}, weights={"asr": 2.0})
    assert np.array_equal(np.unique(row_weights(lengths(ROWS), config)), [0.0, 6.0])
    assert drawn(config) == {"small": 600}


def test_the_mixture_follows_the_seed_alone() -> None:
    def draws(seed: int) -> list[list[int]]:
        sampler = BucketBatchSampler(lengths(ROWS), BatchConfig(max_rows=8, temperature=3.0), seed=seed)
        return [[draw.index for draw in batch] for batch in sampler.global_batches()]

    assert draws(1) == draws(1) != draws(2)


def test_rows_without_a_source_stand_beside_rows_with_one() -> None:
    sampler = BucketBatchSampler(lengths(["", "mine", "", "theirs"] * 5), BatchConfig(max_rows=4))
    drawn = [draw.index for batch in sampler for draw in batch]
    assert sorted(drawn) == list(range(20))


def test_unknown_sources_and_cold_temperatures_are_refused() -> None:
    with pytest.raises(ValueError, match=r"source_weights names \['smal'\]"):
        drawn(BatchConfig(source_weights={"smal": 1.0}))
    with pytest.raises(ValueError, match=r"temperature is 0\.5"):
        BatchConfig(temperature=0.5)
