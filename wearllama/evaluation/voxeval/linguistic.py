"""Five ways in which people do not say what is written; rules of ours, the same for the same text and seed anywhere.

The publication has a language model rewrite questions.  These rules need none, and leave every fact of a question as it
is: fillers, a mispronounced word, repeated words, a word that is taken back, the grammar of a learner.
"""

import random
import re
from collections.abc import Callable

from wearllama.evaluation.scoring import content_words

_FILLERS = ("um", "uh", "you know", "like", "well", "so", "hmm")
_SORRY = ("no, sorry", "I mean", "wait, no")
_SWAPS = (("th", "z"), ("v", "b"), ("w", "v"), ("r", "l"), ("i", "ee"), ("a", "ah"), ("o", "oo"), ("e", "ih"))
_ARTICLE = re.compile(r"\b(?:a|an|the) ", re.IGNORECASE)
_LEARNER = (
    (re.compile(r"\bdoes not\b"), "not"), (re.compile(r"\bdoesn't\b"), "not"), (re.compile(r"\bis\b"), "are"),
    (re.compile(r"\bhas\b"), "have"), (re.compile(r"\bwere\b"), "was"),
)  # fmt: skip


def fill(text: str, rng: random.Random, every: int) -> str:
    """A filler before about every ``every``-th word."""
    words = text.split(" ")
    return " ".join(
        f"{rng.choice(_FILLERS)}, {w}" if n and rng.random() < 1 / every else w for n, w in enumerate(words)
    )


def mispronounce(text: str, rng: random.Random, every: int) -> str:
    """About every ``every``-th long word spelt as somebody says it who has only read it."""

    def change(match: re.Match[str]) -> str:
        word = match.group()
        fitting = [(old, new) for old, new in _SWAPS if old in word[1:]]
        if not fitting or rng.random() >= 1 / every:
            return word
        old, new = rng.choice(fitting)
        return word[0] + word[1:].replace(old, new, 1)

    return re.sub(r"[A-Za-z]{6,}", change, text)


def stumble(text: str, rng: random.Random, every: int) -> str:
    """About every ``every``-th word said twice."""
    words = text.split(" ")
    return " ".join(f"{w.rstrip(',.;:?!')}, {w}" if w and rng.random() < 1 / every else w for w in words)


def correct_oneself(text: str, rng: random.Random, every: int) -> str:
    """Words of the question said in the wrong place and taken back, about one in ``every``, one at least."""
    words = text.split(" ")
    content = list(dict.fromkeys(content_words(text)))
    places = [n for n, word in enumerate(words) if word.strip(",.;:?!").lower() in content]
    if len(content) < 2 or not places:
        return text
    for n in rng.sample(places, max(1, len(places) // every)):
        own = words[n].strip(",.;:?!").lower()
        others = [word for word in content if word != own]
        words[n] = f"{rng.choice(others)}, {rng.choice(_SORRY)}, {words[n]}"
    return " ".join(words)


def speak_as_learner(text: str, rng: random.Random, every: int) -> str:
    """Articles dropped and verbs in the wrong form; each with the chance of 2 in ``every``, at most always."""
    share = min(1.0, 2 / every)

    def sometimes(pattern: re.Pattern[str], new: str, said: str) -> str:
        return pattern.sub(lambda match: new if rng.random() < share else match.group(), said)

    said = sometimes(_ARTICLE, "", text)
    for pattern, new in _LEARNER:
        said = sometimes(pattern, new, said)
    return said


STYLES: dict[str, Callable[[str, random.Random, int], str]] = {
    "filler_words": fill, "mispronunciation": mispronounce, "disfluency": stumble,
    "self_correction": correct_oneself, "non_native": speak_as_learner,
}  # fmt: skip
