"""Transcripts as CTC symbols: lower-cased letters, and word pieces trained on the corpus itself.

Symbol 0 is the CTC blank in both alphabets.
"""

import re
from collections.abc import Iterable
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from wearllama.atomic import replacing

BLANK = "<blank>"
ALPHABET = " 'abcdefghijklmnopqrstuvwxyz"
NUM_CHARS = len(ALPHABET) + 1


def has_digits(text: str) -> bool:
    """Whether numbers are left that have no one reading."""
    return re.search(r"\d", text) is not None


def spoken_form(text: str) -> str:
    """Lower case, letters, apostrophes and single spaces only; ValueError on digits, which have no one reading."""
    text = text.lower().replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")
    if has_digits(text):
        raise ValueError(f"transcript {text!r} holds digits: write numbers as they are spoken")
    return re.sub(r"[^a-z']+", " ", text).strip()


def char_ids(spoken: str) -> list[int]:
    return [ALPHABET.index(char) + 1 for char in spoken]


class WordPieces:
    """Byte-pair pieces over the spoken form; frequent words become one piece."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    @classmethod
    def train(cls, texts: Iterable[str], size: int) -> "WordPieces":
        """Learn ``size`` pieces (blank included) from transcripts."""
        tokenizer = Tokenizer(models.BPE(unk_token=None))
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
        tokenizer.decoder = decoders.Metaspace()
        trainer = trainers.BpeTrainer(
            vocab_size=size, special_tokens=[BLANK], initial_alphabet=list(ALPHABET.strip()), show_progress=False
        )
        tokenizer.train_from_iterator((spoken_form(text) for text in texts), trainer)
        assert tokenizer.token_to_id(BLANK) == 0
        return cls(tokenizer)

    @classmethod
    def load(cls, path: Path) -> "WordPieces":
        if not path.is_file():
            raise ValueError(f"{path}: no word pieces here, wanted the file that the encoder was pre-trained with")
        return cls(Tokenizer.from_file(str(path)))

    def save(self, path: Path) -> None:
        with replacing(path) as temporary:
            self._tokenizer.save(str(temporary))

    @property
    def size(self) -> int:
        return self._tokenizer.get_vocab_size()

    def texts(self) -> list[str]:
        """What each symbol stands for, with a space before those that begin a word; nothing for the blank."""
        found = sorted(self._tokenizer.get_vocab().items(), key=lambda entry: entry[1])
        return ["" if piece == BLANK else piece.replace("\u2581", " ") for piece, _ in found]

    def encode(self, spoken: str) -> list[int]:
        return self._tokenizer.encode(spoken).ids

    def decode(self, ids: list[int]) -> str:
        return self._tokenizer.decode(ids).strip()
