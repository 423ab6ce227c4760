"""Append-only JSONL that survives kills: a line is whole or skipped, and a torn one never swallows its successor."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any


def append_lines(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Add rows and flush them to the disk; a line torn by an earlier kill is closed off first."""
    if not rows:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    with path.open("ab") as stream:
        if stream.tell() and not _ends_with_newline(path):
            stream.write(b"\n")
        stream.write(lines.encode("utf-8"))
        stream.flush()
        os.fsync(stream.fileno())


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Whole rows of a log, in order; none where there is no file."""
    if not path.is_file():
        return
    with path.open("rb") as stream:
        for raw in stream:
            try:
                row = json.loads(raw)
            except (ValueError, RecursionError):
                continue
            if isinstance(row, dict):
                yield row


def _ends_with_newline(path: Path) -> bool:
    with path.open("rb") as stream:
        stream.seek(-1, os.SEEK_END)
        return stream.read(1) == b"\n"
