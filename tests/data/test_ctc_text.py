"""Transcripts as CTC symbols."""

from pathlib import Path

import pytest

from wearllama.data.ctc_text import ALPHABET, NUM_CHARS, WordPieces, char_ids, spoken_form

TEXTS = ["Turn on the radio, please!", "What's the weather like?", "the the the radio radio weather"]


def test_spoken_form() -> None:
    assert spoken_form("  What\N{RIGHT SINGLE QUOTATION MARK}s — the WEATHER like?! ") == "what's the weather like"
    with pytest.raises(ValueError, match="digits"):
        spoken_form("wake me at 7")


def test_char_ids_avoid_the_blank() -> None:
    ids = char_ids("it's on")
    assert min(ids) >= 1 and max(ids) < NUM_CHARS
    assert "".join(ALPHABET[i - 1] for i in ids) == "it's on"


def test_pieces_round_trip_and_persist(tmp_path: Path) -> None:
    pieces = WordPieces.train(TEXTS, 60)
    pieces.save(tmp_path / "pieces.json")
    again = WordPieces.load(tmp_path / "pieces.json")
    for text in [*TEXTS, "a word unseen"]:
        ids = again.encode(spoken_form(text))
        assert 0 not in ids and ids == pieces.encode(spoken_form(text))
        assert again.decode(ids) == spoken_form(text)
    assert len(pieces.encode("the radio")) == 2


def test_missing_pieces(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no word pieces"):
        WordPieces.load(tmp_path / "absent.json")
