"""Training-free adaptations around any model adapter, in the spirit of the three that arXiv 2609.32536 probes.

``self_report``: the model first describes who speaks and from where, then acts with its own words before it.
``measured``: a tool's acoustic measurements stand in the prompt as text.
``chunked``: the model listens in growing pieces and notes a thought after each, then acts.

They change prompts and pieces of sound, never weights, and are no reproduction of the published systems.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, get_args

import torch

from wearllama.audio.timebase import SAMPLE_RATE
from wearllama.data.manifest import Clip, Example
from wearllama.data.prompts import content_hash
from wearllama.evaluation.acoustics import describe, measure

Adaptation = Literal["self_report", "measured", "chunked"]
ADAPTATIONS: tuple[Adaptation, ...] = get_args(Adaptation)
TEXTS: dict[str, str] = {
    "self_report_ask": "Do not act yet. In one sentence: who speaks, how near is each voice to the microphones, and "
                       "does the voice change?",
    "self_report": "What you heard, in your own words: {note}",
    "measured": "{note}",
    "chunked_ask": "This is the beginning of a recording. Do not act yet. In one sentence: what have you heard so far, "
                   "and whom is it meant for?",
    "chunked": "Your thoughts while listening: {note}",
}  # fmt: skip
"""Their prompts, in our words; their hash is part of every prediction's key."""


class AdaptedAdapter:
    """An adapter whose prompts are enriched before the model acts."""

    def __init__(self, inner: Any, name: Adaptation, *, chunk_seconds: float = 2.0) -> None:
        """
        Args:
            inner: a checkpoint or a single-channel model; what is not changed here is passed through.
            chunk_seconds: length of a piece (``chunked``).
        """
        if name not in ADAPTATIONS:
            raise ValueError(f"adaptation is {name!r}, wanted one of {ADAPTATIONS}")
        if chunk_seconds <= 0:
            raise ValueError(f"chunk_seconds is {chunk_seconds}, wanted above 0")
        self.inner, self.name, self.chunk_seconds = inner, name, chunk_seconds

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["inner"], name)

    @property
    def identity(self) -> dict[str, str]:
        """The model's own, and the adaptation with its prompts: no prediction of one serves for another."""
        return {**self.inner.identity, "adaptation": self.name, "adaptation_prompts": content_hash(TEXTS)}

    @property
    def generation(self) -> dict[str, Any]:
        chunks = {"chunk_seconds": self.chunk_seconds} if self.name == "chunked" else {}
        return {**self.inner.generation, **chunks}

    def with_input(self, input: Any) -> "AdaptedAdapter":
        """The same adaptation of the model with another kind of input."""
        return AdaptedAdapter(self.inner.with_input(input), self.name, chunk_seconds=self.chunk_seconds)

    def first_token_seconds(self, example: Example, clip: Clip | None) -> float | None:
        """Not measured: the passes before the answer are part of the time."""
        return None

    def generate(self, examples: Sequence[Example], clips: Sequence[Clip | None]) -> list[str]:
        """Raw outputs of a batch; rows in which nothing is heard (no sound, or read instead) pass through unchanged.

        A row whose note failed (a server's error) has that failure as its output.
        """
        reads = self.inner.input == "transcript"
        heard = [at for at, clip in enumerate(clips) if clip is not None and not reads]
        told = self._notes([examples[at] for at in heard], [clips[at] for at in heard]) if heard else []
        notes = dict(zip(heard, told, strict=True))
        failed = {at: note for at, note in notes.items() if getattr(note, "error", "")}
        asked = [at for at in range(len(examples)) if at not in failed]
        changed = [
            with_note(examples[at], TEXTS[self.name].format(note=notes[at])) if at in notes else examples[at]
            for at in asked
        ]
        said = dict(zip(asked, self.inner.generate(changed, [clips[at] for at in asked]) if asked else [], strict=True))
        return [failed[at] if at in failed else said[at] for at in range(len(examples))]

    def _notes(self, examples: Sequence[Example], clips: Sequence[Any]) -> list[str]:
        if self.name == "measured":
            return [describe(measure(*self._channels(e, clip))) for e, clip in zip(examples, clips, strict=True)]
        if self.name == "self_report":
            return self.inner.generate([with_system(e, TEXTS["self_report_ask"]) for e in examples], clips)
        return [self._think(example, clip) for example, clip in zip(examples, clips, strict=True)]

    def _channels(self, example: Example, clip: Clip) -> tuple[Any, Any]:
        """c_0 and, where there is one, the beam, as the model gets them: under its condition, with its input."""
        heard = self.inner.hear(example, clip)
        audio = self.inner.waveforms(heard)
        c0_N, cx_N = audio if isinstance(audio, tuple) else (audio[self.inner.processor.array.reference], None)
        if heard.audio_MN.shape[0] == 1 and heard.beam_N is None:
            cx_N = None
        if self.inner.input == "silence":
            c0_N, cx_N = torch.zeros_like(c0_N), None if cx_N is None else torch.zeros_like(cx_N)
        return c0_N.numpy(), None if cx_N is None else cx_N.numpy()

    def _think(self, example: Example, clip: Clip) -> str:
        """One thought after each further piece of the recording, the last piece left to the answer itself."""
        step = round(self.chunk_seconds * SAMPLE_RATE)
        ends = list(range(step, clip.audio_MN.shape[1], step))
        asked = with_system(example, TEXTS["chunked_ask"])
        thoughts = []
        for end in ends:
            piece = Clip(clip.audio_MN[:, :end], None if clip.beam_N is None else clip.beam_N[:end])
            (thought,) = self.inner.generate([asked], [piece])
            if getattr(thought, "error", ""):
                return thought
            thoughts.append(thought)
        return " ".join(thoughts) or "(none)"


def with_note(example: Example, note: str) -> Example:
    """The example with a line behind its system prompt (or a system turn of its own)."""
    system, rest = _system(example)
    return replace(example, messages=[{"role": "system", "content": f"{system}\n{note}".strip()}, *rest])


def with_system(example: Example, text: str) -> Example:
    """The example with another system prompt."""
    return replace(example, messages=[{"role": "system", "content": text}, *_system(example)[1]])


def _system(example: Example) -> tuple[str, list[dict[str, Any]]]:
    first = example.messages[0]
    if first["role"] == "system":
        return str(first["content"]), list(example.messages[1:])
    return "", list(example.messages)
