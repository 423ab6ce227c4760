"""Files that appear whole or not at all, whatever kills the writer and however many processes write the same one."""

import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """A temporary name beside ``path`` to write under; the finished file takes ``path``'s place.

    The parent folder is made. Where the body raises, the temporary file is removed and an older ``path`` stays as it
    was. The name is hidden, ends in ``.tmp`` (so that no search by suffix finds it) and is another in every call.

    Raises:
        FileNotFoundError: the body wrote nothing.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: str | Path, text: str) -> None:
    """Write text as UTF-8."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: str | Path, value: Any, *, indent: int = 1, ensure_ascii: bool = False) -> None:
    """Write indented JSON and a last newline; ``ensure_ascii`` escapes all other characters.

    Raises:
        TypeError: ``value`` holds what JSON has no word for.
    """
    write_text(path, json.dumps(value, indent=indent, ensure_ascii=ensure_ascii) + "\n")
