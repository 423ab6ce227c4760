"""VoxEval: the published layout and its arithmetic, the audio prompt, the extractor, scores, and what we build."""

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch

from wearllama.evaluation.adapters import CheckpointAdapter
from wearllama.evaluation.evaluate import evaluate, results
from wearllama.evaluation.harness import HarnessConfig
from wearllama.evaluation.voxeval import build as building
from wearllama.evaluation.voxeval.benchmark import VoxEvalConfig, load_voxeval
from wearllama.evaluation.voxeval.build import BuildConfig, build, choose_questions, plan, spoken_question
from wearllama.evaluation.voxeval.command import BENCHMARK, write_report
from wearllama.evaluation.voxeval.extract import extract, extract_final
from wearllama.evaluation.voxeval.layout import ALTERED, GROUP_OF, LEFT_OUT, QUESTIONS, SETTINGS, VOICES, Item
from wearllama.evaluation.voxeval.linguistic import STYLES
from wearllama.evaluation.voxeval.prompt_audio import PromptReader
from wearllama.evaluation.voxeval.questions import Written, read_questions
from wearllama.evaluation.voxeval.spoken_answers import SpokenAnswers
from wearllama.evaluation.voxeval.tables import condition_table, voxeval_tables
from wearllama.simulation.conditions import parse_conditions

QUIET = HarnessConfig(progress=False, ttft_items=0, batch_size=2)
OPTIONS = ("red", "dark red", "blue", "forty-two")


def write_tone(path: Path, seconds: float, level: float = 0.1, rate: int = 24_000) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, np.full(int(rate * seconds), level, np.float32), rate)


def write_layout(root: Path, settings: Sequence[str] = ("alloy",), subjects: Sequence[str] = ("anatomy_4o",)) -> Path:
    (root / "test").mkdir(parents=True)
    for subject in subjects:
        rows = "".join(f'"What, {n}?",red,dark red,blue,forty-two,{"ABCD"[n % 4]}\n' for n in range(3))
        (root / "test" / f"{subject}.csv").write_text(rows)
        for setting in settings:
            for n in range(3):
                write_tone(root / "test" / setting / subject / f"{n:08d}.mp3", 1.0 + n / 2)
            for n in range(5):
                folder = root / "all_fewshot_examples" / setting / subject
                write_tone(folder / f"{n:08d}_question.mp3", 0.5, 0.2)
                write_tone(folder / f"{n:08d}_answer.mp3", 0.25, 0.3)
    return root


def test_the_eleven_settings_arithmetic(tmp_path: Path) -> None:
    assert len(SETTINGS) == len(set(SETTINGS)) == 11 and QUESTIONS * len(SETTINGS) == 153_318
    assert QUESTIONS * 26 != 153_318  # the 26 fine conditions sit inside the eleven folders
    kinds = [kind for names in BuildConfig().recorded.values() for kind in {name.split(":")[0] for name in names}]
    assert len(VOICES) + len(STYLES) + len(kinds) == 26 and len(ALTERED) == 5
    assert len(GROUP_OF) == 56 and not set(LEFT_OUT) & set(GROUP_OF)
    root = write_layout(tmp_path / "v", SETTINGS, ("anatomy_4o", "virology_4o"))
    assert len(load_voxeval(root, VoxEvalConfig(settings=SETTINGS))) == 11 * 2 * 3


def test_prompts_are_examples_and_question_with_silences_and_an_end_that_is_kept(tmp_path: Path) -> None:
    root = write_layout(tmp_path / "v")
    example = load_voxeval(root, VoxEvalConfig())[2]
    seconds = 5 * (0.5 + 0.25) + 10 * 1.0 + 2.0
    assert example.id == "alloy/anatomy/00000002" and example.target == "C"
    assert example.seconds == pytest.approx(seconds, abs=0.05) and example.metadata["cut_s"] == 0
    assert example.audio is not None
    audio_CN = PromptReader(root)(example.audio["mixture"], 0)
    assert audio_CN.shape == (1, pytest.approx(16_000 * seconds, abs=800))
    # Backwards: the question, a second of nothing, the last answer.
    assert audio_CN[0, -16_000].item() == pytest.approx(0.1, abs=0.02)
    assert audio_CN[0, -int(2.5 * 16_000)].item() == 0
    assert audio_CN[0, -int(3.1 * 16_000)].item() == pytest.approx(0.3, abs=0.05)
    short = load_voxeval(root, VoxEvalConfig(keep_seconds=4))[2]
    assert short.seconds == 4 and short.metadata["cut_s"] == pytest.approx(seconds - 4, abs=0.05)
    assert short.audio is not None
    kept_CN = PromptReader(root)(short.audio["mixture"], 0)
    assert torch.equal(kept_CN, audio_CN[:, -64_000:])


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    root = write_layout(tmp_path / "v")
    with pytest.raises(ValueError, match="wanted 6"):
        load_voxeval(root, VoxEvalConfig(shots=6))
    with pytest.raises(ValueError, match=r"voxeval\.sample_rate"):
        load_voxeval(root, VoxEvalConfig(sample_rate=44_100))
    (root / "test" / "alloy" / "anatomy_4o" / "00000001.mp3").unlink()
    with pytest.raises(ValueError, match="2 recordings for 3 questions"):
        load_voxeval(root, VoxEvalConfig(shots=0))
    with pytest.raises(ValueError, match="unknown \\['fabel'\\]"):
        VoxEvalConfig(settings=("fabel",))
    with pytest.raises(ValueError, match="mode=cot is for"):
        VoxEvalConfig(mode="cot", subjects=("anatomy",))


@pytest.mark.parametrize(
    ("reply", "whole", "final"),
    [
        ("The answer is C.", "C", "C"),
        ("the correct answer is: (b) dark red", "B", "B"),
        ("B", "B", "B"),
        ("b) dark red", "B", "B"),
        ("I think the answer is see.", "C", "C"),
        ("The answer is A", "A", "A"),
        ("The answer is a number that nobody knows", None, None),
        ("The answer is be careful", None, None),
        ("Option A is wrong. The answer is D.", "D", "D"),
        ("The answer is B. No: the answer is C.", "C", "C"),
        ("It could be (A) or (B).", None, None),
        ("It is (D), surely", "D", "D"),
        ("It must be dark red", "B", "B"),
        ("Red or blue, who knows", None, None),
        ("42", "D", "D"),
        ("The sky is blue. I stop here.", "C", None),
        ("A bird in the hand", None, None),
        ("", None, None),
        ("I do not know", None, None),
        ("A. red\nB. dark red\nC. blue", None, "C"),
        ("Option A: red. Option B: dark red. Option C: blue. Option D: forty-two.", None, "D"),
        ("I would go with option B", "B", "B"),
        ("Option C", "C", "C"),
    ],
)
def test_the_extractor_reads_or_does_not_and_never_guesses(reply: str, whole: str | None, final: str | None) -> None:
    assert (extract(reply, OPTIONS), extract_final(reply, OPTIONS)) == (whole, final)


class Says:
    """An adapter that answers the same to everything."""

    max_audio_seconds = None

    def __init__(self, answer: str) -> None:
        self.generation: dict[str, Any] = {}
        self.identity = {"model": answer, "weights": "none", "input": "audio"}
        self.answer, self.heard = answer, []  # type: ignore[var-annotated]

    def generate(self, examples: Any, clips: Any) -> list[str]:
        self.heard += [None if clip is None else clip.audio_MN for clip in clips]
        return [self.answer] * len(examples)

    def first_token_seconds(self, example: Any, clip: Any) -> None:
        return None


def test_a_run_under_conditions_is_one_table(tmp_path: Path) -> None:
    root = write_layout(tmp_path / "v", ("alloy", "echo"))
    config = VoxEvalConfig(settings=("alloy", "echo"), shots=0)
    examples, reader = load_voxeval(root, config), PromptReader(root)
    found = []
    adapter = Says("The answer is A.")
    for condition in parse_conditions(["clean", "gain:-10", "tempo:2"]):
        heard = examples if condition is None else reader.under(examples, condition)
        systems = evaluate(
            BENCHMARK, heard, adapter, root=root, folder=tmp_path / "out", harness=QUIET,  # type: ignore[arg-type]
            controls=("majority",), renderer=reader,
        )  # fmt: skip
        found.append(("clean" if condition is None else condition.name, results(BENCHMARK, heard, systems, "v")))
    assert len(adapter.heard) == 3 * 6  # a condition is another recording, hence another prediction
    clean, quiet, fast = adapter.heard[0], adapter.heard[6], adapter.heard[12]
    assert quiet.abs().max() < 0.4 * clean.abs().max() and fast.shape[1] == pytest.approx(clean.shape[1] / 2, rel=0.02)
    rates = found[0][1]["systems"][0]["rates"]
    assert rates["alloy"]["hits"] == 1 and rates["all"]["total"] == 6 and rates["all/parsed"]["rate"] == 1
    table = voxeval_tables(found)[0]
    assert table.header == ("system", "alloy", "echo", "all") and len(table.rows) == 3 * 2 + 6
    assert ("Moshi (published)", "12.16 %", "12.21 %", "-") in table.rows
    page = write_report(tmp_path / "out", found, config, examples)
    assert "By fine condition" in page.read_text()
    write_report(tmp_path / "other", found[:1], config, examples)
    beside = condition_table([tmp_path / "out", tmp_path / "other"])
    assert [row[0] for row in beside.rows] == ["clean", "gain:-10", "tempo:2"]
    assert beside.rows[0][1] == beside.rows[0][2] != beside.rows[1][2] == "-" and "constant answer" in beside.note
    (tmp_path / "none").mkdir()
    (tmp_path / "none" / "results.json").write_text('{"benchmark": "wearvox"}')
    with pytest.raises(ValueError, match="none holds no VoxEval run"):
        condition_table([tmp_path / "out", tmp_path / "none"])


def test_unparsable_is_wrong_and_counted(tmp_path: Path) -> None:
    root = write_layout(tmp_path / "v")
    examples = load_voxeval(root, VoxEvalConfig(shots=0))
    (system,) = evaluate(
        BENCHMARK, examples, Says("no idea"), root=root, folder=tmp_path / "o", harness=QUIET,  # type: ignore[arg-type]
        renderer=PromptReader(root),
    )  # fmt: skip
    assert system.summary["actions"] == {"alloy": {"unparsable": 3}} and system.summary["rates"]["alloy"].hits == 0


def test_a_checkpoint_hears_prompts(tmp_path: Path, ckpt: Path) -> None:
    root = write_layout(tmp_path / "v")
    examples = load_voxeval(root, VoxEvalConfig(shots=1, limit=2))
    model = CheckpointAdapter(ckpt, max_new_tokens=2, device="cpu")
    first, silent = evaluate(
        BENCHMARK, examples, model, root=root, folder=tmp_path / "o", harness=QUIET, controls=("silence",),
        renderer=PromptReader(root),
    )  # fmt: skip
    assert len(first.predictions) == 2 and silent.identity["input"] == "silence"


def test_spoken_answers_are_written_down_and_missing_ones_named(tmp_path: Path) -> None:
    root = write_layout(tmp_path / "v")
    examples = load_voxeval(root, VoxEvalConfig(shots=0, input="text"))

    class Recogniser:
        identity = "ears"

        def __call__(self, audio_N: Any) -> str:
            return "The answer is see."

    path = tmp_path / "said" / "alloy" / "anatomy" / "00000002.wav"
    path.parent.mkdir(parents=True)
    soundfile.write(path, 0.1 * np.sin(np.arange(8_000)), 16_000)
    said = SpokenAnswers(tmp_path / "said", Recogniser()).generate(examples, [None] * 3)
    assert said[2] == "The answer is see." and "no recording" in said[0].error  # type: ignore[attr-defined]


QUESTIONS_EN = """
dataset_name: x
process_docs: !function utils.x
fewshot_config:
  samples:
  - question: "What is 2 + 2?\\n\\n(A) 3 (B) 4\\n(C) 5 (D) 22"
    target: "Let's think step by step. 2 + 2 = 4. The answer is (B)."
  - question: "What is 3 * 3? (A) 6 (B) 9 (C) 12 (D) 33"
    target: "Let's think step by step. It is 9. The answer is (B)."
"""
QUESTIONS_DE = """
fewshot_config:
  samples:
  - input_choice_list: {A: "1", B: "2", C: "3", D: "-4"}
    input_correct_responses: [D]
    input_question: "Wie gro&szlig;?"
"""


def write_source(root: Path) -> Path:
    for language, text in (("en", QUESTIONS_EN), ("de", QUESTIONS_DE)):
        (root / language).mkdir(parents=True)
        prefix = "mmlu_" if language == "en" else "mmlu_de_"
        for subject in ("college_mathematics", "high_school_computer_science"):
            (root / language / f"{prefix}{subject}.yaml").write_text(text)
    return root


def test_questions_of_the_package(tmp_path: Path) -> None:
    source = write_source(tmp_path / "s")
    (name,) = english = read_questions(source)
    assert name == "college_mathematics" and len(english[name]) == 2
    assert english[name][0] == Written(
        item=Item("What is 2 + 2?", ("3", "4", "5", "22"), "B"), worked="2 + 2 = 4. The answer is (B)."
    )
    assert read_questions(source, "de")[name][0].item == Item("Wie groß?", ("1", "2", "3", "-4"), "D")
    with pytest.raises(ValueError, match="fr/mmlu"):
        read_questions(source, "fr")


def test_a_built_folder_is_one_that_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []

    def speak(words: str, voice: str) -> np.ndarray:
        said.append(words)
        return np.full(8_000, 0.25, np.float32)

    monkeypatch.setattr(building, "synthesize", speak)
    questions = read_questions(write_source(tmp_path / "s"))
    config = BuildConfig(settings=("alloy", "alloy_tempo", "alloy_linguistic_variation"), shots=1)
    out = tmp_path / "v"
    assert build(questions, config, out, progress=False) == len(plan(questions, config)) == 3 * (1 + 2 + 2 + 1)
    assert build(questions, config, out, progress=False) == 0
    assert said[0] == (
        "What is two plus two? Please choose from A, B, C and D. Option A: three. Option B: four. Option C: five. "
        "Option D: twenty-two."
    )
    assert "The answer is B: nine." in said and "It is nine. The answer is (B)." in said
    told = json.loads((out / "test/alloy_tempo/conditions.jsonl").read_text())
    assert told == {"file": "college_mathematics/00000000_question.flac", "condition": "tempo:0.5"}
    assert soundfile.info(out / "test/alloy_tempo" / told["file"]).duration == pytest.approx(1.0, abs=0.01)
    for settings in (("alloy",), ("alloy_tempo",)):
        (example,) = load_voxeval(out, VoxEvalConfig(settings=settings, shots=1))
    assert example.metadata["fine"] == "tempo:0.5" and example.seconds == pytest.approx(
        4.5, abs=0.1
    )  # both halves as slow
    (reasoned,) = load_voxeval(out, VoxEvalConfig(mode="cot", shots=1, subjects=("college_mathematics",)))
    assert reasoned.seconds == pytest.approx(4 * 0.5 + 3, abs=0.01)  # with the instruction
    (read,) = load_voxeval(out, VoxEvalConfig(input="text", shots=1))
    assert [m["role"] for m in read.messages] == ["system", "user", "assistant", "user"]
    with pytest.raises(ValueError, match="was made with other \\['shots'\\]"):
        build(questions, BuildConfig(shots=0), out, progress=False)


def test_long_questions_can_be_left_out(tmp_path: Path) -> None:
    questions = read_questions(write_source(tmp_path / "s"))
    lengths = {len(spoken_question(written.item)) for items in questions.values() for written in items}
    kept = choose_questions(questions, BuildConfig(max_characters=min(lengths)))
    (written,) = [written for items in kept.values() for written in items]
    assert len(spoken_question(written.item)) == min(lengths) < max(lengths)
    with pytest.raises(ValueError, match=r"build\.max_characters=3 leaves no question"):
        choose_questions(questions, BuildConfig(max_characters=3))
    with pytest.raises(ValueError, match=r"build\.max_characters is 0"):
        BuildConfig(max_characters=0)


def test_linguistic_styles_change_the_words_and_repeat(tmp_path: Path) -> None:
    text = "Which of the following best describes the balance that the Supreme Court has struck in this matter?"
    for name, style in STYLES.items():
        changed = style(text, random.Random(1), 3)
        assert changed != text, name
        assert changed == style(text, random.Random(1), 3), name
