"""Plan a training run on paper: parameters, FLOPs a step, memory a rank by strategy, tokens a second at a stated MFU.

Run as: python tools/plan.py model=scout world_size=64
        python tools/plan.py model=wearllama_1b world_size=8 rows=8 train_encoder=1
        python tools/plan.py check=1        # a small run's memory, measured here, beside its plan

Nothing is allocated: the model is built on the meta device and its activations are counted over fake tensors.
"""

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field

from wearllama.modeling.factory import ModelConfig
from wearllama.training import plan_check
from wearllama.training.plan import (
    STRATEGIES,
    Batch,
    activations,
    parts_of,
    planned_model,
    rank_bytes,
    step_flops,
)
from wearllama_launch import launch

GB = 1e9


@dataclass(kw_only=True)
class PlanCommand:
    """What is trained, on what."""

    model: ModelConfig = field(default_factory=ModelConfig)
    world_size: int = 64
    rows: int = 1
    """Rows a rank and step."""
    audio_seconds: float = 10.0
    text_tokens: int = 800
    """Prompt, tools and reply of a row."""
    target_tokens: int = 60
    """Of these, what is learnt."""
    train_encoder: bool = False
    memory_gb: float = 80.0
    """Of one GPU."""
    peak_tflops: float = 989.0
    """Dense bf16 of one GPU, as its maker states it (H100 SXM)."""
    mfu: float = 0.35
    """Share of the peak that training reaches, recomputation counted: stated, not measured."""
    check: bool = False
    """Measure a small run on this CPU instead, with and without checkpointing; fails beyond 10 %."""

    def __post_init__(self) -> None:
        if min(self.world_size, self.rows, self.text_tokens) < 1 or self.audio_seconds <= 0:
            raise ValueError("world_size, rows, text_tokens must be at least 1 and audio_seconds above zero")
        if not 1 <= self.target_tokens <= self.text_tokens:
            raise ValueError(f"target_tokens is {self.target_tokens}, wanted 1..text_tokens={self.text_tokens}")
        if not 0 < self.mfu <= 1 or self.peak_tflops <= 0 or self.memory_gb <= 0:
            raise ValueError(f"mfu {self.mfu} must be in (0, 1], peak_tflops and memory_gb above zero")


@launch("plan", PlanCommand)
def main(config: PlanCommand) -> None:
    if config.check:
        check_all()
        return
    batch = Batch(config.rows, config.audio_seconds, config.text_tokens, config.target_tokens)
    model = planned_model(config.model, train_encoder=config.train_encoder)
    parts = parts_of(model)
    print(
        f"{config.model.name}, {config.model.dtype} weights\n\n{'':12}{'parameters':>18}{'trained':>18}{'active':>18}"
    )
    for part in parts:
        print(f"{part.name:12}{part.total:18,}{part.trained:18,}{part.active:18,}")
    positions = batch.positions(model.config.positions_per_frame) * batch.rows
    tokens = positions * config.world_size
    print(f"\na step: {config.world_size} ranks x {config.rows} rows of {config.audio_seconds:g} s and "
          f"{config.text_tokens} text tokens, {tokens:,} decoder positions")  # fmt: skip
    for checkpointing in (False, True):
        flops = step_flops(model, parts, batch, checkpointing)
        seconds = flops / (config.mfu * config.peak_tflops * 1e12)
        print(
            f"{'with' if checkpointing else 'without'} activation checkpointing: {flops * config.world_size:.3g} "
            f"FLOPs, {seconds:.3g} s, {tokens / seconds:,.0f} positions/s at {config.mfu:.0%} of "
            f"{config.peak_tflops:g} TFLOP/s a rank"
        )
    kept = activations(config.model, model, batch)
    print(f"\nmemory a rank, GB (a GPU has {config.memory_gb:g}){'':6}{'without':>10}{'checkpointing':>16}")
    for strategy in STRATEGIES:
        cells = []
        for checkpointing in (False, True):
            size = rank_bytes(
                strategy, model, parts, kept, world_size=config.world_size, checkpointing=checkpointing
            )  # fmt: skip
            cells.append(f"{size / GB:,.1f}{'' if size / GB <= config.memory_gb else ' (too much)'}")
        print(f"{strategy:37}{cells[0]:>20}{cells[1]:>20}")
    if getattr(model.config.decoder_config(), "num_local_experts", None):
        print(
            "\ntransformers' own experts compute every expert for every position: these FLOPs want a grouped product, "
            "and activations are counted as transformers keeps them"
        )


def check_all() -> None:
    """Print plan and measurement of the small run; ValueError where they differ by more than 10 %."""
    for checkpointing in (False, True):
        planned, measured = check(checkpointing)
        error = planned / measured - 1
        print(f"{'with' if checkpointing else 'without'} checkpointing: planned {planned / 1e6:.0f} MB, measured "
              f"{measured / 1e6:.0f} MB, {error:+.1%}")  # fmt: skip
        if abs(error) > 0.1:
            raise ValueError(f"plan and measurement differ by {error:+.1%}, wanted within 10 %")


def check(checkpointing: bool) -> tuple[int, int]:
    """Planned and measured bytes of ``plan_check``'s run, which has a process of its own."""
    command = [sys.executable, "-m", plan_check.__name__, *(["checkpointing"] if checkpointing else [])]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MALLOC_MMAP_THRESHOLD_": "65536"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    measured = json.loads(done.stdout.strip().splitlines()[-1])["bytes"]
    model = planned_model(plan_check.MODEL, train_encoder=False)
    kept = activations(plan_check.MODEL, model, plan_check.BATCH)
    return rank_bytes("DDP", model, parts_of(model), kept, world_size=1, checkpointing=checkpointing), measured


if __name__ == "__main__":
    main()
