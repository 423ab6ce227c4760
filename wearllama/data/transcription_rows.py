"""Rows that ask for the words: of clips of a speech manifest, or of other rows with a transcript."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from tqdm import tqdm

from wearllama.audio.io import write_audio
from wearllama.data.actions import Call, format_action, tool
from wearllama.data.manifest import Example, Renderer, example_seed
from wearllama.data.prompts import Message, PromptStyle, build_messages, load_prompts
from wearllama.data.speech_rows import safe_name
from wearllama.data.spoken_examples import SceneDefaults, Turn, spoken_example
from wearllama.data.tools import WEARVOX_TOOLS, Parameter, ToolSpec

Ask = Literal["words", "note"]
"""What the reply shall be: the words that are said, or a call of :data:`NOTE` with them."""
TASKS: dict[Ask, str] = {"words": "asr", "note": "dictation"}
NOTE = ToolSpec(
    "create_note",
    "Keep what the wearer dictates.",
    (Parameter("text", "what is said, word for word, with case and punctuation", required=True),),
)
DICTATING = "The wearer dictates a note."
"""The assistant's prompt is that of requests; that a note is being dictated is told beside it."""


def chat(ask: Ask, style: PromptStyle) -> list[Message]:
    """The chat that asks for the words of a recording."""
    prompts = load_prompts(style=style)
    if ask == "words":
        return build_messages(system=prompts.system("asr"))
    return build_messages(system=prompts.system("wearvox", [*WEARVOX_TOOLS, NOTE], info=DICTATING))


def reply(ask: Ask, words: str) -> str:
    """The target that goes with it."""
    return words if ask == "words" else format_action(tool(Call(NOTE.name, {"text": words})), "wearvox")


def ask_for_words(examples: Sequence[Example], *, style: PromptStyle, ask: Ask = "words") -> list[Example]:
    """The rows that have sound and ``metadata.transcript``, asked to write it down; the rest is left out.

    ``metadata.asked_as`` keeps the task that a row had, and ids begin with the new task so that both may stand in one
    manifest. ValueError where no row is left.
    """
    messages, task = chat(ask, style), TASKS[ask]
    asked = [
        replace(
            example,
            id=f"{task}-{example.id}",
            task=task,
            messages=messages,
            target=reply(ask, str(words)),
            metadata={**example.metadata, "dialect": "wearvox", "asked_as": example.task},
        )
        for example in examples
        if example.audio is not None and (words := example.metadata.get("transcript"))
    ]
    if not asked:
        raise ValueError(f"none of {len(examples)} rows has both sound and a transcript (metadata.transcript)")
    return asked


def clip_row(
    row: Mapping[str, Any],
    *,
    style: PromptStyle,
    speech: Path,
    root: Path,
    scenes: SceneDefaults,
    split: str = "train",
    ask: Ask = "words",
) -> Example:
    """A clip of a speech manifest, said by the wearer, with its words as the target; paths relative to ``root``."""
    task = TASKS[ask]
    return spoken_example(
        f"{task}-{row['id']}", task, [Turn(row)], messages=chat(ask, style), target=reply(ask, str(row["text"])),
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
