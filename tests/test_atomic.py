"""Files that appear whole or not at all."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from wearllama.atomic import replacing, write_json, write_text


def test_the_file_appears_at_the_end_in_a_folder_that_is_made(tmp_path: Path) -> None:
    path = tmp_path / "new" / "deep" / "a.wav"
    with replacing(path) as temporary:
        temporary.write_bytes(b"whole")
        assert not path.exists()
        assert temporary.parent == path.parent and temporary.name.startswith(".") and temporary.suffix == ".tmp"
    assert path.read_bytes() == b"whole"
    assert os.listdir(path.parent) == ["a.wav"]


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(KeyboardInterrupt), replacing(path) as temporary:
        temporary.write_text("half")
        raise KeyboardInterrupt
    with pytest.raises(TypeError):
        write_json(path, {"a": object()})
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["a.txt"]


def test_a_body_that_writes_nothing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"a\.txt"), replacing(tmp_path / "a.txt"):
        pass


def test_writers_of_one_file_do_not_meet(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    with replacing(path) as first, replacing(path) as second:
        assert first != second
        first.write_text("first")
        second.write_text("second")
    assert path.read_text() == "first"  # the outer one ends last
    texts = [str(number) * 50_000 for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write_text, [path] * 8, texts))
    assert path.read_text() in texts and os.listdir(tmp_path) == ["a.txt"]


def test_permissions_follow_the_umask(tmp_path: Path) -> None:
    """Not those of mkstemp, whose files nobody else can read."""
    write_text(tmp_path / "ours", "x")
    (tmp_path / "plain").write_text("x")
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_json_bytes(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"word": "größer", "list": [1]})
    assert (tmp_path / "a.json").read_bytes() == '{\n "word": "größer",\n "list": [\n  1\n ]\n}\n'.encode()
    write_json(tmp_path / "a.json", {"word": "ö"}, indent=2, ensure_ascii=True)
    assert (tmp_path / "a.json").read_bytes() == b'{\n  "word": "\\u00f6"\n}\n'
