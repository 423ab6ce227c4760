"""Audio models of OpenAI-compatible servers (GPT-4o Audio, Gemini, vLLM): sound goes as a WAV inside the request."""

import base64
import io
from collections.abc import Sequence
from typing import Any

import numpy as np
import soundfile
from torch import Tensor

from wearllama.audio.timebase import SAMPLE_RATE
from wearllama.evaluation.chat import EndpointConfig, Reply
from wearllama.evaluation.endpoints import EndpointChat
from wearllama.evaluation.mono import AudioLimit, Heard, MonoAdapter
from wearllama.evaluation.output import Output


class EndpointAdapter(MonoAdapter):
    """A remote model that hears the beam."""

    def __init__(self, name: str, config: EndpointConfig, *, max_new_tokens: int, limit: AudioLimit) -> None:
        self.chat = EndpointChat(name, config, max_new_tokens=max_new_tokens)
        super().__init__(self.chat.identity, self.chat.generation, limit=limit)
        self.prices = config

    @property
    def at_once(self) -> int:
        """Items that the server works on at the same time."""
        return self.chat.at_once

    def answer(self, items: Sequence[Heard]) -> list[Output]:
        replies = self.chat.client.ask_all([lambda item=item: self._body(item) for item in items])  # type: ignore[misc]
        return [output_of(reply, item.extra) for reply, item in zip(replies, items, strict=True)]

    def first_token(self, item: Heard) -> float | None:
        return self.chat.client.first_token_seconds(self._body(item))

    def _body(self, item: Heard) -> dict[str, Any]:
        if item.audio_N is None:
            return self.chat.body(item.messages)
        part = audio_part(item.audio_N, self.chat.client.config.audio_part)
        turns = [dict(m) if isinstance(m["content"], str) else {**m, "content": [part]} for m in item.messages]
        return self.chat.body(turns)


def output_of(reply: Reply, extra: dict[str, Any]) -> Output:
    """A chat reply as an output: tokens, attempts and the server's name go into the log."""
    known = {**extra, **reply.usage, "attempts": reply.attempts, "reply_s": round(reply.seconds, 4)}
    if reply.served_by:
        known["served_by"] = reply.served_by
    return Output(reply.text, known, error=reply.error, transient=reply.transient)


def audio_part(audio_N: Tensor, kind: str) -> dict[str, Any]:
    """A recording as a part of a message: 16-bit WAV in base64."""
    data = base64.b64encode(wav_bytes(audio_N)).decode("ascii")
    if kind == "input_audio":
        return {"type": "input_audio", "input_audio": {"data": data, "format": "wav"}}
    return {"type": "audio_url", "audio_url": {"url": f"data:audio/wav;base64,{data}"}}


def wav_bytes(audio_N: Tensor) -> bytes:
    """A mono WAV file at 16 kHz, 16 bits."""
    stream = io.BytesIO()
    samples_N = np.clip(audio_N.numpy(), -1.0, 1.0)
    soundfile.write(stream, samples_N, SAMPLE_RATE, format="WAV", subtype="PCM_16")
    return stream.getvalue()
