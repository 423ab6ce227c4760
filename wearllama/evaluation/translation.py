"""Diarised translation turns, and the session score of the WearVox paper (arXiv 2601.02391, appendix 5.2).

The reference has lines ``speaker [start,end] words``, a model writes lines ``speakerN: words``; both hold translations,
so speaker 0's words are in speaker 1's language.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from wearllama.data.prompts import Message

_GOLD = re.compile(
    r"^\s*(?:speaker[\s_]*)?([01])\s*:?\s*\[\s*(\d+(?:\.\d+)?)\s*,\s*(\d+(?:\.\d+)?)\s*\]\s*:?\s*(.*?)\s*$",
    re.IGNORECASE,
)
_SAID = re.compile(r"^[\s*`_>#\-]*speaker[\s_]*([01])[\s*`_]*:[\s*_]*(.*?)[\s*`_]*$", re.IGNORECASE)
_LANGUAGE = r"speaker[\s_]*{speaker}\W+speaks\W+([A-Za-z]+)"


class Turn(NamedTuple):
    """One turn; a model's turns have no times."""

    speaker: int
    text: str
    start_s: float | None = None
    end_s: float | None = None

    def gold_line(self) -> str:
        """The reference's form."""
        return f"{self.speaker} [{self.start_s:g},{self.end_s:g}] {self.text}"

    def said_line(self) -> str:
        """The form a model is asked for."""
        return f"speaker{self.speaker}: {self.text}"


def gold_turns(ground_truth: Any) -> list[Turn]:
    """Turns of a reference: text with a turn a line, a list of such lines, or of objects; ValueError otherwise."""
    value = ground_truth
    if isinstance(value, str) and value.lstrip()[:1] == "[" and "\n" not in value.strip():
        try:
            value = json.loads(value)
        except ValueError:
            value = ground_truth
    if isinstance(value, str):
        value = [line for line in value.splitlines() if line.strip()]
    if not isinstance(value, list) or not value:
        raise ValueError(
            f"translation ground truth {str(ground_truth)[:80]!r}: wanted lines `speaker [start,end] words`"
        )
    return [_gold_turn(item) for item in value]


def _gold_turn(item: Any) -> Turn:
    if isinstance(item, str) and (match := _GOLD.match(item)):
        turn = Turn(int(match[1]), match[4], float(match[2]), float(match[3]))
    elif isinstance(item, Mapping):
        turn = _from_object(item)
    else:
        raise ValueError(f"translation turn {str(item)[:80]!r}: wanted `speaker [start,end] words`")
    assert turn.start_s is not None and turn.end_s is not None
    if turn.end_s < turn.start_s or not turn.text:
        raise ValueError(f"translation turn {str(item)[:80]!r}: it ends before it starts, or has no words")
    return turn


def _from_object(item: Mapping[str, Any]) -> Turn:
    speaker = item.get("speaker", item.get("speaker_id"))
    text = item.get("text", item.get("utterance", item.get("translation")))
    times = item.get("timestamp", [item.get("start"), item.get("end")])
    numbers = isinstance(times, list) and len(times) == 2 and all(type(t) in (int, float) for t in times)
    if str(speaker).lower().removeprefix("speaker") not in ("0", "1") or not isinstance(text, str) or not numbers:
        raise ValueError(f"translation turn {str(dict(item))[:80]}: wanted speaker 0 or 1, start, end and text")
    return Turn(int(str(speaker)[-1]), text.strip(), float(times[0]), float(times[1]))


def said_turns(text: str) -> list[Turn]:
    """Turns of a model's output. Lines before the first label are talk about the task; later ones continue a turn."""
    turns: list[Turn] = []
    for line in text.splitlines():
        if match := _SAID.match(line):
            turns.append(Turn(int(match[1]), match[2]))
        elif line.strip() and turns:
            last = turns[-1]
            turns[-1] = last._replace(text=f"{last.text} {line.strip()}".strip())
    return turns


def session_score(turn_scores: Sequence[float], predicted: int) -> float:
    """Sum of the reference turns' scores over the larger number of turns: what is missing or invented costs.

    Args:
        turn_scores: one score from 0 to 1 a reference turn.
        predicted: number of turns that the model wrote.
    """
    if not turn_scores or predicted < 0:
        raise ValueError(f"{len(turn_scores)} turn scores and {predicted} predicted turns, wanted at least one score")
    if not all(0 <= score <= 1 for score in turn_scores):
        raise ValueError(f"turn scores must lie in 0..1, found {list(turn_scores)}")
    return sum(turn_scores) / max(predicted, len(turn_scores))


def languages_of(messages: Sequence[Message]) -> tuple[str, str]:
    """What the two speakers speak, as the prompt tells; in words where it does not."""
    text = "\n".join(m["content"] for m in messages if isinstance(m["content"], str))
    found = [re.search(_LANGUAGE.format(speaker=speaker), text, re.IGNORECASE) for speaker in (0, 1)]
    names = [match[1] if match else f"the language of speaker {n}" for n, match in enumerate(found)]
    return names[0], names[1]
