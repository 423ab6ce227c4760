"""VoxEval as a benchmark of the shared module: examples from its folders, and its scores."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tqdm import tqdm

from wearllama.data.manifest import Example
from wearllama.data.prompts import AUDIO_CONTENT, Message
from wearllama.evaluation.intervals import Rate, rate_of
from wearllama.evaluation.predictions import Prediction
from wearllama.evaluation.scoring import Outcome
from wearllama.evaluation.voxeval.extract import extract, extract_final
from wearllama.evaluation.voxeval.layout import (
    COT_SUBJECTS,
    GROUP_OF,
    LETTERS,
    SETTINGS,
    SHOTS,
    Item,
    Subject,
    fine_conditions,
    question_files,
    read_items,
    read_subjects,
    shot_files,
)
from wearllama.evaluation.voxeval.prompt_audio import KEEP_S, compose

DIRECT_SHOTS, COT_SHOTS_COUNT = 5, 3
SYSTEM = (
    "You hear a multiple-choice question with the options A, B, C and D. Answer with the letter of the right option."
)
SYSTEM_COT = (
    "You hear a multiple-choice question with the options A, B, C and D. Reason step by step, and end with: The answer "
    "is, and the letter of the right option."
)
"""Ours, for models that take a system prompt beside the sound; ``voxeval.system`` replaces them, "" leaves them out."""


@dataclass(kw_only=True)
class VoxEvalConfig:
    """What is read, and how it is asked."""

    settings: tuple[str, ...] = ("alloy",)
    """Of the eleven: alloy echo fable nova onyx shimmer alloy_noise alloy_pitch ..."""
    subjects: tuple[str, ...] = ()
    """Subjects by name; all by default (with ``mode=cot`` the three of mathematics)."""
    mode: Literal["direct", "cot"] = "direct"
    """``cot``: mathematics with reasoning."""
    input: Literal["audio", "text"] = "audio"
    """``text``: the same questions read instead of heard."""
    shots: int | None = None
    """Examples before the question; by default 5, with reasoning 3, as published."""
    keep_seconds: float = KEEP_S
    """The prompt's last so many seconds are kept; 80 as published."""
    sample_rate: int = 24_000
    """Rate of files that are not at 16 kHz; they are converted."""
    system: str | None = None
    """System prompt; null takes ours, "" none."""
    limit: int | None = None
    """Only the first so many questions of each subject."""

    def __post_init__(self) -> None:
        unknown = sorted(set(self.settings) - set(SETTINGS))
        if unknown or not self.settings:
            raise ValueError(f"voxeval.settings {list(self.settings)}: unknown {unknown}, wanted of {list(SETTINGS)}")
        foreign = sorted(set(self.subjects) - set(COT_SUBJECTS))
        if self.mode == "cot" and foreign:
            raise ValueError(f"voxeval.mode=cot is for {list(COT_SUBJECTS)}, found {foreign}")
        if self.shots is None:
            self.shots = COT_SHOTS_COUNT if self.mode == "cot" else DIRECT_SHOTS
        if self.shots < 0 or self.keep_seconds <= 0 or (self.limit is not None and self.limit < 1):
            raise ValueError(f"voxeval: shots {self.shots}, keep_seconds {self.keep_seconds}, limit {self.limit}")


def load_voxeval(root: str | Path, config: VoxEvalConfig, *, progress: bool = False) -> list[Example]:
    """Examples of the wanted settings and subjects; ValueError (AudioError) names file, row and what is wrong."""
    base = Path(root)
    wanted = config.subjects or (COT_SUBJECTS if config.mode == "cot" else ())
    subjects = read_subjects(base, wanted)
    examples: list[Example] = []
    for setting in config.settings:
        fine = fine_conditions(base, setting)
        for subject in tqdm(subjects, desc=f"read {setting}", unit="subject", disable=not progress):
            make = _text_examples if config.input == "text" else _audio_examples
            examples += make(base, setting, subject, config, fine)
    return examples


def question_text(item: Item) -> str:
    """A question as it is read, options lettered."""
    options = "\n".join(f"{letter}. {option}" for letter, option in zip(LETTERS, item.options, strict=True))
    return f"{item.question.strip()}\n{options}"


def answer_text(item: Item) -> str:
    """The answer that examples show."""
    return f"The answer is {item.key}."


def _audio_examples(
    root: Path, setting: str, subject: Subject, config: VoxEvalConfig, fine: dict[str, str]
) -> list[Example]:
    assert config.shots is not None
    files = question_files(root, setting, subject)
    cot = config.mode == "cot"
    shots = shot_files(root, setting, subject, config.shots, cot=cot) if config.shots else []
    before = [path for pair in shots for path in pair]
    if cot:
        before += sorted((root / "math_CoT_fewshot" / setting).glob("instruction.*"))[:1]
    examples = []
    for number, (item, path) in enumerate(zip(subject.items[: config.limit], files, strict=False)):
        prompt = compose(root, [*before, path], sample_rate=config.sample_rate, keep_s=config.keep_seconds)
        told = fine.get(f"{path.parent.name}/{path.name}", "")
        extra = {"seconds": prompt.seconds, "cut_s": prompt.cut_s, "fine": told}
        messages = [*_system(config), {"role": "user", "content": AUDIO_CONTENT}]
        examples.append(_example(setting, subject, number, item, messages, {"mixture": prompt.recipe}, extra))
    return examples


def _text_examples(
    root: Path, setting: str, subject: Subject, config: VoxEvalConfig, fine: dict[str, str]
) -> list[Example]:
    assert config.shots is not None
    turns: list[Message] = []
    if config.shots:
        path = root / SHOTS / f"{subject.stem}.csv"
        if config.mode == "cot" or not path.is_file():
            raise ValueError(f"examples as text need {path} (mode=direct); take voxeval.shots=0")
        shots = read_items(path)[: config.shots]
        if len(shots) < config.shots:
            raise ValueError(f"{path}: {len(shots)} examples, wanted {config.shots} (voxeval.shots)")
        for shot in shots:
            turns += [
                {"role": "user", "content": question_text(shot)},
                {"role": "assistant", "content": answer_text(shot)},
            ]
    return [
        _example(
            setting, subject, number, item,
            [*_system(config), *turns, {"role": "user", "content": question_text(item)}], None, {},
        )
        for number, item in enumerate(subject.items[: config.limit])
    ]  # fmt: skip


def _system(config: VoxEvalConfig) -> list[Message]:
    text = config.system
    if text is None:
        text = SYSTEM_COT if config.mode == "cot" else SYSTEM
        text = text.replace("You hear", "You read") if config.input == "text" else text
    return [{"role": "system", "content": text}] if text else []


def _example(
    setting: str, subject: Subject, number: int, item: Item, messages: list[Message], audio: Any, extra: dict[str, Any]
) -> Example:
    return Example(
        id=f"{setting}/{subject.name}/{number:08d}", task=setting, split="test", messages=messages, audio=audio,
        target=item.key,
        metadata={"subject": subject.name, "options": list(item.options), "transcript": question_text(item), **extra},
    )  # fmt: skip


# --- scores ----------------------------------------------------------------------------------------------------------


def score(examples: Sequence[Example], predictions: Sequence[Prediction]) -> list[Outcome]:
    """Marks ``correct`` (whole reply), ``final`` (its last segment) and ``parsed``; the note is the option read."""
    return [_score(example, prediction) for example, prediction in zip(examples, predictions, strict=True)]


def _score(example: Example, prediction: Prediction) -> Outcome:
    options = example.metadata["options"]
    said = "" if prediction.error else prediction.raw
    whole, final = extract(said, options), extract_final(said, options)
    marks = {"correct": whole == example.target, "final": final == example.target, "parsed": whole is not None}
    kind = whole or "unparsable"
    return Outcome(example.id, example.task, kind, marks, prediction.error or kind, example.metadata)


def summarise(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Rates by setting (``SETTING``, ``SETTING/final``, ``SETTING/parsed``), and breakdowns of all of them."""
    settings = [name for name in SETTINGS if any(o.task == name for o in outcomes)]
    rates: dict[str, Rate] = {}
    for name in (*settings, "all"):
        mine = [o for o in outcomes if name in (o.task, "all")]
        rates[name] = rate_of(o.marks["correct"] for o in mine)
        rates |= {f"{name}/{mark}": rate_of(o.marks[mark] for o in mine) for mark in ("final", "parsed")}
    cut = [o.metadata["cut_s"] for o in outcomes if o.metadata.get("cut_s")]
    return {
        "rates": rates,
        "by_group": _by(outcomes, lambda o: GROUP_OF.get(o.metadata["subject"], "not MMLU's")),
        "by_subject": _by(outcomes, lambda o: o.metadata["subject"]),
        "by_fine_condition": _by(outcomes, lambda o: o.metadata.get("fine") or o.task),
        "cut_prompts": {"items": len(cut), "longest_cut_s": max(cut, default=0.0)},
        "actions": {name: dict(Counter(o.kind for o in outcomes if o.task == name)) for name in settings},
    }


def _by(outcomes: Sequence[Outcome], key: Callable[[Outcome], str]) -> dict[str, Rate]:
    groups: dict[str, list[bool]] = {}
    for outcome in outcomes:
        groups.setdefault(key(outcome), []).append(outcome.marks["correct"])
    return {name: rate_of(groups[name]) for name in sorted(groups)}
