"""What eval/context_bench.py does with its settings: adapters, folders, the run and its report."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import torch

from wearllama.evaluation.adapters import CheckpointAdapter
from wearllama.evaluation.commands import run_folder
from wearllama.evaluation.context_bench.findings import headline, write_findings
from wearllama.evaluation.context_bench.judging import resolve_family
from wearllama.evaluation.context_bench.run import BenchConfig, JudgeRole, run_bench
from wearllama.evaluation.context_bench.spoken import Speaker, SpeechConfig, SpokenAdapter
from wearllama.evaluation.context_bench.tasks import load_clone
from wearllama.evaluation.harness import Adapter, HarnessConfig
from wearllama.evaluation.text_models import open_reader


@dataclass(kw_only=True)
class JudgeSettings:
    """A judge; without a model there is none."""

    model: str | None = None
    """Folder of a causal LM."""
    family: str = "auto"
    """``auto`` reads it off the name and refuses the candidate's own family; or the family's name, as you say it."""
    max_new_tokens: int = 1024
    """Longest verdict."""


@dataclass(kw_only=True)
class ContextBenchCommand:
    """The whole of conf/context_bench.yaml."""

    ckpt: str
    """The candidate: a WearLlama checkpoint or a folder of any causal LM."""
    context_bench: BenchConfig
    """What of the benchmark is run; ``context_bench.root=CLONE`` is required."""
    out: str = "runs/eval"
    """Results go to OUT/context_bench/MODEL-WEIGHTS/."""
    judge: JudgeSettings = field(default_factory=JudgeSettings)
    ranking_judge: JudgeSettings = field(default_factory=JudgeSettings)
    """A second judge, the same for every candidate, to rank by and to measure agreement with."""
    turns: Literal["text", "spoken"] = "text"
    """``spoken``: the user's words as sound at the array (a WearLlama checkpoint)."""
    speech: SpeechConfig = field(default_factory=SpeechConfig)
    """Who speaks spoken turns, and where."""
    max_new_tokens: int = 1024
    """Longest reply, 1,024 as published; part of a prediction's key."""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    device: str | None = None
    harness: HarnessConfig = field(default_factory=lambda: HarnessConfig(ttft_items=0))


def run_command(command: ContextBenchCommand) -> Path | None:
    """Run and report; the path of findings.md on rank 0, None on the others."""
    clone = load_clone(command.context_bench.root)
    reader = open_reader(
        command.ckpt, max_new_tokens=command.max_new_tokens, device=command.device, dtype=getattr(torch, command.dtype)
    )
    candidate: Adapter = reader
    if command.turns == "spoken":
        if not isinstance(reader, CheckpointAdapter):
            raise ValueError(f"turns=spoken needs a model that hears; {command.ckpt} reads text")
        candidate = SpokenAdapter(reader, Speaker(command.speech))
    judges = {
        name: _judge(settings, candidate.identity["model"], command)
        for name, settings in (("judge", command.judge), ("ranking", command.ranking_judge))
        if settings.model is not None
    }
    folder = run_folder(command.out, "context_bench", reader) / _variant(command)
    run = run_bench(clone, command.context_bench, candidate, judges, folder=folder, harness=command.harness)
    if int(os.environ.get("RANK", 0)) != 0:
        return None
    page = write_findings(folder, run)
    print(f"\n{headline(run).text()}\n\nlock: {clone.lock_state()}\nreport: {page}")
    return page


def _judge(settings: JudgeSettings, candidate: str, command: ContextBenchCommand) -> JudgeRole:
    assert settings.model is not None
    family, resolution = resolve_family(settings.family, settings.model, candidate)
    adapter = open_reader(
        settings.model, max_new_tokens=settings.max_new_tokens, device=command.device,
        dtype=getattr(torch, command.dtype),
    )  # fmt: skip
    return JudgeRole(adapter=adapter, family=family, resolution=resolution)


def _variant(command: ContextBenchCommand) -> str:
    camera = "camera" if command.context_bench.camera else "no_camera"
    return f"{command.turns}-{camera}"
