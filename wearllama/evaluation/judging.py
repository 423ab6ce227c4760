"""Judges at work: which items each role sees, and what its verdicts do to the outcomes.

An answer's ``correct`` becomes the judge's; the exact match stays beside it.  What gives the judge nothing to read (no
answer, no turns) is wrong without asking.  An item without a readable verdict loses its mark and is counted; where a
rule exists (side-talk), it stands in and is counted.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, get_args

from wearllama.data.manifest import Example
from wearllama.evaluation.chat import ChatConfig, open_chat
from wearllama.evaluation.judges import Judge, JudgeItem, Role, Verdict, load_role, quoted
from wearllama.evaluation.predictions import Prediction, as_action
from wearllama.evaluation.scoring import Outcome, answer_aliases
from wearllama.evaluation.translation import gold_turns, said_turns, session_score
from wearllama.evaluation.vgbench import LABEL_BY, serves_assistant
from wearllama.evaluation.wearvox import QA, TRANSLATION
from wearllama.unread import refuse_unread

ROLES: dict[str, tuple[Role, ...]] = {"wearvox": ("qa", "translation"), "vgbench": ("side_talk",), "asr": ()}
"""Judges that a benchmark has."""
Apply = Callable[[Sequence[Example], Sequence[Prediction], Sequence[Outcome]], list[Outcome]]


@dataclass(kw_only=True)
class JudgesConfig:
    """A model for each role; a role without one is not judged."""

    qa: ChatConfig = field(default_factory=ChatConfig)
    """Answers right or wrong (WearVox's two kinds of questions)."""
    translation: ChatConfig = field(default_factory=ChatConfig)
    """Turns of a translated conversation."""
    side_talk: ChatConfig = field(default_factory=ChatConfig)
    """Whom a free answer serves (VGBench)."""
    prompts: str | None = None
    """YAML file that replaces whole roles of judge_prompts.yaml."""
    again: bool = False
    """Ask again where a verdict could not be read."""

    def check(self, benchmark: str) -> None:
        """ValueError where something is given that the benchmark's judging does not read."""
        asked = ROLES[benchmark]
        refuse_unread(self, [role for role in get_args(Role) if role not in asked], f"by {benchmark}, {_judged(asked)}",
                      prefix="judges.")  # fmt: skip
        named = [role for role in asked if getattr(self, role).model is not None]
        for role in asked:
            if role not in named:
                refuse_unread(self, [role], f"without judges.{role}.model", prefix="judges.")
        if not named:
            refuse_unread(self, ("prompts", "again"), "without a judge", prefix="judges.")

    def open(self, role: Role, folder: str | Path, *, progress: bool) -> Judge | None:
        """A role's judge; None where no model is named."""
        config: ChatConfig = getattr(self, role)
        if config.model is None:
            return None
        return Judge(load_role(role, self.prompts), open_chat(config), folder, progress=progress)


def _judged(roles: Sequence[Role]) -> str:
    return f"whose judges are {', '.join(roles)}" if roles else "which nobody judges"


class Judges:
    """The judges of one run folder; ``used`` tells who judged, with which prompt, and what it cost."""

    def __init__(self, config: JudgesConfig, folder: str | Path, *, progress: bool = False) -> None:
        self.config, self.folder, self.progress = config, Path(folder), progress
        self.used: dict[str, dict[str, Any]] = {}

    def apply(
        self,
        benchmark: str,
        examples: Sequence[Example],
        predictions: Sequence[Prediction],
        outcomes: Sequence[Outcome],
    ) -> list[Outcome]:
        """Outcomes with the verdicts of every role that the benchmark has and the config names."""
        steps: dict[str, tuple[Apply, ...]] = {
            "wearvox": (self._answers, self._translations), "vgbench": (self._side_talk,),
        }  # fmt: skip
        judged = list(outcomes)
        for step in steps.get(benchmark, ()):
            judged = step(examples, predictions, judged)
        return judged

    def _judge(self, role: Role, items: Sequence[JudgeItem]) -> list[Verdict] | None:
        judge = self.config.open(role, self.folder, progress=self.progress)
        if judge is None:
            return None
        verdicts = judge.judge(items, again=self.config.again)
        used = self.used.setdefault(role, {
            "model": dict(judge.model.identity), "prompt": judge.role.prompt_hash, "asked": 0, "unscored": 0,
            "prompt_tokens": 0, "completion_tokens": 0,
        })  # fmt: skip
        for verdict in {verdict.key: verdict for verdict in verdicts}.values():
            used["asked"] += 1
            used["unscored"] += verdict.score is None
            for name in ("prompt_tokens", "completion_tokens"):
                used[name] += verdict.usage.get(name, 0)
        asked: ChatConfig = getattr(self.config, role)
        used["usd"] = asked.endpoint.usd(used)
        return verdicts

    def _answers(
        self, examples: Sequence[Example], predictions: Sequence[Prediction], outcomes: Sequence[Outcome]
    ) -> list[Outcome]:
        said = {
            index: action.text
            for index, (example, prediction) in enumerate(zip(examples, predictions, strict=True))
            if example.task in QA and (action := as_action(prediction, "wearvox")).kind == "answer"
        }
        verdicts = self._judge("qa", [_answer_item(examples[index], text) for index, text in said.items()])
        if verdicts is None:
            return list(outcomes)
        by_index = dict(zip(said, verdicts, strict=True))
        judged = list(outcomes)
        for index, outcome in enumerate(outcomes):
            if outcome.task not in QA:
                continue
            verdict = by_index.get(index)
            if verdict is not None and verdict.score is None:
                marks = {name: mark for name, mark in outcome.marks.items() if name != "correct"}
                judged[index] = replace(outcome, marks=marks, unscored=verdict.error)
            else:
                right = verdict is not None and verdict.score == 1
                judged[index] = replace(outcome, marks={**outcome.marks, "correct": right, "judged": right})
        return judged

    def _translations(
        self, examples: Sequence[Example], predictions: Sequence[Prediction], outcomes: Sequence[Outcome]
    ) -> list[Outcome]:
        items: list[JudgeItem] = []
        places: dict[int, range] = {}
        for index, (example, prediction) in enumerate(zip(examples, predictions, strict=True)):
            if example.task == TRANSLATION and outcomes[index].values["turns"]:
                turns = _turn_items(example, prediction.raw)
                places[index] = range(len(items), len(items) + len(turns))
                items += turns
        verdicts = self._judge("translation", items)
        if verdicts is None:
            return list(outcomes)
        judged = list(outcomes)
        for index, outcome in enumerate(outcomes):
            if outcome.task == TRANSLATION:
                judged[index] = _session(outcome, [verdicts[place] for place in places.get(index, range(0))])
        return judged

    def _side_talk(
        self, examples: Sequence[Example], predictions: Sequence[Prediction], outcomes: Sequence[Outcome]
    ) -> list[Outcome]:
        """Free answers only: whom a call serves is told by its name, and silence serves nobody.

        Where the judge's words hold no label, the rule's stays.
        """
        said = [i for i, o in enumerate(outcomes) if o.task == "side_talk" and o.kind == "answer"]
        verdicts = self._judge("side_talk", [_side_item(examples[i], predictions[i].raw) for i in said])
        if verdicts is None:
            return list(outcomes)
        judged = list(outcomes)
        for index, verdict in zip(said, verdicts, strict=True):
            outcome = outcomes[index]
            told = verdict.score is not None
            label = str(verdict.score) if told else outcome.note
            right = serves_assistant(label, outcome.kind, outcome.metadata["item"])
            metadata = {**outcome.metadata, LABEL_BY: "judge" if told else "rule"}
            judged[index] = replace(outcome, marks={"correct": right}, note=label, metadata=metadata)
        return judged


def _answer_item(example: Example, said: str) -> JudgeItem:
    aliases = answer_aliases(example.metadata["ground_truth"])
    fields = {
        "question": quoted(str(example.metadata.get("transcript") or "(not written down)")),
        "ground_truth": quoted(aliases[0] if len(aliases) == 1 else aliases),
        "prediction": quoted(said),
    }
    return JudgeItem(example.id, fields)


def _turn_items(example: Example, said: str) -> list[JudgeItem]:
    """One item a reference turn; the model's turns stand in every one of them."""
    turns = gold_turns(example.metadata["ground_truth"])
    lines = [turn.gold_line() for turn in turns]
    language0, language1 = example.metadata["languages"]
    shared = {
        "language0": language0, "language1": language1, "gold_turns": "\n".join(lines),
        "prediction": "\n".join(turn.said_line() for turn in said_turns(said)),
    }  # fmt: skip
    return [
        JudgeItem(
            f"{example.id}#{number}",
            {**shared, "target_turn": line, "prior_turns": "\n".join(lines[:number]) or "(none)"},
        )
        for number, line in enumerate(lines)
    ]


def _session(outcome: Outcome, verdicts: Sequence[Verdict]) -> Outcome:
    """The session's score; a session with one unreadable turn has none."""
    if not outcome.values["turns"]:
        return replace(outcome, values={**outcome.values, "session": 0.0}, unscored="")
    scores = [verdict.score for verdict in verdicts]
    numbers = [score for score in scores if isinstance(score, float)]
    if len(numbers) < len(scores):
        return replace(outcome, unscored=f"{len(scores) - len(numbers)} of {len(scores)} turns without a verdict")
    session = session_score(numbers, int(outcome.values["turns"]))
    return replace(outcome, values={**outcome.values, "session": session}, unscored="")


def _side_item(example: Example, said: str) -> JudgeItem:
    segments = example.metadata["item"]["segments"]
    words = {part: " ".join(s["text"] for s in segments if s["part"] == part) for part in ("assistant", "person")}
    return JudgeItem(
        example.id,
        {"assistant": quoted(words["assistant"]), "person": quoted(words["person"]), "prediction": quoted(said)},
    )
