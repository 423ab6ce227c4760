"""The Conformer against public ones of equal size: forward and training step, clips of 1-20 s, bucketed and not.

All ways run in one process on one thread, in turn within each round; times are processor time, a way's time of a
setting is its quickest round.  ``vs_best_public`` is the time of all settings together: the quickest public encoder's
over ours.  The padding error is the largest change of a valid frame by a longer neighbour in the batch.
"""

import json
import time
from dataclasses import dataclass
from itertools import product

import torch
from benchmarks.encoder_ways import Sizes, Way, make_ways, padding_error  # beside this script
from torch import Tensor
from tqdm import tqdm

from wearllama_launch import launch

WANTED_RATIO, WANTED_ERROR = 1.3, 1e-5
MEL_HZ, N_MELS = 100, 80
MODES, ORDERS = ("forward", "training"), ("unsorted", "bucketed")
Batches = list[tuple[Tensor, Tensor]]
Times = dict[tuple[str, str, str], float]


@dataclass(kw_only=True)
class EncoderBenchmark:
    """What is encoded, and for how long it is measured."""

    width: int = 256
    layers: int = 6
    heads: int = 4
    kernel: int = 9
    clips: int = 32
    batch_size: int = 8
    seconds: tuple[float, float] = (1.0, 20.0)
    """Shortest and longest clip; lengths are uniform."""
    budget_s: float = 240.0
    """Wall time of the rounds; three at least."""
    fast: bool = False
    """Two layers, eight clips, one round or more in fifteen seconds."""
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.seconds[0] <= self.seconds[1] or self.budget_s <= 0:
            raise ValueError(f"seconds {self.seconds} and budget_s {self.budget_s} must be positive and in order")
        if min(self.clips, self.batch_size, self.layers) < 1:
            raise ValueError(
                f"clips {self.clips}, batch_size {self.batch_size}, layers {self.layers}: wanted 1 or more"
            )
        if self.fast:
            self.layers, self.clips, self.batch_size, self.budget_s = 2, 8, 4, 15.0


@launch("benchmark_encoder", EncoderBenchmark)
def main(config: EncoderBenchmark) -> None:
    torch.set_num_threads(1)
    ways = make_ways(Sizes(config.width, config.layers, config.heads, config.kernel), config.seed)
    batches = {order: make_batches(config, order) for order in ORDERS}
    clips = [torch.randn(length, N_MELS) for length in (37, 300, 700)]
    errors = {way.name: padding_error(way, clips) for way in ways}
    times = measure(ways, batches, config.budget_s, least=1 if config.fast else 3)
    report(config, ways, batches, times, errors)


def make_batches(config: EncoderBenchmark, order: str) -> Batches:
    """Padded batches of the same clips, in the order they came or by length."""
    generator = torch.Generator().manual_seed(config.seed)
    shortest, longest = config.seconds
    seconds_N = shortest + (longest - shortest) * torch.rand(config.clips, generator=generator)
    if order == "bucketed":
        seconds_N = seconds_N.sort().values
    lengths_N = (seconds_N * MEL_HZ).long().clamp_min(1)
    return [
        (torch.randn(len(lengths_B), int(lengths_B.max()), N_MELS, generator=generator), lengths_B)
        for lengths_B in lengths_N.split(config.batch_size)
    ]


def measure(ways: list[Way], batches: dict[str, Batches], budget_s: float, least: int) -> Times:
    """Processor seconds of the quickest round by way, mode and order."""
    times: Times = {}
    started, rounds = time.perf_counter(), 0
    settings = list(product(MODES, ORDERS, ways))
    with tqdm(total=least * len(settings), desc="settings") as bar:
        while rounds < least or time.perf_counter() - started < budget_s:
            for mode, order, way in settings:
                spent = _run(way, batches[order], training=mode == "training")
                key = (way.name, mode, order)
                times[key] = min(times.get(key, spent), spent)
                bar.update(1 if rounds < least else 0)
            rounds += 1
    return times


def _run(way: Way, batches: Batches, *, training: bool) -> float:
    way.module.train(training)
    started = time.process_time()
    for feats_BTF, lengths_B in batches:
        with torch.set_grad_enabled(training):
            embeddings_BLD = way.module(feats_BTF, lengths_B)
        if training:
            way.module.zero_grad(set_to_none=True)
            embeddings_BLD.square().mean().backward()
    return time.process_time() - started


def report(
    config: EncoderBenchmark, ways: list[Way], batches: dict[str, Batches], times: Times, errors: dict[str, float]
) -> None:
    """Print the table, what was wanted, and the line of JSON."""
    speech_s = sum(int(lengths_B.sum()) for _, lengths_B in batches["unsorted"]) / MEL_HZ
    padding = {
        order: 1 - speech_s * MEL_HZ / sum(feats.shape[0] * feats.shape[1] for feats, _ in batches[order])
        for order in ORDERS
    }
    settings = list(product(MODES, ORDERS))
    print(
        f"width {config.width}, {config.layers} layers, kernel {config.kernel}, {config.clips} clips of "
        f"{config.seconds[0]:g}-{config.seconds[1]:g} s in batches of {config.batch_size}, one thread; padding "
        f"{padding['unsorted']:.0%} unsorted, {padding['bucketed']:.0%} bucketed; audio seconds a processor second\n"
    )
    titles = [f"{mode[:8]} {order}" for mode, order in settings]
    print(f"{'':38}{'parameters':>12}" + "".join(f"{title:>19}" for title in titles) + f"{'padding error':>16}")
    for way in ways:
        rates = [f"{speech_s / times[way.name, *setting]:19.1f}" for setting in settings]
        print(f"{way.name:38}{way.parameters():12,}" + "".join(rates) + f"{errors[way.name]:16.1e}")
    total = {way.name: sum(times[way.name, *setting] for setting in settings) for way in ways}
    public = [way.name for way in ways[1:]]
    best = min(public, key=lambda name: total[name])
    ratios = {"vs_best_public": total[best] / total["ours"], "padding_error": errors["ours"]}
    for mode, order in settings:
        quickest = min(times[name, mode, order] for name in public)
        ratios[f"{mode}_{order}"] = quickest / times["ours", mode, order]
    print("\nours over the quickest public one in each setting: "
          + ", ".join(f"{mode} {order} {ratios[f'{mode}_{order}']:.2f}" for mode, order in settings))  # fmt: skip
    print(f"vs_best_public ({best}, all settings): {ratios['vs_best_public']:.2f}, wanted at least {WANTED_RATIO}: "
          f"{'met' if ratios['vs_best_public'] >= WANTED_RATIO else 'NOT MET'}")  # fmt: skip
    print(f"padding_error: {errors['ours']:.1e}, wanted at most {WANTED_ERROR:g}: "
          f"{'met' if errors['ours'] <= WANTED_ERROR else 'NOT MET'}")  # fmt: skip
    rounded = {key: float(f"{value:.3g}") for key, value in ratios.items()}
    print(json.dumps({"benchmark": "encoder", "ratios": rounded}))
