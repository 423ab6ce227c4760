"""Prompts of WearVox rows: their own first, ours where a row has none, a user's file (``prompts=FILE``) before both.

A file is a YAML or JSON mapping of task to text; it may use the fields in :data:`FIELDS`, ``{original}`` being the
row's own system prompt.  Earlier turns of a conversation stay as they are.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wearllama.data.prompts import Message, content_hash, messages_from_text_prompt, read_mapping
from wearllama.data.tools import WEARVOX_TOOLS, tools_json

PROMPTS: dict[str, str] = {
    "closed_book": "You hear a question. Answer it in as few words as you can.",
    "grounding": (
        "You hear a question, asked at {query_time}. Answer it in as few words as you can. Search results follow; "
        "use them where they help.\n{search_results}"
    ),
    "live_translation": (
        "You hear a conversation of two people, speaker0 and speaker1, who speak different languages. Translate each "
        "turn into the other one's language. Write one line a turn, in order, and nothing else:\n"
        "speaker0: <translation>\nspeaker1: <translation>"
    ),
}
_ASSISTANT = (
    "You are the voice assistant inside a pair of smart glasses. The microphones hear the wearer, the people around, "
    "and noise. If the speech is not meant for you, reply [Mute]. If the wearer asks for something a tool can do, "
    "reply with the call and nothing else: "
    '<|TOOL|>[{{"name": "tool", "parameters": {{"argument": "value"}}}}]</|TOOL|>\n'
    "Otherwise answer in one short sentence.\nTools: {tools}"
)
PROMPTS["tool_call"] = PROMPTS["non-assistant-directed"] = _ASSISTANT  # one prompt: only the sound tells them apart
FIELDS = ("original", "query_time", "search_results", "tools")
PLACEHOLDERS = ("{search_results}", "{search_result}")
"""Where a row's own prompt wants its search results."""
_SAME = ("tool_call", "non-assistant-directed")


@dataclass(frozen=True, kw_only=True)
class WearVoxPrompts:
    """A user's prompts by task; a task without one keeps the row's own."""

    texts: Mapping[str, str] = field(default_factory=dict)
    source: str = "prompts"

    def __post_init__(self) -> None:
        unknown = sorted(set(map(str, self.texts)) - set(PROMPTS))
        if unknown:
            raise ValueError(f"{self.source}: unknown tasks {unknown}, wanted some of {sorted(PROMPTS)}")
        for task, text in self.texts.items():
            if not isinstance(text, str):
                raise ValueError(f"{self.source}: {task} is {type(text).__name__}, wanted text")
            self._fill(text, task, dict.fromkeys(FIELDS, ""))
        given = {task: self.texts.get(task) for task in _SAME}
        if len(set(given.values())) > 1:
            raise ValueError(f"{self.source}: {' and '.join(_SAME)} must share one prompt: only the sound may differ")

    def prompt_hash(self) -> str:
        """16 hexadecimal digits of what replaces or fills in."""
        return content_hash([dict(self.texts), PROMPTS])

    def messages(self, task: str, text_prompt: Any, results: str, query_time: str) -> list[Message]:
        """Chat messages up to the model's turn; search results go where the prompt wants them, or at its end."""
        own = messages_from_text_prompt(text_prompt) if text_prompt else []
        system = own[0]["content"] if own and own[0]["role"] == "system" else None
        if task in self.texts or system is None:
            values = {
                "original": system or "", "query_time": query_time or "an unknown time", "search_results": results,
                "tools": tools_json(WEARVOX_TOOLS, "wearvox"),
            }  # fmt: skip
            template = self.texts.get(task, PROMPTS[task])
            text = self._fill(template, task, values)
            if results and "{search_results}" not in template:
                text = f"{text}\n{results}"
            rest = own[1:] if system is not None else own
            return messages_from_text_prompt([{"role": "system", "content": text}, *rest])
        return [{**own[0], "content": place_results(system, results, query_time)}, *own[1:]]

    def _fill(self, template: str, task: str, values: Mapping[str, str]) -> str:
        try:
            return template.format_map(values)
        except (KeyError, IndexError, ValueError, AttributeError) as error:
            raise ValueError(
                f"{self.source}: {task} cannot be filled in ({error!r}); it may use {list(FIELDS)}, and a literal "
                "brace is written twice"
            ) from None


def place_results(system: str, results: str, query_time: str) -> str:
    """A row's own prompt with its search results; untouched where there are none."""
    if not results:
        return system
    for placeholder in PLACEHOLDERS:
        if placeholder in system:
            return system.replace(placeholder, results).replace("{query_time}", query_time)
    return f"{system}\n{results}"


def load_wearvox_prompts(path: str | Path | None) -> WearVoxPrompts:
    """A user's prompts, or none."""
    if path is None:
        return WearVoxPrompts()
    texts = read_mapping(path, what="prompts file", entries="task to text")
    return WearVoxPrompts(texts=texts, source=str(Path(path)))
