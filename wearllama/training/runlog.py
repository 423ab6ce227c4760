"""The log of a training run: what is counted over steps and ranks, the console's table and run_dir/log.jsonl.

Shapes: B rows, S decoder positions, A clips, N supervised positions, K tasks.
"""

import json
import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from wearllama.audio.timebase import HOP_SAMPLES, SAMPLE_RATE
from wearllama.data.packing import document_lengths
from wearllama.training.flops import FlopsModel
from wearllama.training.resume import IDS, LOG

Reduce = Callable[[Tensor], Tensor]
"""Sums a tensor over ranks."""
COLUMNS = (
    ("step", "step", "{:>7d}"),
    ("loss", "loss", "{:>8.4f}"),
    ("grad", "grad_norm", "{:>8.3f}"),
    ("rate", "learning_rate", "{:>9.2e}"),
    ("tok/s", "tokens_per_second", "{:>9.0f}"),
    ("audio/s", "audio_seconds_per_second", "{:>8.1f}"),
    ("MFU", "mfu", "{:>6.1%}"),
    ("pad", "position_padding", "{:>6.1%}"),
    ("wait", "data_wait", "{:>6.1%}"),
    ("GiB", "memory_gib", "{:>6.2f}"),
)
"""Heading, key of the log line, format."""
_SUMS = (
    "audio_frames", "audio_slots", "positions", "position_slots", "squares", "targets", "waited", "extra_loss",
)  # fmt: skip


class Tally:
    """Counts of this rank since the last line."""

    def __init__(self, tasks: Sequence[str], flops: FlopsModel | None, peak: float, device: torch.device) -> None:
        """
        Args:
            tasks: names by number.
            flops: of the model; None leaves MFU out.
            peak: FLOPs a second of this rank's device.
            device: whose memory is told.
        """
        self.tasks, self.flops, self.peak, self.device = tasks, flops, peak, device
        self._reset()

    def _reset(self) -> None:
        self._sums = dict.fromkeys(_SUMS, 0.0)
        self._task_sums_2K = torch.zeros(2, len(self.tasks), dtype=torch.float64)
        self._start = time.perf_counter()

    def add(self, inputs: Mapping[str, Any]) -> None:
        """Count one batch: mel frames, decoder positions, how many of either are padding, targets."""
        sums = self._sums
        packed = "position_ids" in inputs
        lengths_B = (document_lengths(inputs["position_ids"]) if packed else inputs["attention_mask"].sum(1)).double()
        sums["positions"] += float(lengths_B.sum())
        sums["squares"] += float(lengths_B.square().sum())
        sums["position_slots"] += inputs["input_ids"].numel()
        sums["targets"] += float((inputs["labels"] != -100).sum())
        lengths_A = inputs.get("feature_lengths")
        if lengths_A is not None:
            sums["audio_frames"] += float(lengths_A.sum())
            sums["audio_slots"] += lengths_A.numel() * inputs["input_features"].shape[-2]

    def add_losses(self, losses_N: Tensor, tasks_N: Tensor) -> None:
        """Count the targets' own losses for the mean of each task."""
        stacked_2N = torch.stack((losses_N, torch.ones_like(losses_N))).double().cpu()
        self._task_sums_2K.index_add_(1, tasks_N.cpu(), stacked_2N)

    def add_extra(self, value: float) -> None:
        """Count a loss beside the cross-entropy, already divided by the step's targets."""
        self._sums["extra_loss"] += value

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Time spent here is data wait."""
        start = time.perf_counter()
        yield
        self._sums["waited"] += time.perf_counter() - start

    def drain(self, reduce: Reduce, ranks: int, steps: int, *, extra: str | None = None) -> dict[str, Any]:
        """Figures of all ranks since the last call, ``steps`` ago; starts anew.

        Args:
            reduce: sums over ranks.
            ranks: how many there are.
            steps: optimiser steps since the last call.
            extra: name of the loss that `add_extra` counted, if there is one.
        """
        seconds = time.perf_counter() - self._start
        sums = dict(zip(_SUMS, reduce(torch.tensor(list(self._sums.values()))).tolist(), strict=True))
        losses_K, counts_K = reduce(self._task_sums_2K.float()).tolist()
        figures: dict[str, Any] = {
            "tokens_per_second": round(sums["positions"] / seconds, 1),
            "target_tokens_per_second": round(sums["targets"] / seconds, 1),
            "audio_seconds_per_second": round(sums["audio_frames"] * HOP_SAMPLES / SAMPLE_RATE / seconds, 2),
            "audio_padding": _padding(sums["audio_frames"], sums["audio_slots"]),
            "position_padding": _padding(sums["positions"], sums["position_slots"]),
            "data_wait": round(sums["waited"] / ranks / seconds, 4),
            "memory_gib": round(self.memory_gib(), 3),
        }
        if self.flops is not None:
            done = self.flops.of(
                frames=sums["audio_frames"], positions=sums["positions"], squares=sums["squares"],
                targets=sums["targets"],
            )  # fmt: skip
            figures["mfu"] = round(done / seconds / (self.peak * ranks), 4)
        if extra is not None:
            figures[extra] = round(sums["extra_loss"] / max(steps, 1), 5)
        for task, loss, count in zip(self.tasks, losses_K, counts_K, strict=True):
            if count:
                figures[f"loss/{task}"] = round(loss / count, 4)
        self._reset()
        return figures

    def memory_gib(self) -> float:
        """Peak of the device's memory, or of this process' where there is only the CPU."""
        if self.device.type == "cuda":
            return torch.cuda.max_memory_allocated(self.device) / 2**30
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**30


def _padding(used: float, slots: float) -> float:
    return round(1.0 - used / slots, 4) if slots else 0.0


class RunLog:
    """Rank 0's table on the console and lines in run_dir/log.jsonl."""

    HEAD_EVERY = 20

    def __init__(self, run_dir: Path) -> None:
        self.path = run_dir / LOG
        self._rows = 0

    def write(self, line: Mapping[str, Any]) -> None:
        """Append a line; one of training loss is also shown."""
        with self.path.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(dict(line)) + "\n")
        if "loss" not in line:
            if "eval_loss" in line:
                tqdm.write(f"{line['step']:>7d}  validation loss {line['eval_loss']:.4f}")
            return
        if self._rows % self.HEAD_EVERY == 0:
            tqdm.write(" ".join(f"{head:>{_width(shape)}}" for head, _, shape in COLUMNS))
        self._rows += 1
        tqdm.write(" ".join(_cell(line.get(key), shape) for _, key, shape in COLUMNS))


class IdLog:
    """What this rank trained on, batch by batch, in run_dir/rows-rankN.jsonl."""

    def __init__(self, run_dir: Path, rank: int) -> None:
        self.path = run_dir / IDS.format(rank=rank)

    def write(self, step: int, ids: Sequence[str]) -> None:
        """Append one batch of the step that it belongs to."""
        with self.path.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps({"step": step, "ids": list(ids)}) + "\n")


def _width(shape: str) -> int:
    return int(shape[3:].split(".")[0].rstrip("df}"))


def _cell(value: Any, shape: str) -> str:
    return " " * (_width(shape) - 1) + "-" if value is None else shape.format(value)
