"""WearVox in its published layout (arXiv 2601.02391): the loader.

A folder holds ``data_public.json`` (rows), ``audio_metadata.json`` (joined on id; a row without metadata stays),
``wav/`` (mono, beamformed) and ``wav_mc/`` (the array).  What the publication leaves open is a setting of
:class:`WearVoxConfig`, asserted on load, so that a wrong guess is an error and never a silently wrong score.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from tqdm import tqdm

from wearllama.audio.io import AudioError, audio_info
from wearllama.audio.timebase import SAMPLE_RATE
from wearllama.data.actions import format_action, mute
from wearllama.data.manifest import Example
from wearllama.evaluation.crag import CragIndex
from wearllama.evaluation.scoring import answer_aliases, gold_calls
from wearllama.evaluation.translation import gold_turns, languages_of
from wearllama.evaluation.wearvox_prompts import WearVoxPrompts, load_wearvox_prompts

TURN_TASKS = ("closed_book", "grounding", "tool_call", "non-assistant-directed")
"""The turn-based tasks, as ``task`` spells them."""
TRANSLATION = "live_translation"
TASKS = (*TURN_TASKS, TRANSLATION)
TITLES = {
    "grounding": "search QA", "closed_book": "closed-book QA", "tool_call": "tool calling",
    "non-assistant-directed": "side-talk", TRANSLATION: "translation",
}  # fmt: skip
QA = ("closed_book", "grounding")
MAX_PROMPT_CHARS = 4_000_000
_FIELDS = ("id", "task", "text_prompt", "audio_query", "audio_query_mc", "ground_truth")


@dataclass(kw_only=True)
class WearVoxConfig:
    """What is read, and what the recordings must be."""

    tasks: tuple[str, ...] = TASKS
    """Tasks to evaluate."""
    sample_rate: int = SAMPLE_RATE
    """Rate of every file."""
    channels: int = 5
    """Channels of the files of ``wav_mc/``; channel 0 is taken for c_0."""
    beam: Literal["file", "design"] = "file"
    """c_x: the file of ``wav/``, or the model's own beam over the array."""
    limit: int | None = None
    """Only the first so many rows of each task."""
    crag: str | None = None
    """CRAG file (JSONL, also .bz2 or .gz) with the search results of the grounded questions."""
    crag_page_chars: int = 0
    """Characters of each page's own text beside its snippet."""
    prompts: str | None = None
    """YAML file of task to system prompt, in place of the rows' own."""
    on_error: Literal["error", "record"] = "error"
    """A row that cannot be used: stop, or leave it out, say why and count it."""

    def __post_init__(self) -> None:
        unknown = sorted(set(self.tasks) - set(TASKS))
        if unknown or not self.tasks:
            raise ValueError(f"tasks {list(self.tasks)}: unknown {unknown}, wanted some of {list(TASKS)}")
        if self.channels < 1 or (self.limit is not None and self.limit < 1) or self.crag_page_chars < 0:
            raise ValueError(f"channels {self.channels} and limit {self.limit} must be at least 1")
        if self.sample_rate != SAMPLE_RATE:
            raise ValueError(f"sample_rate is {self.sample_rate}: the models here take {SAMPLE_RATE} Hz; convert first")
        if self.on_error not in ("error", "record"):
            raise ValueError(f"on_error is {self.on_error!r}, wanted error or record")


@dataclass(kw_only=True)
class WearVoxData:
    """What a folder gave."""

    examples: list[Example] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    """Why rows were left out (``on_error=record``), one line a row."""
    without_results: list[str] = field(default_factory=list)
    """Grounded questions that the CRAG file does not hold."""

    def notes(self) -> dict[str, Any]:
        """For results.json and the report: counts, and the first reasons."""
        return {
            "rows_left_out": len(self.skipped), "left_out_because": self.skipped[:20],
            "grounded_without_search_results": len(self.without_results),
        }  # fmt: skip


def load_wearvox(folder: str | Path, config: WearVoxConfig, *, progress: bool = False) -> list[Example]:
    """The examples of :func:`read_wearvox`."""
    return read_wearvox(folder, config, progress=progress).examples


def read_wearvox(folder: str | Path, config: WearVoxConfig, *, progress: bool = False) -> WearVoxData:
    """Examples of the wanted tasks, every recording's header checked.

    The target is the ground truth as text; ``metadata`` keeps ground truth, transcript, duration and acoustics.
    Raises ValueError naming file, row and field; with ``on_error=record`` only for the folder as a whole.
    """
    root = Path(folder)
    path = root / "data_public.json"
    rows = _read_list(path)
    acoustics = _read_metadata(root / "audio_metadata.json", config)
    prompts = load_wearvox_prompts(config.prompts)
    crag = CragIndex(config.crag, page_chars=config.crag_page_chars) if config.crag else None
    found, taken, ids = WearVoxData(), Counter[str](), set[str]()
    for number, row in enumerate(tqdm(rows, desc="check recordings", unit="row", disable=not progress)):
        try:
            task = _check_row(row, ids)
            if task not in config.tasks or (config.limit is not None and taken[task] >= config.limit):
                continue
            example = _example(row, acoustics.get(str(row["id"])), root, config, prompts, crag, found)
        except ValueError as error:
            if config.on_error == "error" and isinstance(error, AudioError):
                raise
            reason = f"row {number} (id {_short(row)}): {error}"
            if config.on_error == "error":
                raise ValueError(f"{path}, {reason}") from None
            found.skipped.append(reason)
            continue
        taken[task] += 1
        found.examples.append(example)
    if not found.examples:
        why = f"; left out: {found.skipped[0]}" if found.skipped else ""
        present = dict(Counter(str(row.get("task"))[:40] for row in rows if isinstance(row, dict)))
        raise ValueError(f"{path}: no row of the tasks {list(config.tasks)}; it has {present}{why}")
    if crag is not None and len(found.without_results) == taken["grounding"] > 0:
        raise ValueError(
            f"{config.crag}: holds none of the {taken['grounding']} grounded questions: another CRAG file?"
        )
    return found


def _read_list(path: Path) -> list[Any]:
    if not path.is_file():
        raise ValueError(f"no {path}: a WearVox folder holds data_public.json, audio_metadata.json, wav/ and wav_mc/")
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: no JSON: {error}") from None
    if not isinstance(rows, list):
        raise ValueError(f"{path}: wanted one JSON list of objects, found {type(rows).__name__}")
    return rows


def _read_metadata(path: Path, config: WearVoxConfig) -> dict[str, dict[str, Any]]:
    """Acoustics by id; {} where the file is missing, since no score needs them."""
    acoustics = {}
    for number, row in enumerate(_read_list(path) if path.is_file() else []):
        inner = row.get("audio_metadata") if isinstance(row, Mapping) else None
        if isinstance(row, Mapping) and "id" in row and isinstance(inner, Mapping | None):
            acoustics[str(row["id"])] = dict(inner or {})
        elif config.on_error == "error":
            raise ValueError(f"{path}, row {number}: wanted an object with id and audio_metadata")
    return acoustics


def _short(row: Any) -> str:
    return repr(row.get("id"))[:60] if isinstance(row, Mapping) else "none"


def _check_row(row: Any, ids: set[str]) -> str:
    """The row's task; ValueError for what is missing, of another type, no Unicode, or given twice."""
    if not isinstance(row, Mapping):
        raise ValueError(f"wanted an object, found {type(row).__name__}")
    missing = [name for name in _FIELDS if name not in row]
    if missing:
        raise ValueError(f"missing {missing}")
    wanted: dict[str, Any] = {
        "id": str | int, "task": str, "audio_query": str, "audio_query_mc": str, "text_prompt": str | list | None,
    }  # fmt: skip
    for name, kinds in wanted.items():
        if not isinstance(row[name], kinds) or isinstance(row[name], bool):
            raise ValueError(f"{name} is {type(row[name]).__name__}, wanted {kinds}")
    try:
        size = len(json.dumps(row, ensure_ascii=False).encode("utf-8"))
    except UnicodeEncodeError:
        raise ValueError("its text is no valid Unicode") from None
    if size > MAX_PROMPT_CHARS:
        raise ValueError(f"{size} bytes of text, wanted at most {MAX_PROMPT_CHARS}")
    if row["task"] not in TASKS:
        raise ValueError(f"unknown tasks [{row['task'][:60]!r}], wanted some of {list(TASKS)}")
    if str(row["id"]) in ids or not str(row["id"]):
        raise ValueError("its id is empty, or given twice")
    ids.add(str(row["id"]))
    return str(row["task"])


def _example(
    row: Mapping[str, Any],
    acoustics: dict[str, Any] | None,
    root: Path,
    config: WearVoxConfig,
    prompts: WearVoxPrompts,
    crag: CragIndex | None,
    found: WearVoxData,
) -> Example:
    seconds = _check_audio(root, row["audio_query_mc"], config.channels, config, "channels")
    if config.beam == "file":
        _check_audio(root, row["audio_query"], 1, config, "beam")
    results = crag.find(row) if crag is not None and row["task"] == "grounding" else None
    if crag is not None and row["task"] == "grounding" and results is None:
        found.without_results.append(str(row["id"]))
    query_time = results.query_time if results else str(row.get("query_time") or "")
    messages = prompts.messages(row["task"], row["text_prompt"], results.text if results else "", query_time)
    extra = {"languages": list(languages_of(messages))} if row["task"] == TRANSLATION else {}
    transcript = row.get("gt_transcript")
    return Example(
        id=str(row["id"]),
        task=row["task"],
        split="test",
        messages=messages,
        audio={"mc": row["audio_query_mc"], "beam": row["audio_query"] if config.beam == "file" else None},
        target=_target(row["task"], row["ground_truth"]),
        metadata={
            "dialect": "wearvox", "ground_truth": row["ground_truth"], "transcript": transcript, "seconds": seconds,
            "acoustics": acoustics or {}, **extra,
        },
    )  # fmt: skip


def _check_audio(root: Path, name: str, channels: int, config: WearVoxConfig, setting: str) -> float:
    path = root / inside(name)
    info = audio_info(path)
    if info.channels != channels:
        raise AudioError(f"{path}: found {info.channels} channels, wanted {channels} (setting wearvox.{setting})")
    if info.sample_rate != config.sample_rate:
        raise AudioError(f"{path}: found {info.sample_rate} Hz, wanted {config.sample_rate} Hz (wearvox.sample_rate)")
    return info.seconds


def inside(name: str) -> PurePosixPath:
    """A file's path within the dataset; ValueError for one that leads out of it. (Links are the user's own affair.)"""
    path = PurePosixPath(name)
    if not name or path.is_absolute() or ".." in path.parts or "\\" in name or "\0" in name or len(name) > 1000:
        raise ValueError(f"audio path {name[:80]!r} leads out of the dataset's folder, or is none")
    return path


def _target(task: str, ground_truth: Any) -> str:
    """Ground truth as the text a perfect model would say; malformed ground truths raise here, at load."""
    if task in QA:
        return answer_aliases(ground_truth)[0]
    if task == TRANSLATION:
        return "\n".join(turn.said_line() for turn in gold_turns(ground_truth))
    if task == "tool_call":
        gold = gold_calls(ground_truth)
        calls = [{"name": name, "parameters": _first_values(args)} for call in gold for name, args in call.items()]
        return f"<|TOOL|>{json.dumps(calls, ensure_ascii=False)}</|TOOL|>"
    if str(ground_truth or "[Mute]").strip().strip("'\"").lower() not in ("[mute]", "mute", "none"):
        raise ValueError(f"ground_truth of side-talk is {str(ground_truth)[:80]!r}, wanted [Mute]")
    return format_action(mute(), "wearvox")


def _first_values(accepted: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    return {name: values[0] for name, values in accepted.items() if values[0] != ""}
