"""Rows of several manifests in one: their paths under a common folder, so many of each."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from wearllama.data.manifest import Example


def spread(rows: Sequence[Example], most: int) -> list[Example]:
    """At most ``most`` rows, evenly from the whole list."""
    count = min(most, len(rows))
    return [rows[at * len(rows) // count] for at in range(count)]


def below(rows: Sequence[Example], folder: Path, root: Path) -> list[Example]:
    """The rows with paths relative to ``root``; ValueError where ``folder`` is not below it."""
    inner, outer = folder.resolve(), root.resolve()
    if not inner.is_relative_to(outer):
        raise ValueError(f"{folder} is not below {root}: give a root that holds the sound of all rows")
    prefix = inner.relative_to(outer).as_posix()
    if prefix == ".":
        return list(rows)
    return [replace(row, audio=_prefixed(row.audio, prefix)) for row in rows]


def _prefixed(audio: dict[str, Any] | None, prefix: str) -> dict[str, Any] | None:
    if audio is None:
        return None
    if "mixture" not in audio:
        return {name: None if path is None else f"{prefix}/{path}" for name, path in audio.items()}
    recipe = dict(audio["mixture"])
    for part in ("segments", "sidetalk"):
        recipe[part] = list(_with_prefix(recipe.get(part) or (), prefix))
    return {"mixture": recipe}


def _with_prefix(segments: Sequence[dict[str, Any]], prefix: str) -> Iterator[dict[str, Any]]:
    return ({**segment, "file": f"{prefix}/{segment['file']}"} for segment in segments)
