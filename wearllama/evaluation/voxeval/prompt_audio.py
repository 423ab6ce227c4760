"""The audio prompt: examples and question with a second of silence between, of which the last 80 seconds are kept.

The prompt is a recipe in the example and becomes samples when its turn comes, since 153,318 of them fit on no disk.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import soundfile
import torch
from scipy.signal import resample_poly
from torch import Tensor

from wearllama.audio.array import load_array
from wearllama.audio.beamforming import design_beam
from wearllama.audio.io import AudioError, audio_info
from wearllama.audio.timebase import SAMPLE_RATE
from wearllama.data.manifest import Example
from wearllama.data.prompts import content_hash
from wearllama.evaluation.conditions import ConditionSettings, noise_listing, under_condition
from wearllama.simulation.conditions import Condition, parse_conditions
from wearllama.simulation.noise import NoiseBank

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
    """Renders prompt recipes (``wearllama.data.manifest.Renderer``): mono (1, N) at 16 kHz.

    A recipe may name an evaluation condition, which changes the whole prompt, as whoever asks would be heard.
    """

    def __init__(self, root: str | Path, settings: ConditionSettings | None = None) -> None:
        self.root = Path(root)
        self.settings = settings or ConditionSettings()
        self._noise = NoiseBank(self.settings.noise, speech=self.settings.speech)
        self._array = load_array("glasses5")  # recordings of one channel take nothing of it
        self._beam = design_beam(self._array)

    def under(self, examples: Sequence[Example], condition: Condition) -> list[Example]:
        """The examples under a condition of recordings; other recipes, hence other predictions."""
        if condition.is_scene:
            raise ValueError(f"condition {condition.name} changes scenes, and VoxEval has recordings only")
        condition.check(1)
        stamp = content_hash([self.settings.seed, noise_listing(self._noise)])
        changed = []
        for example in under_condition(examples, condition):
            assert example.audio is not None
            recipe = {
                **example.audio["mixture"],
                "condition": condition.name,
                "condition_data": stamp,
                "key": example.id,
            }
            changed.append(replace(example, audio={"mixture": recipe}))
        return changed

    def __call__(self, recipe: Mapping[str, Any], seed: int) -> Tensor:
        gap_N = np.zeros(round(recipe["gap_s"] * SAMPLE_RATE), np.float32)
        pieces: list[np.ndarray] = []
        for number, (name, _) in enumerate(recipe["parts"]):
            pieces += [gap_N] if number else []
            pieces.append(_read(self.root / name))
        audio_N = np.concatenate(pieces)[-round(recipe["keep_s"] * SAMPLE_RATE) :]
        audio_CN = torch.from_numpy(np.ascontiguousarray(audio_N))[None]
        if "condition" not in recipe:
            return audio_CN
        (condition,) = parse_conditions(recipe["condition"])
        assert condition is not None
        changed_CN, _ = condition.apply(
            audio_CN, None, array=self._array, beam=self._beam, noise=self._noise, key=recipe["key"],
            seed=self.settings.seed,
        )  # fmt: skip
        return changed_CN


def _read(path: Path) -> np.ndarray:
    """(N,) float32 at 16 kHz; MP3 may overshoot full scale by a little, which stays."""
    audio_N, rate = soundfile.read(str(path), dtype="float32")
    if rate == SAMPLE_RATE:
        return audio_N
    divisor = int(np.gcd(rate, SAMPLE_RATE))
    return resample_poly(audio_N, SAMPLE_RATE // divisor, rate // divisor).astype(np.float32)
