"""Tasks, prompt conditions and lock of a user's clone of the Wearable Assistant Context Bench, in both schema states.

The clone may be the whole repository or only its data folder.  Nothing of it is kept here: tasks, conditions and, where
the clone has its judge's code, the judge's prompt are read at run time and held against the clone's own lock file.
"""

import ast
import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

Label = Literal["current", "prior", "clarify", "abstain"]
LABELS: tuple[Label, ...] = ("current", "prior", "clarify", "abstain")
SCORED: tuple[Label, ...] = ("current", "prior")
BASELINE = "baseline"
"""The only condition to rank on: wording alone passes under a scaffold."""

_TASK_FILES, _CONDITION_FILE, _LOCK_FILE = (
    ("tasks.jsonl", "scenarios.jsonl"),
    "prompt_conditions.json",
    "MANIFEST.lock.json",
)
_COMMON = {"turn_1_user": "turn_1_user", "turn_2_user": "turn_2_user", "referent_complexity": "referent_complexity"}
_NEWER = {
    **_COMMON, "id": "task_id", "subset": "task_set", "gold": "gold_label", "shift_type": "shift_type",
    "domain": "domain", "difficulty": "difficulty", "pre_scene": "pre_turn_context_scene_description",
    "scene_1": "turn_1_scene_description", "scene_2": "turn_2_scene_description", "anchors": "reference_answers",
}  # fmt: skip
_OLDER = {
    **_COMMON, "id": "scenario_id", "subset": "subset", "gold": "target_context", "shift_type": "change_type",
    "domain": "activity_domain", "difficulty": "difficulty_tier", "pre_scene": "context_image",
    "scene_1": "turn_1_image", "scene_2": "turn_2_image", "anchors": "gold",
}  # fmt: skip
_ANCHORS: dict[str, Label] = {
    "current_answers": "current", "prior_answers": "prior", "clarify_indicators": "clarify",
    "abstain_indicators": "abstain",
}  # fmt: skip
_LOCKED = {
    "tasks": ("tasks_sha256", "scenarios_sha256"),
    "prompt conditions": ("prompt_conditions_sha256", "interventions_sha256"),
    "judge prompt": ("judge_prompt_sha256",),
}


@dataclass(frozen=True, kw_only=True)
class Task:
    """One two-turn conversation; an empty scene means that the camera showed nothing."""

    id: str
    subset: str
    gold: Label
    shift_type: str
    domain: str
    difficulty: str
    referent_complexity: str
    pre_scene: str
    scene_1: str
    turn_1_user: str
    scene_2: str
    turn_2_user: str
    anchors: Mapping[Label, Sequence[str]]
    """What each label's answers contain; for the judge alone."""
    pair_id: str = ""


class PromptCondition(NamedTuple):
    """One system prompt of the benchmark."""

    name: str
    system_prompt: str


@dataclass(frozen=True, kw_only=True)
class Clone:
    """What was read of a clone, with the SHA-256 of everything that decides a score."""

    root: Path
    tasks: Sequence[Task]
    conditions: Sequence[PromptCondition]
    judge_prompt: str | None
    """The clone's own; None where it is only the data folder."""
    hashes: Mapping[str, str]
    lock: Mapping[str, str] = field(default_factory=dict)
    """Hashes that the lock file wants, by the names of ``hashes``; empty where there is none."""

    def lock_state(self) -> dict[str, str]:
        """For tasks, prompt conditions and judge prompt: ``same``, ``differs``, ``not here`` or ``not locked``."""
        states = {}
        for name in _LOCKED:
            if name not in self.lock:
                states[name] = "not locked"
            elif name not in self.hashes:
                states[name] = "not here"
            else:
                states[name] = "same" if self.hashes[name] == self.lock[name] else "differs"
        return states

    def require_lock(self) -> None:
        """ValueError where anything differs from the lock, or nothing is locked."""
        states = self.lock_state()
        changed = [name for name, state in states.items() if state == "differs"]
        if changed or not self.lock:
            what = f"{', '.join(changed)} differ from {_LOCK_FILE}" if changed else f"there is no {_LOCK_FILE}"
            raise ValueError(f"{self.root}: {what}; take the clone as published, or run with lock=report")


def load_clone(root: str | Path) -> Clone:
    """Read a clone (or its data folder); ValueError names file, line and field of what is wrong."""
    base = Path(root)
    folder = next((f for f in (base / "data", base) if any((f / name).is_file() for name in _TASK_FILES)), None)
    if folder is None:
        raise ValueError(f"no {' or '.join(_TASK_FILES)} in {base} or {base / 'data'}: wanted a Context Bench clone")
    task_file = next(folder / name for name in _TASK_FILES if (folder / name).is_file())
    condition_file = folder / _CONDITION_FILE
    tasks, conditions = _read_tasks(task_file), _read_conditions(condition_file)
    hashes = {"tasks": _sha256(task_file.read_bytes()), "prompt conditions": _sha256(condition_file.read_bytes())}
    prompt = _judge_prompt(base)
    if prompt is not None:
        hashes["judge prompt"] = _sha256(prompt.encode("utf-8"))
    return Clone(
        root=base, tasks=tasks, conditions=conditions, judge_prompt=prompt, hashes=hashes, lock=_read_lock(folder)
    )


def choose_tasks(tasks: Sequence[Task], subset: str | None, limit: int | None) -> list[Task]:
    """Tasks of a subset (all by default), at most ``limit`` of each label; ValueError where none is left."""
    found = dict(Counter(task.subset for task in tasks))
    if subset is not None and subset not in found:
        raise ValueError(f"context_bench.subset is {subset!r}, the clone has {found}")
    taken: Counter[str] = Counter()
    chosen = []
    for task in tasks:
        if subset in (None, task.subset) and (limit is None or taken[task.gold] < limit):
            taken[task.gold] += 1
            chosen.append(task)
    return chosen


def _read_tasks(path: Path) -> list[Task]:
    tasks: list[Task] = []
    lines: dict[str, int] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip():
            continue
        try:
            task = _task(json.loads(line))
            if task.id in lines:
                raise ValueError(f"id {task.id!r} stands on line {lines[task.id]} already")
        except (ValueError, TypeError) as error:
            raise ValueError(f"{path}, line {number}: {error}") from None
        lines[task.id] = number
        tasks.append(task)
    if not tasks:
        raise ValueError(f"{path} holds no task")
    return tasks


def _task(row: Any) -> Task:
    if not isinstance(row, dict):
        raise ValueError(f"wanted an object, found {type(row).__name__}")
    names = _NEWER if "task_id" in row else _OLDER
    optional = {"pre_scene", "referent_complexity", "difficulty", "domain"}
    missing = [there for here, there in names.items() if here not in optional and there not in row]
    if missing:
        raise ValueError(f"missing {missing}")
    values = {here: row.get(there) for here, there in names.items()}
    if values["gold"] not in LABELS:
        raise ValueError(f"{names['gold']} is {values['gold']!r}, wanted one of {list(LABELS)}")
    wrong = [names[key] for key, value in values.items() if key != "anchors" and not isinstance(value, str | None)]
    if wrong or not isinstance(values["anchors"], dict):
        raise ValueError(f"{wrong or [names['anchors']]}: wanted text, and {names['anchors']} an object of lists")
    empty = [names[key] for key in ("id", "turn_1_user", "turn_2_user") if not (values[key] or "").strip()]
    if empty:
        raise ValueError(f"{empty} is empty")
    anchors: dict[Label, list[str]] = {
        label: [str(item) for item in values["anchors"].get(key) or ()] for key, label in _ANCHORS.items()
    }
    texts = {key: value or "" for key, value in values.items() if key not in ("anchors", "gold")}
    return Task(**texts, gold=values["gold"], anchors=anchors, pair_id=str(row.get("pair_id") or ""))


def _read_conditions(path: Path) -> list[PromptCondition]:
    if not path.is_file():
        raise ValueError(f"no {path}")
    rows = json.loads(path.read_text(encoding="utf-8"))
    wanted = ("name", "system_prompt")
    if not isinstance(rows, list) or not all(isinstance(r, dict) and all(k in r for k in wanted) for r in rows):
        raise ValueError(f"{path}: wanted a list of objects with name and system_prompt")
    conditions = [PromptCondition(str(row["name"]), str(row["system_prompt"])) for row in rows]
    if BASELINE not in (condition.name for condition in conditions):
        raise ValueError(f"{path}: no condition {BASELINE!r}; it has {[c.name for c in conditions]}")
    return conditions


def _read_lock(folder: Path) -> dict[str, str]:
    path = folder / _LOCK_FILE
    fields = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return {name: fields[key] for name, keys in _LOCKED.items() for key in keys if fields.get(key)}


def _judge_prompt(base: Path) -> str | None:
    """The text that the clone's judge module assigns to its prompt; the module is parsed, never run."""
    for path in sorted(base.glob("*/llm_judge.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Constant):
                continue
            named = any(getattr(target, "id", "") == "JUDGE_SYSTEM_PROMPT" for target in node.targets)
            if named and isinstance(node.value.value, str):
                return node.value.value
    return None


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
