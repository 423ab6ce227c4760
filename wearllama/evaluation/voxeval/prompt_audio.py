"""The audio prompt: examples and question with a second of silence between, of which the last 80 seconds are kept.

The prompt is a recipe in the example and becomes samples when its turn comes, since 153,318 of them fit on no disk.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import soundfile
import torch
from scipy.signal import resample_poly
from torch import Tensor

from wearllama.audio.io import AudioError, audio_info
from wearllama.audio.timebase import SAMPLE_RATE

GAP_S, KEEP_S = 1.0, 80.0
KIND = "voxeval"


class Composed(NamedTuple):
    """A prompt before it is read: its recipe, how long it is, and how much of its beginning is not kept."""

    recipe: dict[str, Any]
    seconds: float
    cut_s: float


def compose(root: Path, files: Sequence[Path], *, sample_rate: int, keep_s: float = KEEP_S) -> Composed:
    """The prompt of these files in order; AudioError names one that is not mono or of another rate.

    Args:
        root: folder that paths in the recipe are relative to.
        files: examples and question.
        sample_rate: rate in Hz that files may have beside 16 kHz; they are converted to 16 kHz.
        keep_s: seconds kept, from the end.
    """
    total = GAP_S * (len(files) - 1)
    parts = []
    for path in files:
        info = audio_info(path)
        if info.channels != 1 or info.sample_rate not in (SAMPLE_RATE, sample_rate):
            raise AudioError(
                f"{path}: {info.channels} channels at {info.sample_rate} Hz, wanted 1 at {SAMPLE_RATE} or "
                f"{sample_rate} Hz (setting voxeval.sample_rate)"
            )
        total += info.seconds
        parts.append([str(path.relative_to(root)), path.stat().st_size])
    recipe = {"kind": KIND, "parts": parts, "gap_s": GAP_S, "keep_s": keep_s}
    return Composed(recipe, min(total, keep_s), max(0.0, total - keep_s))


class PromptReader:
    """Renders prompt recipes (``wearllama.data.manifest.Renderer``): mono (1, N) at 16 kHz."""

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)

    def __call__(self, recipe: Mapping[str, Any], seed: int) -> Tensor:
        gap_N = np.zeros(round(recipe["gap_s"] * SAMPLE_RATE), np.float32)
        pieces: list[np.ndarray] = []
        for number, (name, _) in enumerate(recipe["parts"]):
            pieces += [gap_N] if number else []
            pieces.append(_read(self.root / name))
        audio_N = np.concatenate(pieces)[-round(recipe["keep_s"] * SAMPLE_RATE) :]
        return torch.from_numpy(np.ascontiguousarray(audio_N))[None]


def _read(path: Path) -> np.ndarray:
    """(N,) float32 at 16 kHz; MP3 may overshoot full scale by a little, which stays."""
    audio_N, rate = soundfile.read(str(path), dtype="float32")
    if rate == SAMPLE_RATE:
        return audio_N
    divisor = int(np.gcd(rate, SAMPLE_RATE))
    return resample_poly(audio_N, SAMPLE_RATE // divisor, rate // divisor).astype(np.float32)
