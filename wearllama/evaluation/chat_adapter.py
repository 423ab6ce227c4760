"""A text model as a candidate: the harness' face over any chat model, local or behind a server."""

from collections.abc import Sequence
from typing import Any

from wearllama.data.manifest import Clip, Example
from wearllama.data.prompts import has_audio
from wearllama.evaluation.chat import ChatModel
from wearllama.evaluation.output import Output


class ChatAdapter:
    """Answers conversations of text."""

    max_audio_seconds = None

    def __init__(self, model: ChatModel) -> None:
        self.model = model
        self._identity = {**model.identity, "input": "text"}

    @property
    def identity(self) -> dict[str, str]:
        return self._identity

    @property
    def generation(self) -> dict[str, Any]:
        return self.model.generation

    @property
    def at_once(self) -> int:
        """Items that the model works on at the same time."""
        return self.model.at_once

    def generate(self, examples: Sequence[Example], clips: Sequence[Clip | None]) -> list[str]:
        if spoken := [example.id for example in examples if has_audio(example.messages)]:
            raise ValueError(f"{spoken[0]}: {self.identity['model']} reads text, and a turn is sound")
        replies = self.model.complete([example.messages for example in examples])
        return [
            Output(reply.text, dict(reply.usage), error=reply.error, transient=reply.transient) for reply in replies
        ]

    def first_token_seconds(self, example: Example, clip: Clip | None) -> float | None:
        return None
