"""tools/benchmark.py mixing: every way mixes the same, and the last line is JSON."""

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch


@pytest.fixture(scope="module")
def mixing(load_script: Callable[[str, str], ModuleType]) -> ModuleType:
    return load_script("tools", "benchmarks.mixing")


def test_all_ways_give_one_mixture_and_the_report_ends_in_json(
    mixing: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = mixing.MixingBenchmark(seconds=0.7, response_s=0.05, budget_s=0.1)
    scene = mixing.make_scene(0.7, 0.05, "glasses5", 0)
    ways = [make(scene) for make in (mixing.ours, mixing.scipy_way, mixing.torchaudio_way, mixing.pyroomacoustics_way)]
    mixing.check_equal(ways)
    others = {"render": mixing.whole_render(scene, tmp_path), "floor": mixing.bare_transforms(scene)}
    times, walls = mixing.measure(ways, others, config.budget_s)
    mixing.report(config, ways, times, walls)
    line = json.loads(capsys.readouterr().out.strip().splitlines()[-1])
    assert line["benchmark"] == "mixing"
    assert set(line["ratios"]) == {"vs_scipy", "vs_torchaudio", "vs_pyroomacoustics", "vs_floor"}
    assert min(line["ratios"].values()) > 0


def test_a_way_that_mixes_otherwise_is_found_out(mixing: ModuleType) -> None:
    scene = mixing.make_scene(0.3, 0.05, "glasses5", 0)
    way = mixing.ours(scene)
    wrong = way._replace(name="wrong", mix=lambda: torch.roll(way.mix(), 1, dims=1))
    with pytest.raises(ValueError, match="wrong differs"):
        mixing.check_equal([way, wrong])
