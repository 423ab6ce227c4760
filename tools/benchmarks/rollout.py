"""Rollouts of pairs: one prefix a condition against ``generate()`` on repeated inputs with the sound encoded anew.

Both sample at temperature 1 from the same checkpoint, K completions of each side of a pair, on one thread; times are
processor time, the quickest of the rounds.  The samples of ours are scored again by plain repeated forward passes:
their log-probabilities must agree.  Without a checkpoint the scale's model is built with random weights: its
completions then run to the limit, which is the harder case (prefixes are a smaller share of the work).
"""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from sft import SftCommand  # recipes/ stands on the path (tools/benchmark.py)
from torch import Tensor

from wearllama.data.dataset import Item
from wearllama.data.manifest import Example
from wearllama.data.prompts import build_messages, load_prompts
from wearllama.data.tools import CONSEQUENTIAL_TOOLS
from wearllama.evaluation.adapters import checkpoint_folder
from wearllama.modeling.factory import build_model, build_processor, load_checkpoint
from wearllama.training.policy import Policy
from wearllama.training.rollout import LocalEngine, encode_items
from wearllama.training.sampling import Rollouts
from wearllama_launch import LaunchError, compose_config, launch

WANTED, TOLERANCE = 3.0, 1e-4


@dataclass(kw_only=True)
class RolloutBenchmark:
    """What is sampled."""

    scale: Literal["demo", "smollm2"] = "demo"
    ckpt: str | None = None
    """Trained checkpoint; by default the scale's model with random weights."""
    pairs: int = 8
    generations: int = 8
    """K, of each side."""
    seconds: float = 3.5
    """Of the shortest recording; the longest is half as long again."""
    max_new_tokens: int = 24
    rounds: int = 3
    fast: bool = False
    """Two pairs, one round."""
    seed: int = 0

    def __post_init__(self) -> None:
        if self.fast:
            self.pairs, self.rounds = min(self.pairs, 2), 1
        for name in ("pairs", "generations", "max_new_tokens", "rounds"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, wanted at least 1")


@launch("benchmark_rollout", RolloutBenchmark)
def main(config: RolloutBenchmark) -> None:
    torch.set_num_threads(1)
    model, processor = load(config)
    items = make_items(config)
    engine = LocalEngine(model, processor, temperature=1.0, max_completion_length=config.max_new_tokens, max_rows=4096)
    engine.sample(items[:1], 1, 0)  # the first pass sets up what later ones find
    generate_repeated(model, processor, items[:1], config)
    rounds = [
        (timed(lambda n=n: engine.sample(items, config.generations, config.seed + n)),
         timed(lambda: generate_repeated(model, processor, items, config)))
        for n in range(config.rounds)
    ]  # fmt: skip
    (ours_s, rollouts), (theirs_s, length) = (
        min(times, key=lambda pair: pair[0]) for times in zip(*rounds, strict=True)
    )
    gap = largest_gap(model, processor, items, rollouts)
    count = len(items) * config.generations
    print(f"{config.scale}: {config.pairs} pairs, K = {config.generations} a side, {count} completions; mean length "
          f"{float(rollouts.mask_NT.sum(1).float().mean()):.1f} tokens (generate: {length:.1f}); "
          f"{torch.get_num_threads()} thread, processor time, best of {config.rounds}")  # fmt: skip
    print(f"ours                     {count / ours_s:8.2f} completions/s")
    print(f"generate(), repeated     {count / theirs_s:8.2f} completions/s")
    ratio = theirs_s / ours_s
    print(f"vs_generate: {ratio:.2f}, wanted at least {WANTED:g}: {'met' if ratio >= WANTED else 'NOT MET'}")
    print(f"largest difference of a sample's log-probabilities: {gap:.1e}, wanted at most {TOLERANCE:g}: "
          f"{'met' if gap <= TOLERANCE else 'NOT MET'}")  # fmt: skip
    print(json.dumps({"benchmark": "rollout", "ratios": {"vs_generate": round(ratio, 3)}}))


def load(config: RolloutBenchmark) -> tuple[Any, Any]:
    """The checkpoint, or the scale with random weights."""
    if config.ckpt is not None:
        return load_checkpoint(checkpoint_folder(config.ckpt))
    composed, _ = compose_config("sft", SftCommand, [f"experiment={config.scale}", "data.manifest=none"])
    torch.manual_seed(config.seed)
    try:
        processor = build_processor(composed.model)
        return build_model(composed.model, processor).eval(), processor
    except ValueError as error:
        raise LaunchError(f"scale={config.scale}: {error}") from None


def make_items(config: RolloutBenchmark) -> list[Item]:
    """Sides of pairs: noise shaped like two utterances will do, since what is timed does not depend on the words."""
    rng = np.random.default_rng(config.seed)
    system = load_prompts(style="compact").system("vgbench", CONSEQUENTIAL_TOOLS)
    items = []
    for number in range(2 * config.pairs):
        seconds = config.seconds * (1 + 0.5 * (number // 2) / max(1, config.pairs - 1))
        audio = tuple(torch.tensor(0.05 * rng.standard_normal(round(16_000 * seconds)), dtype=torch.float32)
                      for _ in range(2))  # fmt: skip
        example = Example(id=f"side-{number}", task="speaker_switch", split="train", target="[Mute]",
                          messages=build_messages(system=system), audio={"mc": "none"})  # fmt: skip
        items.append(Item(example, (audio[0], audio[1])))
    return items


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Processor seconds and the result."""
    started = time.process_time()
    result = work()
    return time.process_time() - started, result


def generate_repeated(model: Any, processor: Any, items: list[Item], config: RolloutBenchmark) -> float:
    """The plain way: every completion is a row with its own copy of the sound; returns the mean length."""
    repeated = [item for item in items for _ in range(config.generations)]
    features = encode_items(processor, items, "cpu")
    batch = {name: value.repeat_interleave(config.generations, 0) for name, value in features.items()}
    assert len(batch["input_ids"]) == len(repeated)
    with torch.inference_mode():
        out_BS = model.generate(**batch, max_new_tokens=config.max_new_tokens, do_sample=True, temperature=1.0,
                                top_k=0, top_p=1.0, num_beams=1)  # fmt: skip
    new_BT = out_BS[:, batch["input_ids"].shape[1] :]
    return float(((new_BT == processor.ids.eos).long().cumsum(1) == 0).sum(1).float().mean() + 1)


@torch.no_grad()
def largest_gap(model: Any, processor: Any, items: list[Item], rollouts: Rollouts) -> float:
    """Largest difference between what the sampler noted and plain forward passes over repeated inputs."""
    plain = Policy(model, share_prefix=False)
    worst = 0.0
    for place in range(len(items)):
        rows = (rollouts.prompt_N == place).nonzero()[:, 0]
        prompts = encode_items(processor, [items[place]], "cpu")
        zeros_N: Tensor = torch.zeros(len(rows), dtype=torch.long)
        logps_NT = plain(prompts, rollouts.tokens_NT[rows], rollouts.mask_NT[rows], zeros_N)
        worst = max(worst, float((logps_NT - rollouts.logps_NT[rows]).abs().max()))
    return worst
