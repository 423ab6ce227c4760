"""A cascade: speech recognition on the beam, then a text model that gets the words as the user's turn.

Recognisers: ``whisper_base`` (the packaged one), ``faster-whisper:SIZE_OR_PATH``, ``hf:PATH_OR_ID`` (a transformers
sequence-to-sequence recogniser).  Unlike the paper's GPT-5 row, translation sessions are transcribed whole: no
reference segmentation, no reference speakers.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from wearllama.audio.timebase import SAMPLE_RATE
from wearllama.data.assets import fetch
from wearllama.evaluation.adapters import weights_hash
from wearllama.evaluation.chat import ChatModel, split_model
from wearllama.evaluation.endpoint_adapter import output_of
from wearllama.evaluation.endpoints import EndpointChat
from wearllama.evaluation.mono import AudioLimit, Heard, MonoAdapter, read_instead
from wearllama.evaluation.output import Output

KINDS = ("whisper_base", "faster-whisper", "hf")


@dataclass(kw_only=True)
class AsrConfig:
    """The recogniser of a cascade."""

    model: str = "whisper_base"
    """``whisper_base``, ``faster-whisper:SIZE_OR_PATH``, ``hf:PATH_OR_ID``."""
    language: str | None = None
    """Spoken language (``en``); None lets the model tell."""
    beam_size: int = 1
    """Hypotheses kept."""
    device: str = "cpu"
    """``cpu``, ``cuda``."""
    threads: int = 1
    """CPU threads of faster-whisper."""

    def __post_init__(self) -> None:
        if self.model != "whisper_base":
            split_model(self.model, KINDS[1:])
        if self.beam_size < 1 or self.threads < 1:
            raise ValueError(f"beam_size {self.beam_size} or threads {self.threads} is too small")


class Recogniser(Protocol):
    """Speech to words."""

    identity: str

    def __call__(self, audio_N: NDArray[np.float32]) -> str:
        """(N,) at 16 kHz, any length -> words."""


class FasterWhisper:
    """CTranslate2's Whisper; greedy or beam search at temperature 0, long recordings in windows."""

    def __init__(self, config: AsrConfig) -> None:
        name = config.model.partition(":")[2]
        self.path = str(fetch("whisper_base")) if config.model == "whisper_base" else name
        self.config = config
        digest = _ctranslate2_size(self.path)
        self.identity = f"{config.model}{digest} beam {config.beam_size} {config.language or 'any language'}"
        self._model: Any = None

    def __call__(self, audio_N: NDArray[np.float32]) -> str:
        if self._model is None:
            from faster_whisper import WhisperModel

            kind = "int8" if self.config.device == "cpu" else "float16"
            self._model = WhisperModel(
                self.path, device=self.config.device, compute_type=kind, cpu_threads=self.config.threads
            )
        segments, _ = self._model.transcribe(
            audio_N, language=self.config.language, beam_size=self.config.beam_size, temperature=0.0,
            condition_on_previous_text=False, without_timestamps=len(audio_N) < 28 * SAMPLE_RATE,
        )  # fmt: skip
        return " ".join(segment.text.strip() for segment in segments)


class TransformersAsr:
    """A transformers speech-to-text model through its pipeline."""

    def __init__(self, config: AsrConfig) -> None:
        self.config = config
        self.path = config.model.partition(":")[2]
        weights = weights_hash(self.path) if Path(self.path).is_dir() else "hub"
        self.identity = f"hf:{self.path} {weights} beam {config.beam_size} {config.language or 'any language'}"
        self._pipeline: Any = None

    def __call__(self, audio_N: NDArray[np.float32]) -> str:
        if self._pipeline is None:
            from transformers import pipeline

            self._pipeline = pipeline("automatic-speech-recognition", model=self.path, device=self.config.device)
        options: dict[str, Any] = {"num_beams": self.config.beam_size, "do_sample": False}
        if self.config.language is not None:
            options["language"] = self.config.language
        audio = {"raw": audio_N, "sampling_rate": SAMPLE_RATE}
        long = len(audio_N) > 30 * SAMPLE_RATE
        return str(self._pipeline(audio, generate_kwargs=options, return_timestamps=long)["text"]).strip()


def _ctranslate2_size(path: str) -> str:
    """The size of the weights, which tells packaged models apart; "" for a size by name."""
    file = Path(path) / "model.bin"
    return f" {file.stat().st_size}" if file.is_file() else ""


def open_recogniser(config: AsrConfig) -> Recogniser:
    """The recogniser that a config names; weights are loaded when first needed."""
    return TransformersAsr(config) if config.model.startswith("hf:") else FasterWhisper(config)


class CascadeAdapter(MonoAdapter):
    """A recogniser and a text model. The words go into the log; where they are given, nothing is recognised."""

    def __init__(self, recogniser: Recogniser, chat: ChatModel) -> None:
        self.recogniser, self.chat = recogniser, chat
        name = f"{recogniser.identity.split(' ')[0]} + {chat.identity['model']}"
        identity = {"model": name, "weights": chat.identity["weights"], "asr": recogniser.identity}
        super().__init__(identity, chat.generation, limit=AudioLimit())
        self.prices = chat.client.config if isinstance(chat, EndpointChat) else None

    @property
    def at_once(self) -> int:
        """Items that the text model works on at the same time; they are recognised one by one."""
        return self.chat.at_once

    def answer(self, items: Sequence[Heard]) -> list[Output]:
        read = [self._read(item) for item in items]
        replies = self.chat.complete([messages for messages, _ in read])
        return [output_of(reply, extra) for reply, (_, extra) in zip(replies, read, strict=True)]

    def first_token(self, item: Heard) -> float | None:
        started = time.perf_counter()
        messages, _ = self._read(item)
        recognised = time.perf_counter() - started
        answered = self.chat.first_token_seconds(messages)
        return None if answered is None else recognised + answered

    @torch.inference_mode()
    def _read(self, item: Heard) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        if item.audio_N is None:
            return item.messages, item.extra
        started = time.perf_counter()
        words = self.recogniser(item.audio_N.numpy())
        extra = {**item.extra, "transcript": words, "asr_s": round(time.perf_counter() - started, 4)}
        return read_instead(item.messages, words), extra
