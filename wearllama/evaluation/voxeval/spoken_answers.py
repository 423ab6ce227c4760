"""Replies that a speech-to-speech model gave elsewhere, as recordings: a recogniser writes them down for scoring."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from wearllama.audio.io import read_audio
from wearllama.data.manifest import Clip, Example
from wearllama.data.prompts import content_hash
from wearllama.evaluation.cascade import Recogniser
from wearllama.evaluation.output import Output
from wearllama.evaluation.voxeval.layout import AUDIO


class SpokenAnswers:
    """``FOLDER/SETTING/SUBJECT/NNNNNNNN.wav`` (mono, 16 kHz), numbered from 0 as the questions are."""

    max_audio_seconds = None

    def __init__(self, folder: Path, recogniser: Recogniser) -> None:
        if not folder.is_dir():
            raise ValueError(f"spoken_answers={folder}: no such folder")
        self.folder, self.recogniser = folder, recogniser
        files = sorted(path for path in folder.rglob("*") if path.suffix.lower() in AUDIO)
        listing = [(str(path.relative_to(folder)), path.stat().st_size) for path in files]
        self.identity = {
            "model": folder.name, "weights": content_hash(listing), "input": "audio", "asr": recogniser.identity,
        }  # fmt: skip
        self.generation: dict[str, Any] = {}

    def generate(self, examples: Sequence[Example], clips: Sequence[Clip | None]) -> list[str]:
        return [self._written(example) for example in examples]

    def first_token_seconds(self, example: Example, clip: Clip | None) -> float | None:
        return None

    def _written(self, example: Example) -> Output:
        path = next((p for ending in AUDIO if (p := self.folder / f"{example.id}{ending}").is_file()), None)
        if path is None:
            return Output("", error=f"no recording {self.folder / example.id}.wav")
        return Output(self.recogniser(np.asarray(read_audio(path, channels=1)[0])))
