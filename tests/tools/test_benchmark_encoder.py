"""tools/benchmark.py encoder: encoders of one size, ours alone free of padding, and a last line of JSON."""

import json
from collections.abc import Callable
from types import ModuleType

import pytest
import torch


@pytest.fixture(scope="module")
def encoder(load_script: Callable[[str, str], ModuleType]) -> ModuleType:
    return load_script("tools", "benchmarks.encoder")


def test_report_of_a_small_run(encoder: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    config = encoder.EncoderBenchmark(
        width=64, layers=1, heads=2, kernel=5, clips=4, batch_size=2, seconds=(0.2, 1.0), budget_s=0.01
    )
    ways = encoder.make_ways(encoder.Sizes(64, 1, 2, 5), seed=0)
    assert len({way.name for way in ways}) == 4
    for way in ways:
        assert way.parameters() == pytest.approx(ways[0].parameters(), rel=0.02)
        with torch.no_grad():
            assert way.module(torch.randn(1, 80, 80), torch.tensor([80])).shape == (1, 10, 64), "12.5 Hz for all"
    clips = [torch.randn(length, 80) for length in (30, 90)]
    errors = {way.name: encoder.padding_error(way, clips) for way in ways}
    assert errors["ours"] <= 1e-5 < errors["torchaudio Conformer"]
    batches = {order: encoder.make_batches(config, order) for order in encoder.ORDERS}
    assert sum(int(b[1].sum()) for b in batches["unsorted"]) == sum(int(b[1].sum()) for b in batches["bucketed"])
    times = encoder.measure(ways, batches, config.budget_s, least=1)
    encoder.report(config, ways, batches, times, errors)
    line = json.loads(capsys.readouterr().out.strip().splitlines()[-1])
    assert line["benchmark"] == "encoder"
    assert {"vs_best_public", "padding_error"} <= line["ratios"].keys()
