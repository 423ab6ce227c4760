"""Side-talk's four-way label for free answers, by rule: whom did the model's words answer?

VGBench asks an LLM judge for one of four labels.  Without a judge this rule stands in, and results say so: it looks
for an accepted answer, or for content words that only one of the two utterances has.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

from wearllama.data.actions import Action
from wearllama.evaluation.scoring import contains_alias, content_words

Label = Literal["assistant-directed", "bystander-directed", "both", "neither"]
LABELS: tuple[Label, ...] = get_args(Label)


def label_action(action: Action, item: Mapping[str, Any]) -> Label:
    """Label an action on a side-talk item (a manifest row: segments, target_action, person_tool, answers, ...)."""
    if action.kind == "tool":
        names = {call.name for call in action.calls}
        mine = item["target_action"].get("name") in names
        theirs = item.get("person_tool") in names
    elif action.kind == "answer":
        mine, theirs = _answers_assistant(action.text, item), _answers_person(action.text, item)
    else:
        return "neither"
    if mine and theirs:
        return "both"
    return "assistant-directed" if mine else "bystander-directed" if theirs else "neither"


def _answers_assistant(text: str, item: Mapping[str, Any]) -> bool:
    aliases = item.get("answers") or ()
    if aliases:
        return contains_alias(text, aliases)
    return bool(set(content_words(text)) & _only_in(item["segments"], "assistant", "person"))


def _answers_person(text: str, item: Mapping[str, Any]) -> bool:
    keywords = {word for key in item.get("person_keywords") or () for word in content_words(key)}
    words = keywords or _only_in(item["segments"], "person", "assistant")
    aliases = {word for alias in item.get("answers") or () for word in content_words(alias)}
    return bool(set(content_words(text)) & (words - aliases))


def _only_in(segments: Sequence[Mapping[str, Any]], part: str, other: str) -> set[str]:
    """Content words of one utterance that the other one does not have."""
    words = {
        name: {w for s in segments if s["part"] == name for w in content_words(s["text"])} for name in (part, other)
    }
    return words[part] - words[other]
