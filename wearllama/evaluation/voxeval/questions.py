"""Text questions to make spoken ones of: MMLU's tables, or its development items as ``lm-eval`` packages them."""

import html
import re
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from wearllama.evaluation.voxeval.layout import LEFT_OUT, LETTERS, Item, read_items, subject_name

LANGUAGES = ("en", "de", "es", "fr", "it", "pt")
_OPTIONS = re.compile(r"\(A\)(?P<A>.*?)\(B\)(?P<B>.*?)\(C\)(?P<C>.*?)\(D\)(?P<D>.*)", re.DOTALL)
_KEY = re.compile(r"answer is \(([A-D])\)")


@dataclass(frozen=True, kw_only=True)
class Written:
    """A text question, with its worked answer where one is known."""

    item: Item
    worked: str = ""


class _Loader(yaml.SafeLoader):
    """YAML with tags that only lm-eval knows; their values are not needed."""


_Loader.add_multi_constructor("!", lambda loader, suffix, node: None)


def read_questions(source: str | Path, language: str = "en") -> dict[str, list[Written]]:
    """Questions by subject of a folder: tables ``SUBJECT.csv`` (English), or ``LANGUAGE/mmlu_SUBJECT.yaml``.

    Subjects of program code are left out, as published, and questions with a fifth option (with a warning).
    ValueError names what cannot be read.
    """
    root = Path(source)
    if language not in LANGUAGES:
        raise ValueError(f"language is {language!r}, wanted one of {LANGUAGES}")
    tables = sorted(root.glob("*.csv"))
    files = sorted((root / language).glob("mmlu_*.yaml"))
    if tables and language == "en":
        found = {subject_name(path.stem): [Written(item=item) for item in read_items(path)] for path in tables}
    elif files:
        prefix = "mmlu_" if language == "en" else f"mmlu_{language}_"
        found = {path.stem.removeprefix(prefix): _read_task(path) for path in files}
    else:
        raise ValueError(f"{root}: no SUBJECT.csv and no {language}/mmlu_*.yaml (the asset mmlu_dev has those)")
    return {name: questions for name, questions in found.items() if questions and name not in LEFT_OUT}


def _read_task(path: Path) -> list[Written]:
    value = yaml.load(path.read_text(encoding="utf-8"), _Loader)
    samples = (value.get("fewshot_config") or {}).get("samples") or []
    asked = [sample for sample in samples if "(E)" not in str(sample.get("question", ""))]
    if len(asked) < len(samples):
        warnings.warn(f"{path}: left out {len(samples) - len(asked)} questions with a fifth option", stacklevel=3)
    try:
        return [_english(sample) if "question" in sample else _translated(sample) for sample in asked]
    except (ValueError, KeyError) as error:
        raise ValueError(f"{path}: {error}") from None


def _english(sample: dict[str, Any]) -> Written:
    """A question with its options in one text, and a worked answer that ends in the key."""
    match, key = _OPTIONS.search(sample["question"]), _KEY.findall(sample["target"])
    if match is None or not key:
        raise ValueError(f"no options (A) to (D) or no key in {sample['question'][:60]!r}")
    options = [" ".join(match.group(letter).split()) for letter in LETTERS]
    question = " ".join(sample["question"][: match.start()].split())
    worked = sample["target"].removeprefix("Let's think step by step.").strip()
    return Written(item=Item(question, tuple(options), key[-1]), worked=" ".join(worked.split()))  # type: ignore[arg-type]


def _translated(sample: dict[str, Any]) -> Written:
    options = [html.unescape(str(sample["input_choice_list"][letter])).strip() for letter in LETTERS]
    key = str(sample["input_correct_responses"][0])
    if key not in LETTERS:
        raise ValueError(f"key is {key!r}")
    return Written(item=Item(html.unescape(sample["input_question"]).strip(), tuple(options), key))  # type: ignore[arg-type]
