"""A mixture and its beam: the project's convolution against three libraries and against the transforms it needs.

Every way gets the same sources and responses in memory, runs in the same process on one thread, in turn within each
round, and its result is compared with ours.  Times are processor time (other programs on the machine steal less of it
than of wall time); a ratio is that of the quickest rounds.
"""

import json
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from benchmarks.mixing_ways import (  # beside this script
    ROLES,
    Way,
    bare_transforms,
    check_equal,
    make_scene,
    ours,
    pyroomacoustics_way,
    scipy_way,
    torchaudio_way,
    whole_render,
)
from tqdm import tqdm

from wearllama.audio.array import load_array
from wearllama_launch import launch

WANTED = {"vs_scipy": 5.0, "vs_torchaudio": 15.0, "vs_pyroomacoustics": 5.0, "vs_floor": 1.5}
"""At least so many times faster than each library; at most so many times the bare transforms."""


@dataclass(kw_only=True)
class MixingBenchmark:
    """What is mixed, and for how long it is measured."""

    seconds: float = 6.0
    response_s: float = 0.5
    array: str = "glasses5"
    budget_s: float = 90.0
    """Wall time of the rounds."""
    fast: bool = False
    """Twenty seconds of rounds."""
    seed: int = 0

    def __post_init__(self) -> None:
        if self.seconds <= 0 or self.response_s <= 0 or self.budget_s <= 0:
            raise ValueError(f"seconds {self.seconds}, response_s {self.response_s} and budget_s must be positive")


@launch("benchmark_mixing", MixingBenchmark)
def main(config: MixingBenchmark) -> None:
    torch.set_num_threads(1)
    scene = make_scene(config.seconds, config.response_s, config.array, config.seed)
    with tempfile.TemporaryDirectory() as folder:
        ways = [ours(scene), scipy_way(scene), torchaudio_way(scene), pyroomacoustics_way(scene)]
        check_equal(ways)
        whole, floor = whole_render(scene, Path(folder)), bare_transforms(scene)
        times, walls = measure(ways, {"render": whole, "floor": floor}, 20.0 if config.fast else config.budget_s)
    report(config, ways, times, walls)


def measure(
    ways: list[Way], others: dict[str, Callable[[], object]], budget_s: float
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Processor and wall seconds of every round, all ways in turn; names ending in ``/mix`` are without the beam."""
    times: dict[str, list[float]] = {}
    walls: dict[str, list[float]] = {}
    for _ in _rounds(budget_s):
        for way in ways:
            cpu, wall = time.process_time(), time.perf_counter()
            audio_MN = way.mix()
            times.setdefault(f"{way.name}/mix", []).append(time.process_time() - cpu)
            way.beam(audio_MN)
            times.setdefault(way.name, []).append(time.process_time() - cpu)
            walls.setdefault(way.name, []).append(time.perf_counter() - wall)
        for name, run in others.items():
            cpu, wall = time.process_time(), time.perf_counter()
            run()
            times.setdefault(name, []).append(time.process_time() - cpu)
            walls.setdefault(name, []).append(time.perf_counter() - wall)
    return times, walls


def _rounds(budget_s: float, least: int = 5) -> Iterator[int]:
    started, count = time.perf_counter(), 0
    with tqdm(total=round(budget_s), unit="s", desc="rounds") as bar:
        while count < least or time.perf_counter() - started < budget_s:
            yield count
            count += 1
            bar.update(min(round(time.perf_counter() - started), round(budget_s)) - bar.n)


def report(
    config: MixingBenchmark, ways: list[Way], times: dict[str, list[float]], walls: dict[str, list[float]]
) -> None:
    """Print the table, what was wanted, and the line of JSON."""
    best = {name: min(values) for name, values in times.items()}
    print(
        f"{config.seconds:g} s, {len(load_array(config.array).positions)} channels, {len(ROLES)} sources, responses of "
        f"{config.response_s:g} s, one thread, {len(times['ours'])} rounds; milliseconds of processor time\n"
    )
    print(f"{'':28}{'mixture':>9}{'+ beam':>9}{'median':>9}{'wall':>9}{'ours is':>12}{'without beam':>14}")
    for way in ways:
        name = way.name
        row = [best[f"{name}/mix"], best[name], float(np.median(times[name])), float(np.median(walls[name]))]
        ratio, bare = best[name] / best["ours"], best[f"{name}/mix"] / best["ours/mix"]
        print(f"{name:28}" + "".join(f"{1000 * value:9.2f}" for value in row) + f"{ratio:11.1f}x{bare:13.1f}x")
    for name, title in (("floor", "bare transforms of ours"), ("render", "whole render() and beam")):
        row = [best[name], float(np.median(times[name])), float(np.median(walls[name]))]
        print(f"{title:28}{'':9}" + "".join(f"{1000 * value:9.2f}" for value in row))
    ratios = {
        key: best[way.name] / best["ours"]
        for key, way in zip(("vs_scipy", "vs_torchaudio", "vs_pyroomacoustics"), ways[1:], strict=True)
    }
    ratios["vs_floor"] = best["ours"] / best["floor"]
    factor, whole = best["ours"] / config.seconds, best["render"] / config.seconds
    print(f"\nreal-time factor: {factor:.5f} ({1 / factor:,.0f} times real time); whole render() and beam {whole:.5f}")
    for key, wanted in WANTED.items():
        met = ratios[key] <= wanted if key == "vs_floor" else ratios[key] >= wanted
        print(f"{key}: {ratios[key]:.2f}, wanted {'at most' if key == 'vs_floor' else 'at least'} {wanted:g}: "
              f"{'met' if met else 'NOT MET'}")  # fmt: skip
    print(json.dumps({"benchmark": "mixing", "ratios": {key: round(value, 3) for key, value in ratios.items()}}))
