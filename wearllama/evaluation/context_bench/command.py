"""What eval/context_bench.py does with its settings: adapters, folders, the run and its report."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import torch

from wearllama.evaluation.adapters import CheckpointAdapter
from wearllama.evaluation.chat import ChatConfig, open_chat
from wearllama.evaluation.chat_adapter import ChatAdapter
from wearllama.evaluation.commands import run_folder
from wearllama.evaluation.context_bench.findings import headline, write_findings
from wearllama.evaluation.context_bench.judging import resolve_family
from wearllama.evaluation.context_bench.run import BenchConfig, Seat, run_bench
from wearllama.evaluation.context_bench.spoken import Speaker, SpeechConfig, SpokenAdapter
from wearllama.evaluation.context_bench.tasks import load_clone
from wearllama.evaluation.harness import Adapter, HarnessConfig
from wearllama.unread import refuse_unread

LONGEST_REPLY = 1024
"""Tokens, as published."""
CANDIDATES_OWN = "; a text model's own are candidate.max_new_tokens, candidate.dtype, candidate.device"


@dataclass(kw_only=True)
class JudgeSettings(ChatConfig):
    """A judge; without a model there is none."""

    max_new_tokens: int = LONGEST_REPLY
    family: str = "auto"
    """``auto`` reads it off the name and refuses the candidate's own family; or the family's name, as you say it."""


@dataclass(kw_only=True)
class ContextBenchCommand:
    """The whole of conf/context_bench.yaml."""

    context_bench: BenchConfig
    """What of the benchmark is run; ``context_bench.root=CLONE`` is required."""
    ckpt: str | None = None
    """The candidate: a WearLlama checkpoint, reading (``turns=text``) or hearing (``turns=spoken``)."""
    candidate: ChatConfig = field(default_factory=lambda: ChatConfig(max_new_tokens=LONGEST_REPLY))
    """Instead of ``ckpt``: a text model, ``candidate.model=hf:PATH``, ``smollm2`` or ``openai:NAME``."""
    judge: JudgeSettings = field(default_factory=JudgeSettings)
    ranking_judge: JudgeSettings = field(default_factory=JudgeSettings)
    """A second judge, the same for every candidate, to rank by and to measure agreement with."""
    turns: Literal["text", "spoken"] = "text"
    """``spoken``: the user's words as sound at the array."""
    speech: SpeechConfig = field(default_factory=SpeechConfig)
    """Who speaks spoken turns, and where."""
    max_new_tokens: int = LONGEST_REPLY
    """Longest reply of ``ckpt``; part of a prediction's key."""
    look_ahead: int | None = None
    """Of a checkpoint whose encoder streams, in frames of 80 ms; by default its first."""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """Of the weights of ``ckpt`` in memory."""
    device: str | None = None
    """Of ``ckpt``: ``cpu``, ``cuda:0``, ..."""
    out: str = "runs/eval"
    """Results go to OUT/context_bench/MODEL-WEIGHTS/TURNS-CAMERA/."""
    harness: HarnessConfig = field(default_factory=lambda: HarnessConfig(ttft_items=0))

    def __post_init__(self) -> None:
        if (self.ckpt is None) == (self.candidate.model is None):
            raise ValueError("wanted one candidate: ckpt=FOLDER, or candidate.model=hf:PATH, smollm2 or openai:NAME")
        if self.turns == "spoken" and self.ckpt is None:
            raise ValueError(f"turns=spoken needs a model that hears (ckpt=FOLDER); {self.candidate.model} reads text")
        if self.ckpt is None:
            refuse_unread(
                self, ("max_new_tokens", "look_ahead", "dtype", "device"), "without ckpt", hint=CANDIDATES_OWN
            )
        else:
            refuse_unread(self, ("candidate",), "beside ckpt")
        if self.turns == "text":
            refuse_unread(self, ("speech",), "with turns=text")
        if self.harness.bad_item != "error":
            raise ValueError(f"harness.bad_item={self.harness.bad_item}: a conversation goes on from every reply, so "
                             "that none may fail; wanted error")  # fmt: skip
        for name in ("judge", "ranking_judge"):
            if getattr(self, name).model is None:
                refuse_unread(self, (name,), f"without {name}.model")


def run_command(command: ContextBenchCommand) -> Path | None:
    """Run and report; the path of findings.md on rank 0, None on the others."""
    rank = int(os.environ.get("RANK", 0))
    clone = load_clone(command.context_bench.root)
    candidate = _candidate(command)
    judges = {
        name: _seat(settings, candidate.identity["model"])
        for name, settings in (("judge", command.judge), ("ranking", command.ranking_judge))
        if settings.model is not None
    }
    camera = "camera" if command.context_bench.camera else "no_camera"
    folder = run_folder(command.out, "context_bench", candidate) / f"{command.turns}-{camera}"
    run = run_bench(
        clone, command.context_bench, candidate, judges, folder=folder, harness=command.harness, rank=rank
    )  # fmt: skip
    if rank != 0:
        return None
    page = write_findings(folder, run)
    print(f"\n{headline(run).text()}\n\nlock: {clone.lock_state()}\nreport: {page}")
    return page


def _candidate(command: ContextBenchCommand) -> Adapter:
    if command.ckpt is None:
        return ChatAdapter(open_chat(command.candidate))
    model = CheckpointAdapter(
        command.ckpt, max_new_tokens=command.max_new_tokens, device=command.device,
        dtype=getattr(torch, command.dtype), look_ahead=command.look_ahead,
    )  # fmt: skip
    return SpokenAdapter(model, Speaker(command.speech)) if command.turns == "spoken" else model


def _seat(settings: JudgeSettings, candidate: str) -> Seat:
    assert settings.model is not None
    family, resolution = resolve_family(settings.family, settings.model, candidate)
    return Seat(model=open_chat(settings), family=family, resolution=resolution)
