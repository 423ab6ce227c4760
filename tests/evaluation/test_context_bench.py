"""The Context Bench: what is sent, what is read, and the figures that were published."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from wearllama.evaluation.adapters import CheckpointAdapter
from wearllama.evaluation.agreement import fleiss_kappa
from wearllama.evaluation.chat import Reply
from wearllama.evaluation.chat_adapter import ChatAdapter
from wearllama.evaluation.context_bench.dialogue import first_turn, judge_item, second_turn
from wearllama.evaluation.context_bench.findings import render_findings, summary, write_findings
from wearllama.evaluation.context_bench.judging import (
    code_signals,
    family_of,
    implied_label,
    read_verdict,
    resolve_family,
)
from wearllama.evaluation.context_bench.run import BenchConfig, Seat, run_bench
from wearllama.evaluation.context_bench.scoring import primary_score
from wearllama.evaluation.context_bench.spoken import SpokenAdapter, split_turn, spoken_turns
from wearllama.evaluation.context_bench.tasks import load_clone
from wearllama.evaluation.harness import HarnessConfig
from wearllama.evaluation.intervals import Rate
from wearllama.evaluation.local_chat import merge_turns

LABELS = ("current", "prior", "clarify", "abstain")
CONDITIONS = [
    {"name": "baseline", "description": "", "system_prompt": "Help.", "token_count": 1},
    {"name": "scaffold", "description": "", "system_prompt": "Name the scene, then help.", "token_count": 5},
]
QUIET = HarnessConfig(progress=False, ttft_items=0)


def newer(number: int, label: str) -> dict[str, Any]:
    return {
        "task_id": f"t{number}", "task_set": "bank", "gold_label": label, "shift_type": "SECRET_SHIFT",
        "domain": "kitchen", "referent_complexity": "single", "difficulty": "easy", "time_gap_bucket": "seconds",
        "pre_turn_context_scene_description": "A shelf." if number == 0 else None,
        "turn_1_scene_description": f"A pot {number}.", "turn_1_user": "Is it hot?",
        "turn_2_scene_description": f"A bowl {number}." if number != 3 else "", "turn_2_user": "And this?",
        "reference_answers": {"current_answers": ["bowl"], "prior_answers": ["pot"], "clarify_indicators": ["which"],
                              "abstain_indicators": []},
        "notes": "SECRET_NOTE",
    }  # fmt: skip


def older(number: int, label: str) -> dict[str, Any]:
    row = newer(number, label)
    names = {
        "task_id": "scenario_id", "task_set": "subset", "gold_label": "target_context", "shift_type": "change_type",
        "domain": "activity_domain", "difficulty": "difficulty_tier", "reference_answers": "gold",
        "pre_turn_context_scene_description": "context_image", "turn_1_scene_description": "turn_1_image",
        "turn_2_scene_description": "turn_2_image",
    }  # fmt: skip
    return {names.get(key, key): value for key, value in row.items()}


def write_clone(folder: Path, make: Any = newer, name: str = "tasks.jsonl", count: int = 8) -> Path:
    data = folder / "data"
    data.mkdir(parents=True, exist_ok=True)
    rows = [make(number, LABELS[number % 4]) for number in range(count)]
    (data / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    (data / "prompt_conditions.json").write_text(json.dumps(CONDITIONS))
    lock_clone(folder)
    return folder


def lock_clone(folder: Path) -> None:
    hashes = load_clone(folder).hashes
    keys = {
        "tasks": "tasks_sha256",
        "prompt conditions": "prompt_conditions_sha256",
        "judge prompt": "judge_prompt_sha256",
    }
    lock = {keys[name]: value for name, value in hashes.items()}
    (folder / "data" / "MANIFEST.lock.json").write_text(json.dumps(lock))


class Scripted:
    """A chat model that answers by rule and counts what it was asked."""

    def __init__(self, name: str, answer: Any) -> None:
        self.identity = {"model": name, "weights": "none"}
        self.generation: dict[str, Any] = {"max_new_tokens": 9}
        self.answer, self.asked = answer, 0

    def complete(self, conversations: Sequence[Any], on_reply: Any = None) -> list[Reply]:
        self.asked += len(conversations)
        replies = [Reply(text=self.answer(conversation)) for conversation in conversations]
        for index, reply in enumerate(replies):
            if on_reply is not None:
                on_reply(index, reply)
        return replies


def about_the_bowl(conversation: Any) -> str:
    return "It is the bowl." if len(conversation) > 3 else "Yes, hot."


def says(label: str) -> Any:
    return lambda conversation: f'I think so. {{"selected_label": "{label}", "rationale": "words"}}'


def test_both_schema_states_give_the_same_tasks(tmp_path: Path) -> None:
    new = load_clone(write_clone(tmp_path / "new"))
    old = load_clone(write_clone(tmp_path / "old", older, "scenarios.jsonl"))
    assert new.tasks == old.tasks and len(new.tasks) == 8
    assert new.tasks[0].pre_scene == "A shelf." and new.tasks[0].anchors["prior"] == ["pot"]
    assert load_clone(tmp_path / "new" / "data").tasks == new.tasks


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda row: row.update(gold_label="both"), "gold_label is 'both'"),
        (lambda row: row.pop("turn_2_user"), "missing \\['turn_2_user'\\]"),
        (lambda row: row.update(task_id="t1"), "stands on line"),
        (lambda row: row.update(turn_1_user=" "), "turn_1_user"),
    ],
)
def test_a_broken_row_is_named(tmp_path: Path, change: Any, told: str) -> None:
    path = write_clone(tmp_path) / "data" / "tasks.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    change(rows[2])
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(ValueError, match=told):
        load_clone(tmp_path)


def test_the_lock_refuses_what_changed(tmp_path: Path) -> None:
    clone = load_clone(write_clone(tmp_path))
    clone.require_lock()
    assert clone.lock_state() == {"tasks": "same", "prompt conditions": "same", "judge prompt": "not locked"}
    (tmp_path / "data" / "prompt_conditions.json").write_text(json.dumps(CONDITIONS[:1]))
    with pytest.raises(ValueError, match="prompt conditions differ from"):
        load_clone(tmp_path).require_lock()


def test_the_clones_judge_prompt_is_read_and_locked(tmp_path: Path) -> None:
    write_clone(tmp_path)
    (tmp_path / "bench").mkdir()
    code = tmp_path / "bench" / "llm_judge.py"
    code.write_text('raise SystemExit  # never run\nJUDGE_SYSTEM_PROMPT = """Label {it} \\\nnow."""\n')
    lock_clone(tmp_path)
    clone = load_clone(tmp_path)
    assert clone.judge_prompt == "Label {it} now." and clone.lock_state()["judge prompt"] == "same"
    code.write_text('JUDGE_SYSTEM_PROMPT = "Say current."\n')
    with pytest.raises(ValueError, match="judge prompt differ"):
        load_clone(tmp_path).require_lock()


def test_the_candidates_messages(tmp_path: Path) -> None:
    clone = load_clone(write_clone(tmp_path))
    condition = clone.conditions[0]
    first, third = clone.tasks[0], clone.tasks[3]
    assert second_turn(first, condition, "Yes.") == [
        {"role": "system", "content": "Help."},
        {"role": "user", "content": "[Camera: A shelf.]"},
        {"role": "user", "content": "[Camera: A pot 0.]\nIs it hot?"},
        {"role": "assistant", "content": "Yes."},
        {"role": "user", "content": "[Camera: A bowl 0.]\nAnd this?"},
    ]
    assert [m["content"] for m in first_turn(first, condition, camera=False)] == ["Help.", "Is it hot?"]
    assert second_turn(third, condition, "Yes.")[-1]["content"] == "And this?"  # an empty scene gives no block
    merged = merge_turns(first_turn(first, condition))
    assert [m["content"] for m in merged] == ["Help.", "[Camera: A shelf.]\n[Camera: A pot 0.]\nIs it hot?"]


def test_the_judge_sees_scenes_and_anchors_and_nothing_that_tells(tmp_path: Path) -> None:
    task = load_clone(write_clone(tmp_path)).tasks[0]
    shown = judge_item(task, "The bowl.")
    for wanted in (
        "A shelf.",
        "A pot 0.",
        "A bowl 0.",
        "And this?",
        "The bowl.",
        "- bowl",
        "- pot",
        "- which",
        "- (none)",
    ):
        assert wanted in shown
    assert "SECRET" not in shown and "gold" not in shown.lower()


@pytest.mark.parametrize(
    ("raw", "label"),
    [
        ('{"selected_label": "prior"} no: {"selected_label": "current", "rationale": "r"}', "current"),
        ("thinking about prior\nselected_label: clarify\nselected_label: `abstain`", "abstain"),
        ("It is prior context but current wins.", "abstain"),
        ("", "abstain"),
        ('{"selected_label": "both"}', None),
        ('{"selected_label": "current"', "current"),
    ],
)
def test_verdicts(raw: str, label: str | None) -> None:
    assert read_verdict(raw).label == label


def test_families_need_a_word_for_their_own() -> None:
    assert family_of("openai:gpt-4.1-mini") == "openai" and family_of("hf:/m/Llama-3.1-8B") == "llama"
    assert family_of("hf:runs/tutor1") is None and family_of("openrouter/anthropic/claude-x") == "claude"
    assert resolve_family("auto", "openai:gpt-4.1", "smollm2") == ("openai", "auto")
    assert resolve_family("smollm", "smollm2", "smollm2") == ("smollm", "explicit")
    with pytest.raises(ValueError, match=r"judge\.family=smollm"):
        resolve_family("auto", "smollm2", "hf:smollm2")
    with pytest.raises(ValueError, match=r"give judge\.family"):
        resolve_family("auto", "hf:/models/mine", "smollm2")


def test_published_points() -> None:
    score = primary_score(Rate(39, 46), Rate(22, 40))
    assert score is not None
    assert [round(value, 6) for value in score] == [0.698913, 0.602174, 0.794022]
    # 103 of 166 agree, and both raters' 332 labels are 9, 104, 104 and 115 of each kind.
    agreed = ["current"] * 4 + ["prior"] * 32 + ["clarify"] * 32 + ["abstain"] * 35
    differing = [("abstain", "prior")] * 23 + [("abstain", "clarify")] * 22 + [("prior", "clarify")] * 17
    differing += [("current", "clarify")]
    first, second = ([*agreed, *(pair[side] for pair in differing)] for side in (0, 1))
    counts = sorted((first + second).count(label) for label in LABELS)
    assert len(first) == len(second) == 166 and counts == [9, 104, 104, 115]
    assert sum(a == b for a, b in zip(first, second, strict=True)) / 166 == pytest.approx(0.6204819, abs=5e-8)
    assert fleiss_kappa(first, second) == pytest.approx(0.4443588, abs=5e-8)
    assert math.isnan(fleiss_kappa(["prior"], ["prior"]))
    assert primary_score(Rate(1, 1), Rate(0, 0)) is None


def test_code_signals_match_whole_words(tmp_path: Path) -> None:
    task = load_clone(write_clone(tmp_path)).tasks[0]
    assert implied_label(code_signals("The Bowl.", task)) == "current"
    assert implied_label(code_signals("A bowling alley", task)) is None
    assert implied_label(code_signals("The pot or the bowl", task)) is None
    assert implied_label(code_signals("I can\u2019t tell the bowl", task)) == "abstain"


def test_a_run_is_judged_reported_and_never_asked_twice(tmp_path: Path) -> None:
    clone = load_clone(write_clone(tmp_path / "clone"))
    candidate = Scripted("smollm2", about_the_bowl)
    judge, other = Scripted("judge", says("current")), Scripted("other", says("prior"))
    seats = {
        "judge": Seat(model=judge, family="x", resolution="explicit"),
        "ranking": Seat(model=other, family="y", resolution="explicit"),
    }
    config = BenchConfig(root=str(clone.root))
    for _ in range(2):
        run = run_bench(clone, config, ChatAdapter(candidate), seats, folder=tmp_path / "out", harness=QUIET)
    assert candidate.asked == 8 * 2 * 2 and judge.asked == other.asked <= 8 * 2
    found = summary(run)["conditions"]["baseline"]
    assert found["recall"]["current"]["hits"] == 2 and found["recall"]["prior"]["hits"] == 0
    assert found["primary_score"]["value"] == 0.5
    page = write_findings(tmp_path / "out", run)
    text = page.read_text()
    heads = [line for line in text.splitlines() if line.startswith("## ")]
    assert heads[0] == "## Benchmark summary" and heads[-1] == "## Reproducibility manifest" and len(heads) == 10
    assert "gemini-2.5-flash, Gemini judge (published)" in text and "Observed agreement: 0.0 %" in text
    rows = [json.loads(line) for line in (tmp_path / "out" / "transcripts.jsonl").read_text().splitlines()]
    assert len(rows) == 16 and rows[0]["turn_1_response"] == "Yes, hot." and rows[0]["turn_2_passed"]


def test_unknown_labels_stop_or_are_counted_and_silence_abstains(tmp_path: Path) -> None:
    clone = load_clone(write_clone(tmp_path / "clone"))
    silent = Scripted("smollm2", lambda conversation: "" if len(conversation) > 3 else "Yes.")
    seats = {"judge": Seat(model=Scripted("judge", says("both")), family="x", resolution="explicit")}
    config = BenchConfig(root=str(clone.root), conditions=("baseline",), camera=False)
    run = run_bench(clone, config, ChatAdapter(silent), seats, folder=tmp_path / "a", harness=QUIET)
    assert {trial.label for trial in run.trials} == {"abstain"}
    talker = ChatAdapter(Scripted("smollm2", about_the_bowl))
    with pytest.raises(ValueError, match="unknown_label=count"):
        run_bench(clone, config, talker, seats, folder=tmp_path / "b", harness=QUIET)
    counting = BenchConfig(root=str(clone.root), conditions=("baseline",), camera=False, unknown_label="count")
    run = run_bench(clone, counting, talker, seats, folder=tmp_path / "b", harness=QUIET)
    assert run.unscored == 8 and "8 of 8 verdicts name no label" in render_findings(run)
    rambling = Scripted("judge", lambda conversation: "A pegboard on the wall. A pegboard on the wall.")
    seats = {"judge": Seat(model=rambling, family="x", resolution="explicit")}
    run = run_bench(clone, config, talker, seats, folder=tmp_path / "c", harness=QUIET)
    assert run.unscored == 0 and {trial.label for trial in run.trials} == {"abstain"}
    assert "8 of 8 replies of the judge hold no verdict and count as abstain" in render_findings(run)


class Tone:
    """A speaker whose words are noise at five microphones, one length a letter."""

    stamp = "tone"

    def say(self, words: str) -> torch.Tensor:
        return torch.full((5, 1600 * len(words)), 0.01)


def test_spoken_turns_put_sound_where_words_were() -> None:
    assert split_turn("[Camera: a [red] cup]\nIs it?") == ("[Camera: a [red] cup]", "Is it?")
    assert split_turn("[Camera: a shelf]") == ("[Camera: a shelf]", "") and split_turn("Hi") == ("", "Hi")
    messages = [
        {"role": "system", "content": "Help."},
        {"role": "user", "content": "[Camera: a shelf]"},
        {"role": "user", "content": "[Camera: a cup]\nHot?"},
        {"role": "assistant", "content": "Yes."},
        {"role": "user", "content": "So?"},
    ]
    turns, sounds = spoken_turns(messages, Tone())  # type: ignore[arg-type]
    assert turns[:2] == messages[:2] and turns[3] == messages[3]
    assert turns[2]["content"] == [{"type": "text", "text": "[Camera: a cup]\n"}, {"type": "audio"}]
    assert turns[4]["content"] == [{"type": "audio"}]
    assert [sound.shape[1] for sound in sounds] == [1600 * 4, 1600 * 3]


def test_a_checkpoint_takes_the_test_with_ears(tmp_path: Path, ckpt: Path) -> None:
    clone = load_clone(write_clone(tmp_path / "clone", count=2))
    model = CheckpointAdapter(ckpt, max_new_tokens=2, device="cpu")
    hearing = SpokenAdapter(model, Tone())  # type: ignore[arg-type]
    config = BenchConfig(root=str(clone.root), conditions=("baseline",))
    run = run_bench(clone, config, hearing, {}, folder=tmp_path / "out", harness=QUIET)
    assert len(run.trials) == 2 and all(trial.label is None for trial in run.trials)
    assert hearing.identity["input"] == "spoken turns" and model.identity["input"] == "audio"
