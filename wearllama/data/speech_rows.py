"""Manifests of speech: one JSONL line a clip, appended while a job runs, so that a killed one goes on where it stopped.

A line is ``{"id", "file", "text", "voice", "seconds", "language", "source", ...}``, ``file`` relative to the manifest:
what encoder pre-training, the recipes that make examples, and fine-tuning read.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from wearllama.audio.io import read_audio, write_audio
from wearllama.audio.timebase import SAMPLE_RATE
from wearllama.data.corpora import Recording, read_objects

MANIFEST = "manifest.jsonl"


class SpeechManifest:
    """Appends lines; knows which ids it has."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self.ids = {row["id"] for row in read_rows(path)} if repair(path) else set()

    def __contains__(self, row_id: str) -> bool:
        return row_id in self.ids

    def append(self, row: Mapping[str, Any]) -> None:
        """Write one line, as a whole."""
        assert row["id"] not in self.ids, row["id"]
        with self.path.open("ab", buffering=0) as stream:
            stream.write((json.dumps(dict(row), ensure_ascii=False) + "\n").encode())
        self.ids.add(row["id"])


def repair(path: Path) -> bool:
    """Drop a last line that a kill cut short; whether there is a file."""
    if not path.is_file():
        return False
    data = path.read_bytes()
    if data and not data.endswith(b"\n"):
        os.truncate(path, data.rfind(b"\n") + 1)
    return True


def read_rows(path: Path) -> Iterator[dict[str, Any]]:
    """Lines of a JSONL file; ValueError names the one that is no object."""
    if not path.is_file():
        raise ValueError(f"no manifest at {path}")
    for _, row in read_objects(path):
        yield row


def read_mono(path: Path, several_channels: str = "refuse") -> Tensor:
    """A clip as (N,) at 16 kHz; AudioError where it cannot be decoded, or has channels that are refused."""
    audio_CN = read_audio(path, channels=1 if several_channels == "refuse" else None, resample=True)
    return audio_CN.mean(0) if several_channels == "average" else audio_CN[0]


def store_clip(recording: Recording, out_dir: Path, source: str, several_channels: str = "refuse") -> dict[str, Any]:
    """Write a recording as a mono 16 kHz FLAC below ``out_dir``; returns its line.

    Raises:
        AudioError: it cannot be decoded, or has several channels and they are refused.
    """
    audio_1N = read_mono(recording.path, several_channels)[None]
    relative = Path("wav") / safe_name(recording.speaker) / f"{safe_name(recording.id)}.flac"
    write_audio(out_dir / relative, audio_1N.clamp(-1, 1))
    return {
        "id": recording.id, "file": str(relative), "text": recording.text, "voice": f"{source}/{recording.speaker}",
        "seconds": round(audio_1N.shape[1] / SAMPLE_RATE, 3), "language": recording.language, "source": source,
        **recording.extra,
    }  # fmt: skip


def safe_name(text: str) -> str:
    """A file name of an id: what may not be in one becomes a hyphen."""
    return re.sub(r"[^\w.+-]", "-", text).strip(".-") or "unnamed"
