"""This project's prompts, all of them, and the one function that turns them into chat messages.

Benchmarks bring their own prompts with their rows (WearVox's ``text_prompt``): those pass through
:func:`messages_from_text_prompt` untouched.  Where a prompt is ours it is one of :data:`PROMPTS`, in two styles:
``full`` for real decoders, ``compact`` for the demo scale, where every prompt token costs as much as a token of speech.
``prompts=FILE`` (YAML or JSON of the same keys) replaces any of them, and :meth:`PromptSet.prompt_hash` goes into
every result.

One rule keeps scores honest: the assistant's prompt is the same for requests, side-talk and self-talk, so that nothing
but the sound tells them apart.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import yaml

from wearllama.data.tools import ToolSpec, tools_json

Message = dict[str, Any]
PromptStyle = Literal["full", "compact"]

AUDIO_CONTENT: list[dict[str, str]] = [{"type": "audio"}]
"""Content of a turn that is sound; the processor puts the clip's placeholders in its place."""

PROMPTS: dict[str, dict[str, str]] = {
    "full": {
        "wearvox": (
            "You are the voice assistant inside a pair of smart glasses. The microphones hear the person who wears the "
            "glasses, the people around, and noise. Only the wearer may instruct you, and only when speaking to you.\n"
            "- If the wearer asks for something a tool can do, reply with the call and nothing else: "
            '<|TOOL|>[{{"name": "tool", "parameters": {{"argument": "value"}}}}]</|TOOL|>\n'
            "- If the wearer asks a question, answer it in one short sentence.\n"
            "- If the speech is meant for someone else, or comes from someone else, or there is none, reply [Mute].\n"
            "Tools: {tools}{info}"
        ),
        "vgbench": (
            "You are the voice assistant inside a pair of smart glasses and can take actions that matter. Act only on "
            "what the wearer says to you. Speech of another person, or of the wearer to another person or to nobody "
            "is not for you.\n"
            "Reply with exactly one of three things:\n"
            '- one tool call as a bare JSON object: {{"name": "tool", "params": {{"argument": "value"}}}}\n'
            "- a short answer in plain words, where the wearer asks you something that needs no tool;\n"
            "- [Mute], when you are not the one addressed.\n"
            "Tools: {tools}{info}"
        ),
        "asr": "Write down, word for word, what is said in the recording, with case and punctuation.{info}",
        "info": "\nInfo: {info}",
        "reference": "Answer from these search results:\n{reference}",
    },
    "compact": {
        "wearvox": "Wearer asks: answer or call. Else [Mute]. {tools}{info}",
        "vgbench": "Wearer asks: answer or act. Else [Mute]. {tools}{info}",
        "asr": "Transcribe.{info}",
        "info": " {info}",
        "reference": "{reference}",
    },
}
"""Every prompt of this project, by style and key; ``{tools}``, ``{info}`` and ``{reference}`` are filled in."""

_FIELDS: dict[str, frozenset[str]] = {
    "wearvox": frozenset({"tools", "info"}),
    "vgbench": frozenset({"tools", "info"}),
    "asr": frozenset({"tools", "info"}),
    "info": frozenset({"info"}),
    "reference": frozenset({"reference"}),
}


@dataclass(frozen=True, kw_only=True)
class PromptSet:
    """The prompts in effect: a style, with a user's replacements."""

    style: PromptStyle = "full"
    """``full`` spells out the rules and the tools' specifications; ``compact`` names the tools only."""
    texts: Mapping[str, str] = field(default_factory=dict)
    """Replacements by key; every other key keeps the style's text."""
    source: str = ""
    """File the replacements came from, for messages."""

    def __post_init__(self) -> None:
        if self.style not in get_args(PromptStyle):
            raise ValueError(f"prompt style {self.style!r}, wanted one of {get_args(PromptStyle)}")
        unknown = sorted(set(self.texts) - set(_FIELDS))
        if unknown:
            raise ValueError(f"{self.source or 'prompts'}: unknown prompt {unknown}, wanted some of {sorted(_FIELDS)}")
        for key, text in self.texts.items():
            if not isinstance(text, str):
                raise ValueError(f"{self.source or 'prompts'}: {key} is {type(text).__name__}, wanted text")
            self._fill(key, **dict.fromkeys(_FIELDS[key], ""))

    def text(self, key: str) -> str:
        """The template in effect under ``key``."""
        return self.texts[key] if key in self.texts else PROMPTS[self.style][key]

    def system(self, kind: str, tools: Sequence[ToolSpec] = (), *, info: str = "") -> str:
        """A system prompt: ``kind`` is ``wearvox``, ``vgbench`` (their dialects) or ``asr``."""
        listed = " ".join(spec.name for spec in tools)
        if self.style == "full":
            listed = tools_json(tools, "vgbench" if kind == "vgbench" else "wearvox") if tools else "none"
        info = self._fill("info", info=info) if info else ""
        return self._fill(kind, tools=listed, info=info).strip()

    def reference(self, text: str) -> str:
        """The user turn that carries search results ahead of a grounded question."""
        return self._fill("reference", reference=text)

    def prompt_hash(self) -> str:
        """16 hexadecimal digits that change with any prompt in effect."""
        return content_hash({"style": self.style, "texts": {key: self.text(key) for key in sorted(_FIELDS)}})

    def _fill(self, key: str, **values: str) -> str:
        if key not in _FIELDS:
            raise ValueError(f"no prompt {key!r}, wanted one of {sorted(_FIELDS)}")
        try:
            return self.text(key).format(**values)
        except (KeyError, IndexError, ValueError) as error:
            raise ValueError(
                f"{self.source or 'prompts'}: {key} cannot be filled in ({error!r}); it may use "
                f"{sorted(_FIELDS[key])}, and a literal brace is written twice"
            ) from None


def read_mapping(path: str | Path, *, what: str, entries: str) -> dict[str, Any]:
    """The mapping that a YAML or JSON file holds; ValueError names the file, what it should be and what was found."""
    file = Path(path)
    if not file.is_file():
        raise ValueError(f"no {what} at {file}")
    try:
        value = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"{file}: no YAML: {error}") from None
    if not isinstance(value, dict):
        raise ValueError(f"{file}: wanted a mapping of {entries}, found {type(value).__name__}")
    return value


def load_prompts(path: str | Path | None = None, *, style: PromptStyle = "full") -> PromptSet:
    """The style's prompts, with those of a YAML or JSON file in their place."""
    if path is None:
        return PromptSet(style=style)
    texts = read_mapping(path, what="prompts file", entries="prompt to text")
    return PromptSet(style=style, texts=texts, source=str(Path(path)))


def build_messages(
    *, system: str, history: Sequence[Message] = (), reference: str = "", user: str | None = None
) -> list[Message]:
    """Chat messages up to the model's turn: system, earlier turns, then the current turn as sound.

    Args:
        system: from :meth:`PromptSet.system`.
        history: earlier turns, ``{"role", "content"}``.
        reference: text turn ahead of the current one (grounded questions).
        user: words of the current turn, for text-only rows; None means that it is heard.
    """
    messages: list[Message] = [{"role": "system", "content": system}] if system else []
    messages += [dict(message) for message in history]
    if reference:
        messages.append({"role": "user", "content": reference})
    return [*messages, {"role": "user", "content": audio_content() if user is None else user}]


def audio_content() -> list[dict[str, str]]:
    """A fresh copy of :data:`AUDIO_CONTENT`."""
    return [dict(part) for part in AUDIO_CONTENT]


def messages_from_text_prompt(text_prompt: str | Sequence[Message]) -> list[Message]:
    """A benchmark row's own prompt (a string, or turns), with the current turn as sound where it has none yet."""
    if isinstance(text_prompt, str):
        return build_messages(system=text_prompt)
    for index, turn in enumerate(text_prompt):
        if not isinstance(turn, Mapping) or not {"role", "content"} <= set(turn):
            raise ValueError(f"text_prompt[{index}] is {turn!r}, wanted role and content")
    if has_audio(text_prompt):
        return [dict(turn) for turn in text_prompt]
    return build_messages(system="", history=text_prompt)


def has_audio(messages: Sequence[Message]) -> bool:
    """Whether a turn of the conversation is sound."""
    return any(
        isinstance(message["content"], list) and any(part.get("type") == "audio" for part in message["content"])
        for message in messages
    )


def prompt_hash(value: Any = None) -> str:
    """16 hexadecimal digits of what a model was told: a :class:`PromptSet`, messages, or by default all of ours."""
    if isinstance(value, PromptSet):
        return value.prompt_hash()
    return content_hash(PROMPTS if value is None else value)


def content_hash(value: Any) -> str:
    """16 hexadecimal digits of a JSON value."""
    text = json.dumps(value, ensure_ascii=False, sort_keys=True)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()[:16]
