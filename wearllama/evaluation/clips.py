"""Ten recordings for the report: what was heard (c_0 and the beam), what was wanted, what the model said."""

import base64
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
from torch import Tensor

from wearllama.audio.beamforming import select_channels
from wearllama.audio.timebase import SAMPLE_RATE
from wearllama.data.manifest import Example, load_audio
from wearllama.evaluation.models import AudioModel
from wearllama.evaluation.mono import MonoAdapter
from wearllama.evaluation.predictions import Prediction
from wearllama.evaluation.scoring import Outcome

PEAK = 0.7
"""Clips are scaled to this peak for listening; both channels of a clip by the same factor."""


def clip_views(
    examples: Sequence[Example],
    outcomes: Sequence[Outcome],
    predictions: Sequence[Prediction],
    model: AudioModel,
    root: str | Path,
    count: int = 10,
) -> list[dict[str, Any]]:
    """Up to ``count`` clips with sound, spread over tasks, right and wrong in turn; sound as data: URIs."""
    views = []
    for index in _choose(examples, outcomes, count):
        example, outcome = examples[index], outcomes[index]
        clip = model.hear(example, load_audio(example, root))
        assert clip is not None
        audio = model.waveforms(clip)
        c0_N, cx_N = audio if isinstance(audio, tuple) else _select(audio, model)
        scale = PEAK / max(float(c0_N.abs().max()), float(cx_N.abs().max()), 1e-6)
        views.append({
            "id": example.id, "task": example.task, "correct": outcome.marks.get("correct"),
            "words": str(example.metadata.get("transcript") or ""), "wanted": example.target,
            "said": predictions[index].raw, "note": outcome.note, "seconds": round(example.seconds, 2),
            "c0": _data_uri(c0_N * scale), "cx": _data_uri(cx_N * scale),
        })  # fmt: skip
    return views


def _choose(examples: Sequence[Example], outcomes: Sequence[Outcome], count: int) -> list[int]:
    """Indices: round robin over (task, right or wrong), so that no task and no kind of outcome crowds out others."""
    groups: dict[tuple[str, str], list[int]] = {}
    for index, (example, outcome) in enumerate(zip(examples, outcomes, strict=True)):
        if example.audio is not None:
            groups.setdefault((example.task, str(outcome.marks.get("correct"))), []).append(index)
    queues = [groups[key] for key in sorted(groups)]
    chosen: list[int] = []
    depth = 0
    while len(chosen) < count and any(len(queue) > depth for queue in queues):
        chosen += [queue[depth] for queue in queues if len(queue) > depth]
        depth += 1
    return sorted(chosen[:count])


def _select(audio_MN: Tensor, model: AudioModel) -> tuple[Tensor, Tensor]:
    assert not isinstance(model, MonoAdapter), "single-channel models name both channels"
    return select_channels(audio_MN, model.processor.array, model.processor.beam)


def _data_uri(audio_N: Tensor) -> str:
    stream = io.BytesIO()
    samples = np.asarray(audio_N, dtype=np.float32)
    soundfile.write(stream, samples, SAMPLE_RATE, format="WAV", subtype="PCM_16")
    return "data:audio/wav;base64," + base64.b64encode(stream.getvalue()).decode("ascii")
