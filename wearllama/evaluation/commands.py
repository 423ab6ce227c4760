"""What the launchers of eval/ share: settings of a run, and the way from examples to a report."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch

from wearllama.atomic import write_text
from wearllama.data.manifest import Example
from wearllama.evaluation.adapters import CheckpointAdapter
from wearllama.evaluation.clips import clip_views
from wearllama.evaluation.conditions import ConditionedAdapter, ConditionSettings, condition_folder, under_condition
from wearllama.evaluation.evaluate import BENCHMARKS, Benchmark, Control, evaluate, results
from wearllama.evaluation.harness import HarnessConfig
from wearllama.evaluation.report import section_of, write_run
from wearllama.evaluation.tables import conditions_table
from wearllama.simulation.conditions import CLEAN, parse_conditions


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
    condition: str | tuple[str, ...] = CLEAN
    """``clean``, one evaluation condition (``snr:5``), a sweep (``snr``), a group (``voxeval``), or a list of those."""
    conditions: ConditionSettings = field(default_factory=ConditionSettings)
    """What conditions draw from."""
    harness: HarnessConfig = field(default_factory=HarnessConfig)
    """How the run goes."""


def run_folder(out: str | Path, benchmark: str, model: CheckpointAdapter) -> Path:
    """Where a checkpoint's results of a benchmark lie."""
    name = model.identity["model"].replace("/", "-")
    return Path(out) / benchmark / f"{name}-{model.identity['weights'][:8]}"


def run_benchmark(
    name: str,
    command: RunCommand,
    examples: Sequence[Example],
    *,
    root: Path,
    channels: int | None,
    benchmark: Benchmark | None = None,
    adapt: Callable[[CheckpointAdapter], Any] | None = None,
) -> list[Path]:
    """Predict, score and report under every condition; returns the pages (rank 0; [] on other ranks).

    ``benchmark`` scores in another way than ``BENCHMARKS[name]`` (a judge); ``adapt`` wraps the model.

    Prints each one's headline tables and, where there are several conditions, one table of all.
    """
    conditions = parse_conditions(command.condition)
    model = CheckpointAdapter(
        command.ckpt, max_new_tokens=command.max_new_tokens, device=command.device,
        dtype=getattr(torch, command.dtype),
    )  # fmt: skip
    for condition in conditions:
        if condition is not None and channels is not None:
            condition.check(channels)
    # All adapters first: what a condition lacks is told before hours are spent on another.
    systems = [
        model if condition is None else ConditionedAdapter(model, condition, command.conditions, root)
        for condition in conditions
    ]
    pages, found = [], []
    for condition, system in zip(conditions, systems, strict=True):
        heard = examples if condition is None else under_condition(examples, condition)
        folder = condition_folder(run_folder(command.out, name, model), condition)
        wrapped = system if adapt is None else adapt(system)
        run = _run_one(benchmark or BENCHMARKS[name], command, heard, wrapped, folder, root=root, channels=channels)
        if run is not None:
            pages.append(run[0])
            found.append((CLEAN if condition is None else condition.name, run[1]))
    if len(found) > 1:
        table = conditions_table(name, found)
        write_text(run_folder(command.out, name, model) / "conditions" / "conditions.md", table.markdown())
        print(f"\n{table.text()}")
    return pages


def _run_one(
    benchmark: Benchmark,
    command: RunCommand,
    examples: Sequence[Example],
    model: CheckpointAdapter,
    folder: Path,
    *,
    root: Path,
    channels: int | None,
) -> tuple[Path, dict[str, Any]] | None:
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
    return page, found
