"""Examples (contract 7): one JSONL schema for training and evaluation.

A line is one object::

    {"id": "tool-0001", "task": "tool_call", "split": "train",
     "messages": [{"role": "system", "content": "..."}, {"role": "user", "content": [{"type": "audio"}]}],
     "audio": {"mixture": {...}} | {"mc": "wav_mc/a.wav", "beam": "wav/b.wav" | null} | null,
     "target": "[Mute]", "metadata": {"dialect": "wearvox", ...}}

``messages`` end before the model's turn; ``target`` is that turn (``wearllama.data.actions.format_action`` writes it).
Paths are relative to the manifest's root.  Metadata that the code here knows: ``dialect`` (``wearvox`` if absent),
``seconds`` (duration of the sound, for bucketing), ``voice``, ``room``, ``template`` (what splits are disjoint in).
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor
from tqdm import tqdm

from wearllama.atomic import replacing
from wearllama.audio.io import read_audio
from wearllama.data.prompts import Message, has_audio

ROLES = ("system", "user", "assistant")
_FIELDS = ("id", "task", "split", "messages", "audio", "target", "metadata")
_REQUIRED = ("id", "task", "split", "messages", "target")


@dataclass(kw_only=True)
class Example:
    """One row of a manifest; ValueError names the field that is wrong."""

    id: str
    """Unique in its manifest."""
    task: str
    """What is scored: ``tool_call``, ``non-assistant-directed``, ``closed_book``, ``speaker_switch``, ``asr``, ..."""
    split: str
    """``train``, ``validation`` or ``test``."""
    messages: list[Message]
    """Chat turns up to the model's; sound is the content ``[{"type": "audio"}]``, once at most."""
    target: str
    """What the model should say."""
    audio: dict[str, Any] | None = None
    """``{"mixture": recipe}``, ``{"mc": path, "beam": path or None}``, or None for text only."""
    metadata: dict[str, Any] = field(default_factory=dict)
    """Anything else, JSON only."""

    def __post_init__(self) -> None:
        for name in ("id", "task", "split", "target"):
            value = getattr(self, name)
            if not isinstance(value, str) or (name != "target" and not value):
                raise ValueError(f"{name} is {value!r}, wanted text")
        if not isinstance(self.metadata, dict):
            raise ValueError(f"metadata is {type(self.metadata).__name__}, wanted an object")
        _check_messages(self.messages)
        _check_audio(self.audio)
        if has_audio(self.messages) != (self.audio is not None):
            found, missing = ("audio", "turn of sound") if self.audio else ("a turn of sound", "audio")
            raise ValueError(f"messages and audio disagree: there is {found} and no {missing}")

    @property
    def dialect(self) -> str:
        """Dialect of the target: ``wearvox`` or ``vgbench``."""
        return str(self.metadata.get("dialect", "wearvox"))

    @property
    def seconds(self) -> float:
        """Duration of the sound as the metadata tells it; 0 for text-only rows and where it is not told."""
        return float(self.metadata.get("seconds", 0.0)) if self.audio else 0.0

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready, fields in the schema's order."""
        fields = asdict(self)
        return {name: fields[name] for name in _FIELDS}

    @staticmethod
    def from_dict(fields: Mapping[str, Any]) -> "Example":
        """Inverse of :meth:`to_dict`; unknown and missing fields are named."""
        if not isinstance(fields, Mapping):
            raise ValueError(f"wanted an object, found {type(fields).__name__}")
        unknown = sorted(set(fields) - set(_FIELDS))
        missing = [name for name in _REQUIRED if name not in fields]
        if unknown or missing:
            raise ValueError(f"unknown fields {unknown}, missing fields {missing}; wanted {list(_FIELDS)}")
        return Example(**fields)


class Clip(NamedTuple):
    """An example's sound: the raw array, and the recorded beam where one exists."""

    audio_MN: Tensor
    beam_N: Tensor | None


Renderer = Callable[[Mapping[str, Any], int], Tensor]
"""Turns a mixture recipe (JSON) and a seed into samples (M, N): the same pair gives the same samples anywhere."""


def example_seed(example_id: str, *, epoch: int = 0, repeat: int = 0, seed: int = 0) -> int:
    """63-bit seed of one rendering of one example: of its id and the run's seed alone, not of any worker or order."""
    key = json.dumps([seed, example_id, epoch, repeat])
    return int.from_bytes(hashlib.sha256(key.encode("utf-8")).digest()[:8], "big") >> 1


def seed_id(example: Example) -> str:
    """What seeds a row's renderings: both sides of a counterfactual pair share room, device, noise and augmentation."""
    return str(example.metadata.get("seed_id", example.id))


def read_manifest(path: str | Path) -> list[Example]:
    """All examples of a JSONL manifest; ValueError names file, line and what is wrong with it."""
    return list(iter_manifest(path))


def iter_manifest(path: str | Path) -> Iterator[Example]:
    """Examples one at a time; a repeated id is refused with both line numbers."""
    file = Path(path)
    if not file.is_file():
        raise ValueError(f"no manifest at {file}")
    lines: dict[str, int] = {}
    with file.open("rb") as stream:
        for number, raw in enumerate(stream, start=1):
            if not raw.strip():
                continue
            try:
                example = Example.from_dict(json.loads(raw.decode("utf-8")))
            except (ValueError, RecursionError) as error:  # bad UTF-8 and bad JSON are ValueErrors too
                raise ValueError(f"{file}, line {number}: {error}") from None
            if example.id in lines:
                raise ValueError(f"{file}, line {number}: id {example.id!r} stands on line {lines[example.id]} already")
            lines[example.id] = number
            yield example


def write_manifest(path: str | Path, examples: Iterable[Example], *, progress: bool = False) -> int:
    """Write a manifest as a whole or not at all; returns the number of rows. Repeated ids are refused."""
    file = Path(path)
    seen: set[str] = set()
    with replacing(file) as temporary, temporary.open("w", encoding="utf-8") as stream:
        for example in tqdm(examples, desc=file.name, unit="row", disable=not progress):
            if example.id in seen:
                raise ValueError(f"{file}: id {example.id!r} is given twice")
            seen.add(example.id)
            stream.write(json.dumps(example.to_dict(), ensure_ascii=False, allow_nan=False) + "\n")
    return len(seen)


def load_audio(
    example: Example,
    root: str | Path,
    renderer: Renderer | None = None,
    *,
    channels: int | None = None,
    seed: int | None = None,
) -> Clip | None:
    """The example's sound at 16 kHz: read from its files, or rendered from its recipe; None for text-only rows.

    Args:
        example: the row.
        root: folder its paths are relative to.
        renderer: needed for mixture recipes.
        channels: wanted number of microphones; a file with another number is an error of ``read_audio``.
        seed: of the rendering; by default the example's own (``example_seed(id)``).
    """
    if example.audio is None:
        return None
    if "mixture" in example.audio:
        if renderer is None:
            raise ValueError(f"example {example.id!r} is a mixture recipe, and no renderer was given")
        return Clip(renderer(example.audio["mixture"], example_seed(example.id) if seed is None else seed), None)
    audio_MN = read_audio(Path(root) / example.audio["mc"], channels=channels)
    beam = example.audio.get("beam")
    if beam is None:
        return Clip(audio_MN, None)
    beam_N = read_audio(Path(root) / beam, channels=1)[0]
    if beam_N.shape[0] != audio_MN.shape[1]:
        raise ValueError(
            f"example {example.id!r}: {beam} has {beam_N.shape[0]} samples, {example.audio['mc']} {audio_MN.shape[1]}; "
            "wanted the same number, the beam aligned with the array"
        )
    return Clip(audio_MN, beam_N)


def _check_messages(messages: Sequence[Message]) -> None:
    if not isinstance(messages, list) or not messages:
        raise ValueError("messages is empty or no list, wanted at least one turn")
    sounds = 0
    for index, message in enumerate(messages):
        if not isinstance(message, Mapping) or set(message) != {"role", "content"}:
            raise ValueError(f"messages[{index}] is {message!r}, wanted role and content")
        if message["role"] not in ROLES:
            raise ValueError(f"messages[{index}].role is {message['role']!r}, wanted one of {ROLES}")
        content = message["content"]
        if isinstance(content, str):
            continue
        if content != [{"type": "audio"}]:
            raise ValueError(f'messages[{index}].content is {content!r}, wanted text or [{{"type": "audio"}}]')
        sounds += 1
    if sounds > 1:
        raise ValueError(f"messages has {sounds} turns of sound, wanted one at most")
    if messages[-1]["role"] == "assistant":
        raise ValueError("messages ends with the assistant's turn, which belongs into target")


def _check_audio(audio: Any) -> None:
    if audio is None:
        return
    if not isinstance(audio, dict):
        raise ValueError(f"audio is {type(audio).__name__}, wanted an object or null")
    if set(audio) == {"mixture"}:
        if not isinstance(audio["mixture"], dict):
            raise ValueError("audio.mixture is no object")
        return
    if not {"mc"} <= set(audio) <= {"mc", "beam"}:
        raise ValueError(f"audio has keys {sorted(audio)}, wanted mixture, or mc and beam")
    if not isinstance(audio["mc"], str) or not isinstance(audio.get("beam"), str | None):
        raise ValueError(f"audio.mc and audio.beam are paths, found {audio}")
