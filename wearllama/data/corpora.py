"""Speech corpora in the layouts they are published in, read into one kind of row.

- ``librispeech``: SPEAKER/CHAPTER/SPEAKER-CHAPTER.trans.txt beside SPEAKER-CHAPTER-NUMBER.flac (Panayotov et al. 2015)
- ``common_voice``: SPLIT.tsv with client_id, path, sentence, locale beside clips/ (Ardila et al. 2020)
- ``mls``: transcripts.txt of ID<tab>TEXT beside audio/SPEAKER/BOOK/ID.flac or .opus (Pratap et al. 2020)
- ``table``: a CSV, TSV or JSONL with a column of files
- ``folder``: audio files, each with a .txt of the same name or without words
"""

import csv
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

SUFFIXES = (".flac", ".wav", ".opus", ".ogg", ".mp3")
Layout = Literal["librispeech", "common_voice", "mls", "table", "folder"]


class Recording(NamedTuple):
    """One clip of a corpus."""

    id: str
    path: Path
    text: str | None
    """Transcript; None where there is none."""
    speaker: str
    language: str
    extra: dict[str, Any]
    """Further columns of a table."""


class Broken(NamedTuple):
    """What a corpus promises and does not have."""

    kind: str
    name: str
    why: str


Found = Iterator[Recording | Broken]


@dataclass(kw_only=True)
class CorpusSource:
    """Where a corpus is."""

    layout: Layout
    root: str
    """Folder of the layout; for ``table`` the file, its paths relative to it."""
    split: str = "train"
    """Of common_voice and mls."""
    language: str = "en"
    """Of layouts that do not tell."""
    several_channels: Literal["refuse", "first", "average"] = "refuse"
    """What to make of clips that are not mono."""
    columns: dict[str, str] | None = None
    """For ``table``: names of its columns for file, id, text, speaker, language where they differ from
    audio | file | path, id, text | sentence, speaker | voice, language | locale."""

    def __post_init__(self) -> None:
        if self.layout not in get_args(Layout):
            raise ValueError(f"layout is {self.layout!r}, wanted one of {get_args(Layout)}")
        unknown = sorted(set(self.columns or {}) - set(_COLUMNS))
        if unknown:
            raise ValueError(f"columns names {unknown}, wanted some of {sorted(_COLUMNS)}")


def read_source(source: CorpusSource) -> Found:
    """Every recording in a fixed order; ids that come twice and files that are not there are :class:`Broken`.

    Raises:
        ValueError: the layout's own files are missing or cannot be read.
    """
    readers: dict[str, Callable[[CorpusSource], Found]] = {
        "librispeech": _librispeech, "common_voice": _common_voice, "mls": _mls, "table": _table, "folder": _folder,
    }  # fmt: skip
    seen: set[str] = set()
    for found in readers[source.layout](source):
        if isinstance(found, Broken):
            yield found
        elif found.id in seen:
            yield Broken("duplicate id", found.id, f"{found.path} has an id that came before")
        else:
            seen.add(found.id)
            missing = not found.path.is_file()
            yield Broken("transcript without audio", found.id, f"no {found.path}") if missing else found


def _librispeech(source: CorpusSource) -> Found:
    files = sorted(Path(source.root).rglob("*.trans.txt"))
    if not files:
        raise ValueError(f"{source.root}: no *.trans.txt, wanted the layout of LibriSpeech")
    for file in files:
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
            name, _, text = line.partition(" ")
            if name.count("-") != 2 or not text.strip():
                yield Broken("broken line", f"{file}, line {number}", f"wanted ID TEXT, found {line[:80]!r}")
                continue
            path = file.with_name(f"{name}.flac")
            yield Recording(name, path, text.strip(), name.split("-")[0], source.language, {})


def _common_voice(source: CorpusSource) -> Found:
    table = Path(source.root) / f"{source.split}.tsv"
    for number, row in _rows(table, "\t"):
        if not row.get("path") or row.get("sentence") is None:
            yield Broken("broken line", f"{table}, line {number}", "wanted columns path and sentence")
            continue
        path = Path(source.root) / "clips" / row["path"]
        speaker, language = row.get("client_id") or "unknown", row.get("locale") or source.language
        yield Recording(Path(row["path"]).stem, path, row["sentence"].strip(), speaker, language, {})


def _mls(source: CorpusSource) -> Found:
    folder = Path(source.root) / source.split
    file = folder / "transcripts.txt"
    if not file.is_file():
        raise ValueError(f"no {file}, wanted the layout of Multilingual LibriSpeech")
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
        name, tab, text = line.partition("\t")
        parts = name.split("_")
        if not tab or len(parts) != 3:
            yield Broken(
                "broken line", f"{file}, line {number}", f"wanted SPEAKER_BOOK_NUMBER<tab>TEXT, found {line[:80]!r}"
            )
            continue
        base = folder / "audio" / parts[0] / parts[1] / name
        path = next(
            (base.with_suffix(end) for end in SUFFIXES if base.with_suffix(end).is_file()), base.with_suffix(".flac")
        )
        yield Recording(name, path, text.strip(), parts[0], source.language, {})


_COLUMNS = {
    "file": ("audio", "file", "path"), "id": ("id",), "text": ("text", "sentence", "transcript"),
    "speaker": ("speaker", "voice", "client_id"), "language": ("language", "locale"),
}  # fmt: skip


def _table(source: CorpusSource) -> Found:
    table = Path(source.root)
    names = source.columns or {}
    for number, row in _rows(table, {".csv": ",", ".tsv": "\t"}.get(table.suffix.lower())):
        values = {key: _first(row, (names[key],) if key in names else known) for key, known in _COLUMNS.items()}
        if not values["file"]:
            yield Broken("broken line", f"{table}, line {number}", f"no column for the file among {sorted(row)}")
            continue
        path = table.parent / str(values["file"])
        used = {name for key, known in _COLUMNS.items() for name in ((names[key],) if key in names else known)}
        extra = {key: value for key, value in row.items() if key not in used}
        yield Recording(
            str(values["id"] or Path(str(values["file"])).with_suffix("")), path, values["text"],
            str(values["speaker"] or "unknown"), str(values["language"] or source.language), extra,
        )  # fmt: skip


def _folder(source: CorpusSource) -> Found:
    root = Path(source.root)
    paths = [path for path in sorted(root.rglob("*")) if path.suffix.lower() in SUFFIXES]
    if not paths:
        raise ValueError(f"{root}: no audio file ({', '.join(SUFFIXES)}) in it")
    for path in paths:
        words = path.with_suffix(".txt")
        text = words.read_text(encoding="utf-8").strip() if words.is_file() else None
        relative = path.relative_to(root).with_suffix("")
        yield Recording("-".join(relative.parts), path, text, str(relative.parent), source.language, {})


def _rows(table: Path, delimiter: str | None) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Line numbers and rows of a CSV or TSV; of JSONL where ``delimiter`` is None."""
    if not table.is_file():
        raise ValueError(f"no table {table}")
    if delimiter is None:
        yield from read_objects(table)
        return
    with table.open(encoding="utf-8", newline="") as stream:
        # Common Voice's sentences hold quotation marks that close nothing.
        options: dict[str, Any] = {"quoting": csv.QUOTE_NONE} if delimiter == "\t" else {}
        reader = csv.DictReader(stream, delimiter=delimiter, **options)
        for row in reader:
            yield reader.line_num, row


def read_objects(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Line numbers and objects of a JSONL file; ValueError names the line that is none."""
    with path.open(encoding="utf-8") as stream:
        for number, line in enumerate(stream, start=1):
            try:
                row = json.loads(line)
            except json.JSONDecodeError as error:
                raise ValueError(f"{path}, line {number}: not JSON ({error})") from None
            if not isinstance(row, dict):
                raise ValueError(f"{path}, line {number}: wanted an object, found {type(row).__name__}")
            yield number, row


def _first(row: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    return next((row[name] for name in names if row.get(name) not in (None, "")), None)
