"""Which option a reply chooses: fixed rules, no guess. What they cannot read is wrong, and counted as unparsable.

Replies may come through a recogniser, so that letters can be spelt as words (``see`` for C) and brackets be missing.
Such spellings count only right after words that announce an answer; a bare ``be`` in a sentence is no option.
"""

import re
from collections.abc import Sequence

from wearllama.evaluation.scoring import normalise_answer
from wearllama.evaluation.voxeval.layout import LETTERS

_SPELT = {
    "a": "A", "ay": "A", "eh": "A", "alpha": "A", "b": "B", "be": "B", "bee": "B", "bravo": "B", "c": "C", "see": "C",
    "sea": "C", "charlie": "C", "d": "D", "dee": "D", "delta": "D",
}  # fmt: skip
_ANNOUNCED = re.compile(
    r"\b(?:answer|(?:i|would|will)\s+(?:choose|pick|select|go with))\b"
    r"(?:\s*(?:is|was|would be|must be|should be|:|-|,|the|option|choice|letter|answer|thus|to this question))*"
    r"\s*[:\-]?\s*[\"'(\[*]*(?P<letter>[A-Za-z]+)\b(?P<next>\s+[a-z]+)?",
    re.IGNORECASE,
)
_NAMED = re.compile(r"\b(?:option|choice|letter)\s+(?P<letter>[A-D])\b", re.IGNORECASE)
_BARE = re.compile(r"^[\s\"'(\[*]*(?P<letter>[A-Da-d])(?:[\s\"')\]*]*$|[.):,\]]|\s+-)")
_LISTED = re.compile(r"^\s*\(?(?P<letter>[A-D])[.):]", re.MULTILINE)
_BRACKETED = re.compile(r"\((?P<letter>[A-D])\)")
_ANSWER_CUE = re.compile(r"\b(?:answer|therefore|thus|hence)\b", re.IGNORECASE)


def extract(reply: str, options: Sequence[str]) -> str | None:
    """The option that a whole reply chooses, or None.

    In order: the last letter that is announced as the answer; the letter that the reply begins with, unless it lists
    several; the one letter that is named ("option B") or bracketed; the one option whose text stands in the reply.
    Several candidates of one rule are none, so that a reply that only repeats the options chooses nothing.
    """
    announced = _announced(reply)
    if announced:
        return announced[-1]
    match = _BARE.match(reply)
    if match and len(set(_LISTED.findall(reply))) < 2:
        return match.group("letter").upper()
    for pattern in (_NAMED, _BRACKETED):
        letters = {letter.upper() for letter in pattern.findall(reply)}
        if letters:
            return letters.pop() if len(letters) == 1 else None
    return _by_text(reply, options)


def extract_final(reply: str, options: Sequence[str]) -> str | None:
    """The option that the reply's last segment chooses: from its last announcing word on, else its last sentence."""
    cues = list(_ANSWER_CUE.finditer(reply))
    if cues:
        return extract(reply[cues[-1].start() :], options)
    sentences = [part for part in re.split(r"(?<=[.!?])\s+|\n+", reply.strip()) if part.strip()]
    return extract(sentences[-1], options) if sentences else None


def _announced(reply: str) -> list[str]:
    found = []
    for match in _ANNOUNCED.finditer(reply):
        word, follower = match.group("letter"), (match.group("next") or "").strip()
        letter = _SPELT.get(word.lower())
        # "the answer is a number": an article, unless it stands alone or is written as a letter.
        if letter == "A" and word == "a" and follower:
            continue
        # "the answer is be careful": words count as letters only where nothing goes on in lower case.
        if letter is not None and len(word) > 1 and follower:
            continue
        if letter is not None:
            found.append(letter)
    return found


def _by_text(reply: str, options: Sequence[str]) -> str | None:
    said = f" {normalise_answer(reply)} "
    texts = [normalise_answer(option) for option in options]
    held = [i for i, text in enumerate(texts) if text and f" {text} " in said]
    # An option inside a longer one that is also there ("red" in "dark red") does not count.
    longest = [i for i in held if not any(i != j and f" {texts[i]} " in f" {texts[j]} " for j in held)]
    return LETTERS[longest[0]] if len(longest) == 1 else None
