"""The prediction log (contract 8): append-only JSONL, one file a rank, read as one.

A prediction is reused only under the same key: example id, hash of the messages, stamp of its audio, model and weights,
and generation settings.  A changed prompt, limit, recording or checkpoint therefore never finds an old output.
"""

import hashlib
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from wearllama.data.actions import Action, parse_action
from wearllama.data.manifest import Example
from wearllama.data.prompts import content_hash
from wearllama.evaluation.append_log import append_lines, read_lines

SCHEMA = 1
_STAMP_BYTES = 1 << 16


@dataclass(kw_only=True)
class Prediction:
    """One line of the log."""

    id: str
    key: str
    """What must be equal for the line to be reused; see :func:`prediction_key`."""
    task: str
    model: Mapping[str, str]
    """The adapter's identity: name, hash of the weights, kind of input."""
    prompt_hash: str
    generation: Mapping[str, Any]
    raw: str
    """The output as it came, special tokens of the action contract included."""
    action: Mapping[str, Any]
    """``Action.to_dict()`` at the time of writing; scoring parses ``raw`` again."""
    latency: Mapping[str, float] = field(default_factory=dict)
    """Seconds: ``batch_s`` (whole batch), ``ttft_s`` (alone; only for the sample that was timed)."""
    error: str = ""
    """Why there is no output, where the run was told to go on."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """What else the adapter tells (:class:`wearllama.evaluation.output.Output`): truncation, tokens, transcript."""
    rank: int = 0
    time: float = field(default_factory=time.time)
    schema: int = SCHEMA


def prompt_hash_of(example: Example) -> str:
    """16 hexadecimal digits of the messages that the model sees."""
    return content_hash(example.messages)


def prediction_key(
    example: Example, model: Mapping[str, str], generation: Mapping[str, Any], root: str | Path | None
) -> str:
    """Key under which a prediction may be reused."""
    return content_hash({
        "id": example.id, "prompt": prompt_hash_of(example), "audio": audio_stamp(example, root),
        "model": dict(model), "generation": dict(generation), "schema": SCHEMA,
    })  # fmt: skip


def audio_stamp(example: Example, root: str | Path | None) -> str:
    """Digest of the recording: sizes, heads and tails of its files (cheap on 59 GB), or the recipe; "" for text."""
    if example.audio is None:
        return ""
    if "mixture" in example.audio:
        return content_hash(example.audio["mixture"])
    digest = hashlib.sha256()
    for name in ("mc", "beam"):
        if path := example.audio.get(name):
            _stamp_file(Path(root or ".") / path, digest)
    return digest.hexdigest()[:16]


def _stamp_file(path: Path, digest: Any) -> None:
    size = path.stat().st_size
    digest.update(str(size).encode())
    with path.open("rb") as stream:
        digest.update(stream.read(_STAMP_BYTES))
        if size > 2 * _STAMP_BYTES:
            stream.seek(-_STAMP_BYTES, os.SEEK_END)
            digest.update(stream.read(_STAMP_BYTES))


class PredictionLog:
    """Writer of one rank's file; every append is flushed to the disk before it returns."""

    def __init__(self, folder: str | Path, rank: int = 0) -> None:
        self.path = Path(folder) / f"predictions-{rank:05d}.jsonl"
        self.path.parent.mkdir(parents=True, exist_ok=True)

    def append(self, predictions: Sequence[Prediction]) -> None:
        """Add lines; a line torn by an earlier kill is closed off first, so that it cannot swallow ours."""
        append_lines(self.path, [_row(item) for item in predictions])


def _row(prediction: Prediction) -> dict[str, Any]:
    """The line's fields; ``extra`` only where there is any, as logs had it before it existed."""
    fields = asdict(prediction)
    return fields if fields["extra"] else {name: value for name, value in fields.items() if name != "extra"}


def read_log(folder: str | Path) -> dict[str, Prediction]:
    """All predictions of a run folder by key, whatever ranks wrote them.

    The first of a repeated key counts, unless it is a failure and a later one an output: what failed was asked again.
    Torn lines are skipped: a torn write is an item that was never predicted.
    """
    found: dict[str, Prediction] = {}
    for prediction in _iter_log(Path(folder)):
        first = found.setdefault(prediction.key, prediction)
        if first.error and not prediction.error:
            found[prediction.key] = prediction
    return found


def _iter_log(folder: Path) -> Iterator[Prediction]:
    names = set(Prediction.__dataclass_fields__)
    for path in sorted(folder.glob("predictions-*.jsonl")):
        for fields in read_lines(path):
            if fields.get("schema") == SCHEMA and names - {"extra"} <= set(fields) <= names:
                yield Prediction(**fields)


def collect(examples: Sequence[Example], keys: Sequence[str], folder: str | Path) -> list[Prediction]:
    """The predictions of exactly these examples, in order; ValueError where some are missing."""
    log = read_log(folder)
    missing = [example.id for example, key in zip(examples, keys, strict=True) if key not in log]
    if missing:
        raise ValueError(f"{folder}: no prediction for {len(missing)} of {len(examples)} items, first {missing[:3]}")
    return [log[key] for key in keys]


def as_action(prediction: Prediction, dialect: str) -> Action:
    """The output parsed again; an item that failed is malformed."""
    if prediction.error:
        return Action("malformed", text=prediction.raw, reason=prediction.error)
    return parse_action(prediction.raw, dialect)  # type: ignore[arg-type]


def unique_ids(examples: Iterable[Example]) -> None:
    """ValueError if an id stands twice."""
    seen: set[str] = set()
    for example in examples:
        if example.id in seen:
            raise ValueError(f"id {example.id!r} is given twice")
        seen.add(example.id)
