"""VoxEval's folders: subjects, settings and files of the published layout, and of what tools/build_voxeval.py makes.

``test/SUBJECT.csv`` (no header: question, four options, key), ``test/SETTING/SUBJECT/*``,
``all_fewshot_examples/SETTING/SUBJECT/NNNNNNNN_{question,answer}.*``,
``math_CoT_fewshot/SETTING/SUBJECT/NNNNNNNN_{question,CoT_answer}.*``.  Files are MP3, FLAC or WAV.  Published folders
are called ``SUBJECT_4o``; names with and without that ending are one subject.  Ours alone: ``conditions.jsonl`` beside
a setting's folders says which fine condition each file is under, ``all_fewshot_examples/SUBJECT.csv`` has the examples'
texts, and ``math_CoT_fewshot/SETTING/instruction.*`` asks for reasoning.
"""

import csv
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

VOICES = ("alloy", "echo", "fable", "nova", "onyx", "shimmer")
ALTERED = ("alloy_noise", "alloy_pitch", "alloy_tempo", "alloy_env_acoustics", "alloy_linguistic_variation")
SETTINGS = (*VOICES, *ALTERED)
QUESTIONS = 13_938
"""In each setting of the publication."""
COT_SUBJECTS = ("elementary_mathematics", "high_school_mathematics", "college_mathematics")
LEFT_OUT = ("high_school_computer_science",)
"""Its questions are program code."""
LETTERS = ("A", "B", "C", "D")
TEST, SHOTS, COT_SHOTS = "test", "all_fewshot_examples", "math_CoT_fewshot"
CONDITIONS = "conditions.jsonl"
AUDIO = (".mp3", ".flac", ".wav")

GROUPS: dict[str, tuple[str, ...]] = {
    "STEM": (
        "abstract_algebra", "anatomy", "astronomy", "college_biology", "college_chemistry", "college_computer_science",
        "college_mathematics", "college_physics", "computer_security", "conceptual_physics", "electrical_engineering",
        "elementary_mathematics", "high_school_biology", "high_school_chemistry", "high_school_mathematics",
        "high_school_physics", "high_school_statistics", "machine_learning",
    ),
    "humanities": (
        "formal_logic", "high_school_european_history", "high_school_us_history", "high_school_world_history",
        "international_law", "jurisprudence", "logical_fallacies", "moral_disputes", "moral_scenarios", "philosophy",
        "prehistory", "professional_law", "world_religions",
    ),
    "social sciences": (
        "econometrics", "high_school_geography", "high_school_government_and_politics", "high_school_macroeconomics",
        "high_school_microeconomics", "high_school_psychology", "human_sexuality", "professional_psychology",
        "public_relations", "security_studies", "sociology", "us_foreign_policy",
    ),
    "other": (
        "business_ethics", "clinical_knowledge", "college_medicine", "global_facts", "human_aging", "management",
        "marketing", "medical_genetics", "miscellaneous", "nutrition", "professional_accounting",
        "professional_medicine", "virology",
    ),
}  # fmt: skip
"""MMLU's four groups; 56 subjects."""
GROUP_OF = {subject: group for group, subjects in GROUPS.items() for subject in subjects}


class Item(NamedTuple):
    """One question as text."""

    question: str
    options: tuple[str, str, str, str]
    key: str
    """``A`` to ``D``."""


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A subject's questions, and the stem of its table as it is spelt in this copy."""

    name: str
    stem: str
    items: tuple[Item, ...]


def subject_name(stem: str) -> str:
    """A subject's name without what copies append to it."""
    return re.sub(r"_(?:4o|test|dev|val)$", "", stem)


def read_items(path: Path) -> tuple[Item, ...]:
    """Questions of a table without a header; further columns are ignored. ValueError names the row."""
    items = []
    with path.open(encoding="utf-8", newline="") as stream:
        for number, row in enumerate(csv.reader(stream), start=1):
            if len(row) < 6:
                raise ValueError(f"{path}, row {number}: {len(row)} columns, wanted question, four options and key")
            key = row[5].strip().upper()
            if key not in LETTERS or not row[0].strip():
                raise ValueError(f"{path}, row {number}: key is {row[5]!r} (wanted A to D), question {row[0][:40]!r}")
            items.append(Item(row[0], (row[1], row[2], row[3], row[4]), key))
    return tuple(items)


def read_subjects(root: Path, wanted: tuple[str, ...] = ()) -> list[Subject]:
    """Subjects with their questions, by name; all by default. ValueError where one is not there."""
    tables = {subject_name(path.stem): path for path in sorted((root / TEST).glob("*.csv"))}
    if not tables:
        raise ValueError(f"no {root / TEST}/SUBJECT.csv: wanted a VoxEval folder")
    unknown = sorted(set(wanted) - set(tables))
    if unknown:
        raise ValueError(f"voxeval.subjects: {unknown} are not in {root / TEST}; it has {sorted(tables)}")
    chosen = [name for name in tables if not wanted or name in wanted]
    return [Subject(name=name, stem=tables[name].stem, items=read_items(tables[name])) for name in chosen]


def question_files(root: Path, setting: str, subject: Subject) -> list[Path]:
    """The files of a subject's questions, in order; ValueError unless there is one for each."""
    folder = _folder(root / TEST / setting, subject)
    files = [path for path in sorted(folder.iterdir()) if path.suffix.lower() in AUDIO]
    files = [path for path in files if path.stem.endswith("_question")] or files
    numbers = [int(match.group()) for path in files if (match := re.match(r"\d+", path.stem))]
    gaps = (
        len(numbers) == len(files) and numbers != list(range(numbers[0], numbers[0] + len(files))) if numbers else False
    )
    if len(files) != len(subject.items) or gaps:
        raise ValueError(f"{folder}: {len(files)} recordings for {len(subject.items)} questions, wanted one for each")
    return files


def shot_files(root: Path, setting: str, subject: Subject, count: int, *, cot: bool) -> list[tuple[Path, Path]]:
    """(question, answer) of the first ``count`` examples; ValueError where there are fewer."""
    folder = _folder(root / (COT_SHOTS if cot else SHOTS) / setting, subject)
    ending = "_CoT_answer" if cot else "_answer"
    questions = [path for path in sorted(folder.iterdir()) if path.stem.endswith("_question")]
    pairs = [(path, path.with_name(path.name.replace("_question", ending))) for path in questions]
    if len(pairs) < count or not all(answer.is_file() for _, answer in pairs[:count]):
        raise ValueError(f"{folder}: {len(pairs)} examples with answers, wanted {count} (voxeval.shots)")
    return pairs[:count]


def fine_conditions(root: Path, setting: str) -> dict[str, str]:
    """Fine condition by ``SUBJECT/FILE`` where the copy tells (ours do); {} otherwise."""
    path = root / TEST / setting / CONDITIONS
    if not path.is_file():
        return {}
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    return {row["file"]: row["condition"] for row in rows}


def _folder(parent: Path, subject: Subject) -> Path:
    names = dict.fromkeys((subject.stem, subject.name, f"{subject.name}_4o"))
    for name in names:
        if (parent / name).is_dir():
            return parent / name
    raise ValueError(f"no folder of {subject.name} in {parent}; looked for {list(names)}")
