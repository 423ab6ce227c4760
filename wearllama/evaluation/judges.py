"""LLM judges (contract 10): a role with a pinned prompt, a model at temperature 0, and a log: nothing is asked twice.

What a judge says is kept as it came; a verdict that cannot be read is logged without a score and counted, never
guessed.  What failed for a passing reason (network, budget) is not logged: the same command asks again.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

from tqdm import tqdm

from wearllama.data.prompts import content_hash, read_mapping
from wearllama.evaluation.append_log import append_lines, read_lines
from wearllama.evaluation.chat import ChatModel, Reply
from wearllama.evaluation.endpoints import EndpointError
from wearllama.evaluation.side_talk import LABELS

Role = Literal["qa", "translation", "side_talk"]
Score: TypeAlias = float | str
PROMPTS = Path(__file__).with_name("judge_prompts.yaml")
SCHEMA = 1
_MAX_TEXT = 20_000
_STEP = 0.05


class JudgeItem(NamedTuple):
    """What a judge is shown: the fields of its prompt. Equal fields are judged once, whatever their ids."""

    id: str
    fields: dict[str, str]


@dataclass(kw_only=True)
class Verdict:
    """One line of the judges' log."""

    key: str
    """Hash of role, prompt, judge, its settings and the fields."""
    id: str
    role: str
    judge: Mapping[str, str]
    prompt_hash: str
    raw: str
    score: Score | None
    """A number, a label, or None where the judge's words could not be read."""
    error: str = ""
    usage: Mapping[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    attempts: int = 1
    served_by: str = ""
    schema: int = SCHEMA


@dataclass(frozen=True)
class JudgeRole:
    """A role's prompt and how its verdicts are read."""

    name: str
    system: str
    user: str
    parse: Callable[[str], Score | None]
    examples: tuple[Mapping[str, Any], ...] = ()

    @property
    def prompt_hash(self) -> str:
        """16 hexadecimal digits that change with any word of the prompt or its examples."""
        return content_hash([self.system, self.user, [dict(example) for example in self.examples]])

    def conversation(self, fields: Mapping[str, str]) -> list[dict[str, str]]:
        """System prompt with worked examples, then the item."""
        system = _fill(self.system, fields)
        if self.examples:
            system += "\n\nExamples:\n\n" + "\n\n".join(self._worked(example) for example in self.examples)
        return [{"role": "system", "content": system}, {"role": "user", "content": _fill(self.user, fields)}]

    def _worked(self, example: Mapping[str, Any]) -> str:
        asked = _fill(self.user, {name: quoted(value) for name, value in example.items()})
        answer = json.dumps({"explanation": example["explanation"], "score": example["score"]}, ensure_ascii=False)
        return f"{asked}\n{answer}"


def _fill(template: str, fields: Mapping[str, str]) -> str:
    try:
        return template.format_map(fields)
    except (KeyError, IndexError, ValueError) as error:
        raise ValueError(f"a judge's prompt cannot be filled in ({error!r}); its fields are {sorted(fields)}") from None


def quoted(value: Any) -> str:
    """A value as JSON, so that no text can end its own field."""
    return json.dumps(value, ensure_ascii=False)


def load_role(name: Role, path: str | Path | None = None) -> JudgeRole:
    """A role of the packaged prompts, or of a user's file that replaces it; ValueError names what is wrong."""
    if name not in get_args(Role):
        raise ValueError(f"judge role {name!r}, wanted one of {get_args(Role)}")
    entry = _read_prompts(PROMPTS)[name]
    source = str(PROMPTS)
    if path is not None:
        own = _read_prompts(Path(path))
        if unknown := sorted(set(own) - set(get_args(Role))):
            raise ValueError(f"{path}: unknown judge roles {unknown}, wanted some of {list(get_args(Role))}")
        entry, source = own.get(name, entry), str(path) if name in own else source
    if not isinstance(entry, dict) or not all(isinstance(entry.get(key), str) for key in ("system", "user")):
        raise ValueError(f"{source}: {name} wants the texts system and user")
    examples = entry.get("examples") or []
    if not isinstance(examples, list) or not all(
        isinstance(e, dict) and {"explanation", "score"} <= set(e) for e in examples
    ):
        raise ValueError(f"{source}: {name}.examples is no list of objects with explanation and score")
    return JudgeRole(name, entry["system"], entry["user"], PARSERS[name], tuple(examples))


def _read_prompts(path: Path) -> dict[str, Any]:
    return read_mapping(path, what="judge prompts", entries="roles")


# --- what judges say -------------------------------------------------------------------------------------------------


def last_json_object(text: str, having: str) -> dict[str, Any] | None:
    """The last JSON object of a text that has a field: judges think aloud first, and quote examples."""
    found, start, tail = None, 0, text[-_MAX_TEXT:]
    decoder = json.JSONDecoder()
    while (start := tail.find("{", start)) >= 0:
        try:
            value, end = decoder.raw_decode(tail, start)
        except (ValueError, RecursionError):
            start += 1
            continue
        if isinstance(value, dict) and having in value:
            found = value
        start = end
    return found


def parse_qa(text: str) -> float | None:
    """0 or 1."""
    score = (last_json_object(text, "score") or {}).get("score")
    if isinstance(score, str):
        score = {"0": 0, "1": 1}.get(score.strip())
    return float(score) if type(score) in (int, float) and score in (0, 1) else None


def parse_translation(text: str) -> float | None:
    """A step of 0.05 from 0 to 1; anything between the steps is no verdict of this scale."""
    score = (last_json_object(text, "translation_score") or {}).get("translation_score")
    if isinstance(score, str):
        try:
            score = float(score)
        except ValueError:
            return None
    if not isinstance(score, int | float) or isinstance(score, bool) or not 0 <= score <= 1:
        return None
    steps = round(score / _STEP)
    return round(steps * _STEP, 2) if abs(steps * _STEP - score) < 1e-6 else None


def parse_label(text: str) -> str | None:
    """One of side-talk's four labels."""
    label = (last_json_object(text, "label") or {}).get("label")
    label = label.strip().lower() if isinstance(label, str) else label
    return label if label in LABELS else None


PARSERS: dict[str, Callable[[str], Score | None]] = {
    "qa": parse_qa, "translation": parse_translation, "side_talk": parse_label,
}  # fmt: skip


# --- the judge -------------------------------------------------------------------------------------------------------


class Judge:
    """A role played by a model, with its log in a run's folder."""

    def __init__(self, role: JudgeRole, model: ChatModel, folder: str | Path, *, progress: bool = False) -> None:
        temperature = model.generation.get("temperature", 0.0)
        if temperature not in (0, None):
            raise ValueError(f"judge {role.name}: temperature is {temperature}, wanted 0: verdicts must repeat")
        self.role, self.model, self.progress = role, model, progress
        self.path = Path(folder) / f"judgements-{role.name}.jsonl"

    def key(self, item: JudgeItem) -> str:
        """What must be equal for a verdict to be reused."""
        return content_hash({
            "role": self.role.name, "prompt": self.role.prompt_hash, "judge": dict(self.model.identity),
            "generation": self.model.generation, "fields": item.fields, "schema": SCHEMA,
        })  # fmt: skip

    def judge(self, items: Sequence[JudgeItem], *, again: bool = False) -> list[Verdict]:
        """Verdicts in order; asks only for what the log lacks (``again``: also for what had no readable verdict).

        Raises EndpointError where some could not be asked; what was answered is logged.
        """
        keys = [self.key(item) for item in items]
        done = self.read()
        if again:
            done = {key: verdict for key, verdict in done.items() if verdict.score is not None}
        todo = {key: item for key, item in zip(keys, items, strict=True) if key not in done}
        waiting: list[str] = []
        order = list(todo.items())
        bar = tqdm(total=len(todo), desc=f"judge {self.role.name}", unit="item", disable=not self.progress or not todo)

        def note(index: int, reply: Reply) -> None:
            key, item = order[index]
            bar.update()
            if reply.transient:
                waiting.append(reply.error)
                return
            done[key] = self._verdict(key, item, reply)
            append_lines(self.path, [asdict(done[key])])

        with bar:
            if order:
                self.model.complete([self.role.conversation(item.fields) for _, item in order], note)
        if waiting:
            raise EndpointError(
                f"judge {self.role.name}: {len(waiting)} of {len(order)} items were not judged ({waiting[0]}); "
                "the same command goes on from here"
            )
        return [done[key] for key in keys]

    def _verdict(self, key: str, item: JudgeItem, reply: Reply) -> Verdict:
        score = None if reply.error else self.role.parse(reply.text)
        error = reply.error or ("" if score is not None else "the judge's words hold no verdict")
        return Verdict(
            key=key, id=item.id, role=self.role.name, judge=self.model.identity, prompt_hash=self.role.prompt_hash,
            raw=reply.text, score=score, error=error, usage=dict(reply.usage), seconds=reply.seconds,
            attempts=reply.attempts, served_by=reply.served_by,
        )  # fmt: skip

    def read(self) -> dict[str, Verdict]:
        """Logged verdicts by key; the last of a repeated key counts, since only unreadable ones are asked again."""
        names = set(Verdict.__dataclass_fields__)
        rows = (row for row in read_lines(self.path) if set(row) == names and row["schema"] == SCHEMA)
        return {row["key"]: Verdict(**row) for row in rows}
