"""What the launchers of eval/ share: settings of a run, and the way from examples to a report."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import torch

from wearllama.data.manifest import Example
from wearllama.evaluation.adapters import CheckpointAdapter
from wearllama.evaluation.clips import clip_views
from wearllama.evaluation.evaluate import BENCHMARKS, Control, evaluate, results
from wearllama.evaluation.harness import HarnessConfig
from wearllama.evaluation.report import section_of, write_run


@dataclass(kw_only=True)
class RunCommand:
    """Settings that every benchmark's launcher has."""

    ckpt: str
    """Checkpoint folder, or a training run's folder with its ``final`` inside."""
    out: str = "runs/eval"
    """Results go to OUT/BENCHMARK/MODEL-WEIGHTS/."""
    controls: tuple[Control, ...] = ("silence", "majority")
    """What stands beside the model: ``silence``, ``transcript``, ``majority``."""
    max_new_tokens: int = 96
    """Longest reply; part of a prediction's key."""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """Of the weights in memory."""
    device: str | None = None
    """``cpu``, ``cuda:0``, ...; by default the rank's GPU where there is one."""
    clips: int = 10
    """Recordings to listen to in the report."""
    harness: HarnessConfig = field(default_factory=HarnessConfig)
    """How the run goes."""


def run_folder(out: str | Path, benchmark: str, model: CheckpointAdapter) -> Path:
    """Where a checkpoint's results of a benchmark lie."""
    name = model.identity["model"].replace("/", "-")
    return Path(out) / benchmark / f"{name}-{model.identity['weights'][:8]}"


def run_benchmark(
    name: str, command: RunCommand, examples: Sequence[Example], *, root: Path, channels: int | None
) -> Path | None:
    """Predict, score and report; prints the headline table and the page's path (rank 0; None on other ranks)."""
    benchmark = BENCHMARKS[name]
    dtype = getattr(torch, command.dtype)
    model = CheckpointAdapter(
        command.ckpt, max_new_tokens=command.max_new_tokens, device=command.device, dtype=dtype
    )  # fmt: skip
    folder = run_folder(command.out, name, model)
    systems = evaluate(
        benchmark, examples, model, root=root, folder=folder, harness=command.harness, controls=command.controls,
        channels=channels,
    )  # fmt: skip
    if int(os.environ.get("RANK", 0)) != 0:
        return None
    first = systems[0]
    clips = clip_views(examples, first.outcomes, first.predictions, model, root, command.clips)
    found = results(benchmark, examples, systems, data=str(root))
    page = write_run(folder, found, clips)
    for table in section_of(found).tables[:2]:
        print(f"\n{table.text()}")
    print(f"\nreport: {page}")
    return page
