"""What words a text has, and whether a model wrote it in a loop: checks of labels and replies."""

import re
from collections.abc import Callable

from whisper_normalizer.basic import BasicTextNormalizer
from whisper_normalizer.english import EnglishTextNormalizer


def word_normaliser(language: str) -> Callable[[str], str]:
    """Whisper's normaliser without the signs it leaves behind: of "further..." it makes "further .", two words."""
    normalise = EnglishTextNormalizer() if language == "en" else BasicTextNormalizer()
    return lambda text: " ".join(word for word in normalise(text).split() if any(map(str.isalnum, word)))


def repeats_itself(text: str) -> bool:
    """Whether the text is of a decoder in a loop: the same two or more words twice running, or begun anew and cut off.

    "Wait here. I have to make a call. Wait here. I have to ma" is what the longest output leaves of a loop.
    """
    if re.search(r"\b(\w+\W+\w+(?:\W+\w+)*)\W+\1\b", text, re.IGNORECASE) is not None:
        return True
    words = re.findall(r"[\w']+", text.lower())
    said = " ".join(words)
    tails = (" ".join(words[start:]) for start in range(1, len(words) - 2))
    return any(said.startswith(tail) for tail in tails)
