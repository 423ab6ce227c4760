"""Settings that a run would not read are refused by name, before anything is loaded or asked."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from wearllama.evaluation.cascade import AsrConfig
from wearllama.evaluation.chat import ChatConfig, EndpointConfig
from wearllama.evaluation.commands import RunCommand, run_benchmark
from wearllama.evaluation.context_bench.command import ContextBenchCommand, JudgeSettings
from wearllama.evaluation.context_bench.run import BenchConfig
from wearllama.evaluation.context_bench.spoken import SpeechConfig
from wearllama.evaluation.harness import HarnessConfig
from wearllama.evaluation.judging import JudgesConfig
from wearllama.evaluation.models import ModelSettings
from wearllama.evaluation.voxeval.benchmark import VoxEvalConfig
from wearllama.evaluation.voxeval.command import VoxEvalCommand

JUDGE = ChatConfig(model="openai:judge")
SCORE_WRONG = HarnessConfig(bad_item="score_wrong")
ASKED_TWICE = EndpointConfig(concurrency=2)


@pytest.mark.parametrize(
    ("benchmark", "judges", "message"),
    [
        ("vgbench", JudgesConfig(qa=JUDGE), r"judges\.qa\.model=openai:judge is not read by vgbench.*are side_talk"),
        ("wearvox", JudgesConfig(side_talk=JUDGE), r"judges\.side_talk\.model.*by wearvox.*are qa, translation"),
        ("asr", JudgesConfig(qa=JUDGE), r"judges\.qa\.model=openai:judge is not read by asr, which nobody judges"),
        ("wearvox", JudgesConfig(qa=ChatConfig(endpoint=ASKED_TWICE)), r"endpoint\.concurrency=2.*without judges\.qa"),
        ("vgbench", JudgesConfig(again=True), r"judges\.again=True is not read without a judge"),
    ],
)
def test_judges_of_another_benchmark(benchmark: str, judges: JudgesConfig, message: str, tmp_path: Path) -> None:
    command = RunCommand(ckpt=str(tmp_path), judges=judges, out=str(tmp_path))
    with pytest.raises(ValueError, match=message):
        run_benchmark(benchmark, command, [], root=tmp_path, channels=5)


def test_own_judges_are_taken() -> None:
    JudgesConfig(qa=JUDGE, translation=JUDGE, again=True).check("wearvox")
    JudgesConfig(side_talk=JUDGE, prompts="mine.yaml").check("vgbench")
    JudgesConfig().check("asr")


def context_bench(**fields: Any) -> ContextBenchCommand:
    return ContextBenchCommand(context_bench=BenchConfig(root="clone"), **fields)


def voxeval(**fields: Any) -> VoxEvalCommand:
    return VoxEvalCommand(data="data", **fields)


READ = VoxEvalConfig(input="text")


@pytest.mark.parametrize(
    ("make", "fields", "message"),
    [
        (ChatConfig, {"model": "openai:x", "dtype": "bfloat16"}, r"dtype=bfloat16 is not read by openai text models"),
        (ChatConfig, {"model": "smollm2", "endpoint": ASKED_TWICE}, r"endpoint\.concurrency=2 .*by smollm2"),
        (ModelSettings, {"ckpt": "x", "llm": JUDGE}, r"llm\.model=openai:judge is not read by ckpt models"),
        (ModelSettings, {"model": "hf:x", "asr": AsrConfig(beam_size=3)}, r"asr\.beam_size=3 is not read by hf models"),
        (context_bench, {"candidate": JUDGE, "device": "cpu"}, r"device=cpu is not read without ckpt; .*candidate"),
        (context_bench, {"ckpt": "x", "candidate": ChatConfig(batch_size=2)}, r"candidate\..* is not read beside ckpt"),
        (context_bench, {"ckpt": "x", "speech": SpeechConfig(seed=1)}, r"speech\.seed=1 is not read with turns=text"),
        (context_bench, {"ckpt": "x", "judge": JudgeSettings(family="llama")}, r"judge\.family=llama .* judge\.model"),
        (context_bench, {"ckpt": "x", "harness": SCORE_WRONG}, r"harness\.bad_item=score_wrong: .* wanted error"),
        (voxeval, {"reader": JUDGE, "voxeval": READ, "dtype": "float16"}, r"dtype=float16 .*with reader\.model"),
        (voxeval, {"spoken_answers": "x", "look_ahead": 1}, r"look_ahead=1 is not read with spoken_answers"),
        (voxeval, {"ckpt": "x", "reader": ChatConfig(batch_size=2)}, r"reader\.batch_size=2 .*without reader\.model"),
    ],
)  # fmt: skip
def test_what_is_not_read_is_named(make: Callable[..., Any], fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(**fields)


def test_what_is_read_is_taken() -> None:
    voxeval(spoken_answers="x", asr=AsrConfig(beam_size=3))
    voxeval(reader=ChatConfig(model="smollm2", batch_size=2), voxeval=READ)
    context_bench(ckpt="x", turns="spoken", speech=SpeechConfig(noise_type="Music", snr_db=5.0), device="cpu")
    context_bench(candidate=ChatConfig(model="smollm2", device="cpu"), judge=JudgeSettings(model="openai:j"))


def test_a_kind_of_noise_needs_its_level() -> None:
    with pytest.raises(ValueError, match=r"speech\.noise_type=Music is not heard without speech\.snr_db"):
        SpeechConfig(noise_type="Music")
