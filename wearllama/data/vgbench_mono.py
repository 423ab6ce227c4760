"""The paper's mono rendering of a scene: dry near speech, one fixed far-field room, dBFS, fades and a boundary.

Each segment is levelled and faded by itself and written behind the last; between them lies digital silence.  The room
(a response at the nose from a bystander's place) and the level are ours.  Shapes: N samples, T taps.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.signal import fftconvolve

from wearllama.audio.io import read_audio
from wearllama.audio.timebase import SAMPLE_RATE
from wearllama.data.demo_scenes import Scene
from wearllama.simulation.bank import RirBank

Samples = NDArray[np.float32]
LEVEL_DBFS = -26.0
"""RMS of every segment (ours)."""
FADE_SAMPLES = 80
PEAK_LIMIT = 0.99


@dataclass(frozen=True)
class FarRoom:
    """The fixed far-field transform."""

    response_T: Samples
    facts: dict[str, Any]


def far_room(bank: RirBank, split: str = "eval") -> FarRoom:
    """The bank's first bystander of a split, at the reference microphone; ValueError where there is none."""
    entries = bank.select(role="bystander", split=split)
    if len(entries) == 0:
        raise ValueError(f"the bank has no bystander in split {split!r}, which the far-field room needs")
    index = int(entries[0])
    response_T = np.asarray(bank.rir(index)[bank.reference], dtype=np.float32)
    entry = bank.entries[index]
    facts = {"entry": index, "room": entry.room, "distance_m": round(entry.distance_m, 3)}
    return FarRoom(response_T / np.abs(response_T).max(), facts)


def render_mono(scene: Scene, room: FarRoom, root: Path) -> tuple[Samples, list[dict[str, Any]]]:
    """Samples (N,) and for each segment its start, end, gain, peak and distance."""
    parts: list[Samples] = []
    notes: list[dict[str, Any]] = []
    at = 0
    for spoken in scene.spoken:
        gap = round(spoken.gap_s * SAMPLE_RATE)
        dry_N = read_audio(root / spoken.line.file, channels=1)[0].numpy()
        far = spoken.role != "wearer"
        raw_N = fftconvolve(dry_N, room.response_T).astype(np.float32) if far else dry_N
        segment_N, gain_db = levelled(raw_N)
        parts += [np.zeros(gap, dtype=np.float32), segment_N]
        start, at = at + gap, at + gap + len(segment_N)
        notes.append({
            "start_s": start / SAMPLE_RATE, "end_s": at / SAMPLE_RATE, "gain_db": round(gain_db, 3),
            "peak": round(float(np.abs(segment_N).max()), 4), "distance": "far" if far else "near",
        })  # fmt: skip
    return np.concatenate(parts), notes


def levelled(audio_N: Samples) -> tuple[Samples, float]:
    """A segment at ``LEVEL_DBFS`` (lower where it would clip) with 5 ms fades, and the gain in dB."""
    rms = float(np.sqrt(np.mean(np.square(audio_N, dtype=np.float64))))
    if rms == 0.0:
        raise ValueError("a segment is silent")
    gain = min(10 ** (LEVEL_DBFS / 20) / rms, PEAK_LIMIT / float(np.abs(audio_N).max()))
    out_N = (audio_N * np.float32(gain)).astype(np.float32)
    ramp = np.linspace(0.0, 1.0, FADE_SAMPLES, dtype=np.float32)[: len(out_N) // 2]
    out_N[: len(ramp)] *= ramp
    out_N[-len(ramp) :] *= ramp[::-1]
    return out_N, float(20 * np.log10(gain))
