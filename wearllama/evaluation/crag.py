"""Search results for WearVox's grounded questions, from a CRAG file that the user has.

A CRAG row has ``interaction_id``, ``query``, ``query_time`` and ``search_results`` (``page_name``, ``page_url``,
``page_snippet``, ``page_result``, ``page_last_modified``).  A question is joined by its interaction id, or else by its
words.
"""

import bz2
import gzip
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from wearllama.evaluation.scoring import normalise_answer

_OPENERS = {".bz2": bz2.open, ".gz": gzip.open}
_TAGS = re.compile(r"<(script|style)\b.*?</\1\s*>|<[^>]*>", re.DOTALL | re.IGNORECASE)


class SearchResults(NamedTuple):
    """One question's results as text, and when it was asked."""

    text: str
    query_time: str


class CragIndex:
    """Search results by interaction id and by words; two questions with the same words are joined by id only."""

    def __init__(self, path: str | Path, *, page_chars: int = 0) -> None:
        """``page_chars``: characters of each page's own text (HTML stripped) after its snippet; 0 for snippets only.

        Raises ValueError naming file and line.
        """
        self.path = Path(path)
        self._by_id: dict[str, SearchResults] = {}
        self._by_words: dict[str, SearchResults | None] = {}
        for row in _rows(self.path):
            found = SearchResults(
                format_results(row.get("search_results"), page_chars), str(row.get("query_time") or "")
            )
            if row.get("interaction_id") is not None:
                self._by_id[str(row["interaction_id"])] = found
            words = normalise_answer(str(row.get("query") or ""))
            if words:
                known = words in self._by_words and self._by_words[words] != found
                self._by_words[words] = None if known else found
        if not self._by_id and not self._by_words:
            raise ValueError(f"{self.path}: no row with interaction_id or query: not a CRAG file")

    def find(self, row: Mapping[str, Any]) -> SearchResults | None:
        """Results of a WearVox row; None where CRAG has none, or cannot tell which."""
        for name in ("interaction_id", "id"):
            if (found := self._by_id.get(str(row.get(name)))) is not None:
                return found
        for name in ("query", "gt_transcript"):
            if (
                isinstance(row.get(name), str)
                and (found := self._by_words.get(normalise_answer(row[name]))) is not None
            ):
                return found
        return None


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    if not path.is_file():
        raise ValueError(f"no CRAG file at {path}")
    opener: Any = _OPENERS.get(path.suffix, open)
    with opener(path, "rt", encoding="utf-8") as stream:
        try:
            for number, line in enumerate(stream, start=1):
                if line.strip():
                    try:
                        row = json.loads(line)
                    except (ValueError, RecursionError) as error:
                        raise ValueError(f"{path}, line {number}: no JSON: {error}") from None
                    if not isinstance(row, dict):
                        raise ValueError(f"{path}, line {number}: wanted an object")
                    yield row
        except (OSError, EOFError, UnicodeDecodeError) as error:
            raise ValueError(f"{path}: cannot be read: {error}") from None


def format_results(results: Any, page_chars: int = 0) -> str:
    """Search results as a numbered list; "" where there are none."""
    parts = []
    for number, page in enumerate(results if isinstance(results, list) else [], start=1):
        if not isinstance(page, Mapping):
            raise ValueError(f"search_results[{number - 1}] is {type(page).__name__}, wanted an object")
        lines = [f"[{number}] {_plain(page.get('page_name'))}"]
        if page.get("page_last_modified"):
            lines.append(f"last changed: {_plain(page['page_last_modified'])}")
        lines.append(_plain(page.get("page_snippet")))
        if page_chars:
            lines.append(_plain(page.get("page_result"))[:page_chars])
        parts.append("\n".join(line for line in lines if line))
    return "\n\n".join(parts)


def _plain(value: Any) -> str:
    return " ".join(_TAGS.sub(" ", str(value or "")).split())
