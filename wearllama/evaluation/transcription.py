"""Word error rate of a speech LLM that is asked to write down what it hears (WearVox paper, Table 6).

Any benchmark's recordings with a transcript serve: wearllama.data.transcription_rows asks for their words.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import jiwer

from wearllama.data.actions import Action
from wearllama.data.manifest import Example
from wearllama.data.text_checks import word_normaliser
from wearllama.data.transcription_rows import NOTE, TASKS
from wearllama.evaluation.intervals import ErrorRate, error_rate_of, rate_of
from wearllama.evaluation.predictions import Prediction, as_action
from wearllama.evaluation.scoring import Outcome

BREAKDOWNS = {"by_asked_as": "asked_as", "by_noise_type": "noise_type", "by_environment": "environment"}


def score(examples: Sequence[Example], predictions: Sequence[Prediction]) -> list[Outcome]:
    """Word errors after Whisper's normalisation; a reply without the words, and a failed item, lose every word."""
    return [_score(example, prediction) for example, prediction in zip(examples, predictions, strict=True)]


def _score(example: Example, prediction: Prediction) -> Outcome:
    action = as_action(prediction, "wearvox")
    errors, words = count_errors(example, "" if prediction.error else _words(example, action, prediction.raw))
    acoustics = example.metadata.get("acoustics") or {}
    told = {name: example.metadata.get(name) or acoustics.get(name) for name in BREAKDOWNS.values()}
    return Outcome(
        example.id, example.task, action.kind, {"correct": errors == 0}, action.reason, {**example.metadata, **told},
        {"errors": float(errors), "words": float(words)},
    )  # fmt: skip


def count_errors(example: Example, heard: str) -> tuple[int, int]:
    """Word errors of what was heard, and the transcript's words, both after Whisper's normalisation."""
    normalise = word_normaliser(str(example.metadata.get("language", "en")))
    wanted, heard = normalise(str(example.metadata["transcript"])), normalise(heard)
    if not wanted:
        return len(heard.split()), 0
    counts = jiwer.process_words(wanted, heard)
    return counts.substitutions + counts.deletions + counts.insertions, len(wanted.split())


def _words(example: Example, action: Action, raw: str) -> str:
    """What the reply writes down: a note's text, or the whole reply; [Mute] and other calls write nothing."""
    if example.task != TASKS["note"]:
        return "" if action.kind == "mute" else raw
    notes = [call.arguments.get("text") for call in action.calls if call.name == NOTE.name]
    return " ".join(map(str, filter(None, notes)))


def summarise(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Word error rate in all and by group, sentences without error, and what was done instead of writing."""
    return {
        "rates": {"wer": word_errors(outcomes), "exact": rate_of(o.marks["correct"] for o in outcomes)},
        **{name: _by(outcomes, field) for name, field in BREAKDOWNS.items()},
        "errors_and_words": {o.id: [int(o.values["errors"]), int(o.values["words"])] for o in outcomes},
        "actions": {
            task: dict(Counter(outcome.kind for outcome in outcomes if outcome.task == task))
            for task in dict.fromkeys(outcome.task for outcome in outcomes)
        },
    }


def word_errors(outcomes: Sequence[Outcome]) -> ErrorRate:
    """Errors over words of all outcomes, with a bootstrap interval over recordings."""
    return error_rate_of([(int(o.values["errors"]), int(o.values["words"])) for o in outcomes])


def _by(outcomes: Sequence[Outcome], field: str) -> dict[str, Any]:
    groups: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault(str(outcome.metadata.get(field) or "not recorded"), []).append(outcome)
    return {name: word_errors(groups[name]) for name in sorted(groups)}
