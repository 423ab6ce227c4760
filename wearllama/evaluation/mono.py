"""What single-channel models share: they get the beam, no more of it than they take, and say where it was cut."""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from wearllama.audio.timebase import SAMPLE_RATE
from wearllama.data.manifest import Clip, Example
from wearllama.data.prompts import Message
from wearllama.evaluation.adapters import Input
from wearllama.evaluation.output import Output


class Heard(NamedTuple):
    """One item as a single-channel model gets it."""

    example: Example
    messages: list[Message]
    audio_N: Tensor | None
    """Mono at 16 kHz; None where the model reads instead."""
    extra: dict[str, Any]
    """``truncated_from_s`` where the recording was longer."""


@dataclass(frozen=True, kw_only=True)
class AudioLimit:
    """Longest recording that a model takes, and what becomes of a longer one."""

    seconds: float | None = None
    truncate: bool = True
    """Keep its beginning and say so (the papers' asterisk); False refuses it before the run."""

    def __post_init__(self) -> None:
        if self.seconds is not None and self.seconds <= 0:
            raise ValueError(f"max_audio_seconds is {self.seconds}, wanted more than 0")


class MonoAdapter:
    """A model of one channel behind the harness' interface; subclasses answer and time."""

    alter: Callable[[Example, Clip], Clip] | None = None
    """What becomes of a recording before the model hears it."""

    def __init__(
        self, identity: dict[str, str], generation: dict[str, Any], *, limit: AudioLimit, input: Input = "audio"
    ) -> None:
        self.limit, self.input = limit, input
        self.identity = {**identity, "input": input}
        self.generation = {**generation, "audio_limit_s": limit.seconds}

    @property
    def max_audio_seconds(self) -> float | None:
        """The limit, where longer recordings are refused rather than cut."""
        return None if self.limit.truncate or self.input == "transcript" else self.limit.seconds

    def with_input(self, input: Input) -> "MonoAdapter":
        """The same model with another kind of input."""
        other = copy.copy(self)
        other.input, other.identity = input, {**self.identity, "input": input}
        return other

    def hearing(self, alter: Callable[[Example, Clip], Clip], identity: Mapping[str, str]) -> "MonoAdapter":
        """The same model that hears altered recordings: another system, whose identity says how."""
        other = copy.copy(self)
        other.alter, other.identity = alter, {**self.identity, **identity}
        return other

    def hear(self, example: Example, clip: Clip | None) -> Clip | None:
        """What of a recording reaches the model."""
        return clip if clip is None or self.alter is None else self.alter(example, clip)

    def waveforms(self, clip: Clip) -> tuple[Tensor, Tensor]:
        """(c_0, what the model hears), for the report's players."""
        return clip.audio_MN[0], beam_of(clip)

    def generate(self, examples: Sequence[Example], clips: Sequence[Clip | None]) -> list[str]:
        """Outputs in order."""
        return list(self.answer([self._heard(e, clip) for e, clip in zip(examples, clips, strict=True)]))

    def first_token_seconds(self, example: Example, clip: Clip | None) -> float | None:
        return self.first_token(self._heard(example, clip))

    def answer(self, items: Sequence[Heard]) -> list[Output]:
        """Outputs of a batch, each with its item's ``extra``."""
        raise NotImplementedError

    def first_token(self, item: Heard) -> float | None:
        """Seconds to the first token of one item, alone."""
        raise NotImplementedError

    def _heard(self, example: Example, clip: Clip | None) -> Heard:
        if clip is None:
            return Heard(example, example.messages, None, {})
        if self.input == "transcript":
            words = str(example.metadata.get("transcript") or "")
            return Heard(example, read_instead(example.messages, words), None, {})
        heard = self.hear(example, clip)
        assert heard is not None
        try:
            audio_N = beam_of(heard)
        except ValueError as error:
            raise ValueError(f"example {example.id!r}: {error}") from None
        extra: dict[str, Any] = {}
        if self.limit.seconds is not None and audio_N.shape[0] > (wanted := int(self.limit.seconds * SAMPLE_RATE)):
            extra["truncated_from_s"] = round(audio_N.shape[0] / SAMPLE_RATE, 3)
            audio_N = audio_N[:wanted]
        return Heard(
            example, example.messages, torch.zeros_like(audio_N) if self.input == "silence" else audio_N, extra
        )


def beam_of(clip: Clip) -> Tensor:
    """c_x: the recorded beam, or the only channel; ValueError where there is an array and no beam of it."""
    if clip.beam_N is not None:
        return clip.beam_N
    if clip.audio_MN.shape[0] == 1:
        return clip.audio_MN[0]
    raise ValueError(
        f"{clip.audio_MN.shape[0]} channels and no recorded beam: a single-channel model gets c_x, so the data "
        "must bring it (wearvox.beam=file)"
    )


def read_instead(messages: Sequence[Message], words: str) -> list[Message]:
    """The conversation with the turn of sound replaced by words."""
    return [dict(m) if isinstance(m["content"], str) else {**m, "content": words} for m in messages]
