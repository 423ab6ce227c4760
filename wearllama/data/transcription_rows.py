"""Rows that ask for the words: recordings or recipes of other rows, with the prompt and the target of transcription."""

from collections.abc import Sequence
from dataclasses import replace

from wearllama.data.manifest import Example
from wearllama.data.prompts import PromptStyle, build_messages, load_prompts

TASK = "asr"


def ask_for_words(examples: Sequence[Example], *, style: PromptStyle) -> list[Example]:
    """The rows that have sound and ``metadata.transcript``, asked to write it down; the rest is left out.

    ``metadata.asked_as`` keeps the task that a row had. ValueError where no row is left.
    """
    messages = build_messages(system=load_prompts(style=style).system(TASK))
    asked = [
        replace(
            example,
            task=TASK,
            messages=messages,
            target=str(words),
            metadata={**example.metadata, "dialect": "wearvox", "asked_as": example.task},
        )
        for example in examples
        if example.audio is not None and (words := example.metadata.get("transcript"))
    ]
    if not asked:
        raise ValueError(f"none of {len(examples)} rows has both sound and a transcript (metadata.transcript)")
    return asked
