"""What the log of encoder pre-training says, counted over the steps and ranks since its last line.

Shape suffixes: K books, V codes.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from wearllama.audio.timebase import HOP_SAMPLES, SAMPLE_RATE

Reduce = Callable[[Tensor], Tensor]


class Averages:
    """Means over batches of named losses; those that a model does not give are left out."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names
        self._sums: dict[str, float] = {}
        self._count = 0

    def add(self, outputs: Mapping[str, Tensor]) -> None:
        for name in self.names:
            if name in outputs:
                self._sums[name] = self._sums.get(name, 0.0) + float(outputs[name].detach())
        self._count += 1

    def drain(self, reduce: Reduce) -> tuple[dict[str, float], dict[str, Any]]:
        names = list(self._sums)
        totals = reduce(torch.tensor([*self._sums.values(), self._count], dtype=torch.float32)).tolist()
        self._sums, self._count = {}, 0
        return {name: round(total / totals[-1], 4) for name, total in zip(names, totals, strict=False)}, {}


class CodebookMeter:
    """Masked accuracy and the use of the codebooks by the targets: unique codes and perplexity a book."""

    def __init__(self) -> None:
        self._counts_KV: Tensor | None = None
        self._correct_K: Tensor | None = None
        self._masked = 0
        self._frames = 0

    def add(self, outputs: Mapping[str, Tensor]) -> None:
        counts_KV, correct_K = outputs["code_counts_KV"], outputs["correct_K"]
        self._counts_KV = counts_KV if self._counts_KV is None else self._counts_KV + counts_KV
        self._correct_K = correct_K if self._correct_K is None else self._correct_K + correct_K
        self._masked += int(outputs["masked"])
        self._frames += int(outputs["frames"])

    def drain(self, reduce: Reduce) -> tuple[dict[str, float], dict[str, Any]]:
        """Means over books for the console; every book's figures for the file."""
        assert self._counts_KV is not None and self._correct_K is not None
        counts_KV = reduce(self._counts_KV).cpu()
        accuracy_K = reduce(self._correct_K).cpu().double() / counts_KV.sum(1).clamp_min(1)
        masked, frames = reduce(torch.tensor([self._masked, self._frames])).tolist()
        self._counts_KV = self._correct_K = None
        self._masked = self._frames = 0
        perplexity_K, unique_K = perplexity(counts_KV), (counts_KV > 0).sum(1)
        figures = {
            "masked_accuracy": round(float(accuracy_K.mean()), 4),
            "codebook_perplexity": round(float(perplexity_K.mean()), 1),
            "unique_codes": round(float(unique_K.double().mean()), 1),
            "masked_fraction": round(masked / max(frames, 1), 4),
            "masked_frames": masked,
        }
        books = {
            "accuracy_by_book": [round(value, 4) for value in accuracy_K.tolist()],
            "perplexity_by_book": [round(value, 1) for value in perplexity_K.tolist()],
            "unique_by_book": unique_K.tolist(),
        }
        return figures, books


def perplexity(counts_KV: Tensor) -> Tensor:
    """exp of the entropy of each book's codes, (K,): V when all are used alike, 1 when one is."""
    share_KV = counts_KV.double() / counts_KV.sum(1, keepdim=True).clamp_min(1)
    return torch.special.entr(share_KV).sum(1).exp()


class Throughput:
    """Audio seconds a second of all ranks, views counted as rows."""

    def __init__(self) -> None:
        self._frames, self._start = 0, time.perf_counter()

    def add(self, mel_lengths_B: Tensor) -> None:
        self._frames += int(mel_lengths_B.sum())

    def drain(self, reduce: Reduce) -> dict[str, float]:
        now = time.perf_counter()
        frames = int(reduce(torch.tensor(self._frames)))
        rate = frames * HOP_SAMPLES / SAMPLE_RATE / (now - self._start)
        self._frames, self._start = 0, now
        return {"audio_seconds_per_second": round(rate, 1)}
