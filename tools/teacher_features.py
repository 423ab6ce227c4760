"""Whisper-encoder features of a corpus at 12.5 Hz, one fp16 ``teacher/<id>.npy`` (frames, width) an utterance.

Encoder pre-training regresses onto them where they exist.  Clips whose file is there already are skipped, so a killed
run goes on, and a growing corpus is topped up.

Run as: python tools/teacher_features.py corpus=data/corpus 'voices=[kokoro,asterisk]'
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from wearllama.atomic import replacing
from wearllama.audio.io import read_audio
from wearllama.data.pretraining_scenes import read_recordings
from wearllama.data.whisper_teacher import FRAME_RATE_HZ, WhisperTeacher, load_teacher
from wearllama_launch import existing_path, launch

FRAMES_PER_EMBEDDING = FRAME_RATE_HZ * 80 // 1000
LONGEST_SECONDS = 30.0
"""What Whisper's encoder takes at once."""


@dataclass(kw_only=True)
class TeacherFeatures:
    corpus: str
    """Folder with manifest.jsonl, or any folder of mono recordings at 16 kHz."""
    voices: list[str] = field(default_factory=list)
    """Only voices whose name starts with one of these; empty: all."""
    teacher: str | None = None
    """Converted Whisper encoder; fetched and converted once into the cache if not given."""
    threads: int = 1
    max_seconds: float = 8.0


@launch("teacher_features", TeacherFeatures)
def main(config: TeacherFeatures) -> None:
    torch.set_num_threads(config.threads)
    corpus = existing_path(config.corpus, "corpus")
    folder = corpus / "teacher"
    folder.mkdir(exist_ok=True)
    rows = corpus_rows(corpus)
    wanted = [
        row
        for row in rows
        if row["seconds"] <= config.max_seconds
        and (not config.voices or row["voice"].startswith(tuple(config.voices)))
        and not (folder / f"{row['id']}.npy").is_file()
    ]
    teacher = load_teacher(config.teacher)
    for row in tqdm(wanted, desc="teacher features", unit="clip"):
        write_features(teacher, corpus / row["file"], folder / f"{row['id']}.npy")


def corpus_rows(corpus: Path) -> list[dict[str, Any]]:
    """Rows of the manifest; without one, the folder's mono recordings, as recipes/pretrain_encoder.py names them."""
    manifest = corpus / "manifest.jsonl"
    if manifest.is_file():
        return [json.loads(line) for line in manifest.read_text().splitlines()]
    return [utterance._asdict() for utterance in read_recordings(corpus, max_seconds=LONGEST_SECONDS)]


def write_features(teacher: WhisperTeacher, audio: Path, target: Path) -> None:
    features_LD = teacher(read_audio(audio, channels=1))[0]
    whole = len(features_LD) // FRAMES_PER_EMBEDDING
    averaged_LD = features_LD[: whole * FRAMES_PER_EMBEDDING].unflatten(0, (whole, FRAMES_PER_EMBEDDING)).mean(1)
    with replacing(target) as temporary, temporary.open("wb") as file:
        np.save(file, averaged_LD.numpy().astype(np.float16))


if __name__ == "__main__":
    main()
