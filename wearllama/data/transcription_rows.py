"""Rows that ask for the words: of clips of a speech manifest, or of other rows with a transcript."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tqdm import tqdm

from wearllama.audio.io import write_audio
from wearllama.data.manifest import Example, Renderer, example_seed
from wearllama.data.prompts import Message, PromptStyle, build_messages, load_prompts
from wearllama.data.speech_rows import safe_name
from wearllama.data.spoken_examples import SceneDefaults, Turn, spoken_example

TASK = "asr"


def asks_for_words(style: PromptStyle) -> list[Message]:
    """The chat of a transcription."""
    return build_messages(system=load_prompts(style=style).system(TASK))


def ask_for_words(examples: Sequence[Example], *, style: PromptStyle) -> list[Example]:
    """The rows that have sound and ``metadata.transcript``, asked to write it down; the rest is left out.

    ``metadata.asked_as`` keeps the task that a row had, and ids begin with ``asr-`` so that both may stand in one
    manifest. ValueError where no row is left.
    """
    messages = asks_for_words(style)
    asked = [
        replace(
            example,
            id=f"{TASK}-{example.id}",
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


def clip_row(
    row: Mapping[str, Any], *, style: PromptStyle, speech: Path, root: Path, scenes: SceneDefaults, split: str = "train"
) -> Example:
    """A clip of a speech manifest, said by the wearer, with its words as the target; paths relative to ``root``."""
    return spoken_example(
        f"{TASK}-{row['id']}", TASK, [Turn(row)], messages=asks_for_words(style), target=str(row["text"]),
        speech_root=speech, audio_root=root, defaults=scenes, source=str(row.get("source", speech.name)), split=split,
    )  # fmt: skip


def record(rows: Sequence[Example], root: Path, renderer: Renderer) -> list[Example]:
    """The rows with their recipes rendered once, into five-channel files below ``root``; files that stand are kept."""
    recorded = []
    for row in tqdm(rows, desc="record", unit="row"):
        assert row.audio is not None
        file = Path("wav_mc") / f"{safe_name(row.id)}.wav"
        if not (root / file).is_file():
            write_audio(root / file, renderer(row.audio["mixture"], example_seed(row.id)))
        recorded.append(replace(row, audio={"mc": str(file), "beam": None}))
    return recorded
