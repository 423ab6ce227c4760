"""The harness: every id once, whatever the ranks; nothing reused that could differ; the controls."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import soundfile
import torch

from wearllama.audio.io import AudioError, write_audio
from wearllama.data.manifest import Clip, Example
from wearllama.evaluation.adapters import CheckpointAdapter, MajorityAdapter, checkpoint_folder
from wearllama.evaluation.harness import HarnessConfig, keys_of, predict, run
from wearllama.evaluation.predictions import collect, prediction_key, read_log
from wearllama.evaluation.wearvox import WearVoxConfig, load_wearvox

QUIET = HarnessConfig(progress=False, batch_size=3, ttft_items=1)
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def examples(wearvox_data: Path) -> list[Example]:
    return load_wearvox(wearvox_data, WearVoxConfig())


@pytest.fixture(scope="module")
def model(ckpt: Path) -> CheckpointAdapter:
    return CheckpointAdapter(ckpt, max_new_tokens=4, device="cpu")


class Echo:
    """A real adapter without a network: says its tag and the example's id."""

    max_audio_seconds: float | None = None

    def __init__(self, tag: str = "a", tokens: int = 8) -> None:
        self.identity = {"model": tag, "weights": tag, "input": "audio"}
        self.generation = {"max_new_tokens": tokens}
        self.calls: list[str] = []

    def generate(self, examples: list[Example], clips: list[Clip | None]) -> list[str]:
        self.calls += [example.id for example in examples]
        return [f"{self.identity['model']} {example.id}" for example in examples]

    def first_token_seconds(self, example: Example, clip: Clip | None) -> float | None:
        return 0.001


def lines(folder: Path) -> list[dict]:
    return [json.loads(line) for path in folder.glob("predictions-*.jsonl") for line in path.read_text().splitlines()]


def test_each_id_once_on_two_ranks_at_the_same_time(
    examples: list[Example], wearvox_data: Path, tmp_path: Path
) -> None:
    adapters = [Echo(), Echo()]
    arguments = {"root": wearvox_data, "folder": tmp_path, "config": QUIET, "world_size": 2}
    threads = [
        threading.Thread(target=predict, args=(examples, adapters[rank]), kwargs={**arguments, "rank": rank})
        for rank in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(adapters[0].calls + adapters[1].calls) == sorted(example.id for example in examples)
    assert adapters[0].calls and adapters[1].calls
    found = collect(examples, keys_of(examples, adapters[0], wearvox_data), tmp_path)
    assert [prediction.id for prediction in found] == [example.id for example in examples]


def test_a_late_rank_repeats_nothing(examples: list[Example], wearvox_data: Path, tmp_path: Path) -> None:
    for rank in (0, 1):  # rank 1 starts when rank 0 is through
        predict(examples, Echo(), root=wearvox_data, folder=tmp_path, config=QUIET, rank=rank, world_size=2)
    assert len(lines(tmp_path)) == len({line["id"] for line in lines(tmp_path)}) == len(examples)


def test_resumes_on_another_number_of_ranks(examples: list[Example], wearvox_data: Path, tmp_path: Path) -> None:
    predict(examples, Echo(), root=wearvox_data, folder=tmp_path, config=QUIET, rank=2, world_size=3)
    log = tmp_path / "predictions-00002.jsonl"
    log.write_bytes(log.read_bytes()[:-20])  # killed in the middle of a line
    whole = [line for line in log.read_text().splitlines() if line.endswith("}")]
    again = Echo()
    found = run(examples, again, root=wearvox_data, folder=tmp_path, config=QUIET)
    assert len(again.calls) == len(examples) - len(whole)
    assert [prediction.id for prediction in found] == [example.id for example in examples]


def test_a_torn_line_does_not_swallow_the_next(examples: list[Example], wearvox_data: Path, tmp_path: Path) -> None:
    (tmp_path / "predictions-00000.jsonl").write_text('{"id": "row-0", "ra')
    run(examples, Echo(), root=wearvox_data, folder=tmp_path, config=QUIET)
    assert len(read_log(tmp_path)) == len(examples)


@pytest.mark.parametrize("change", ["prompt", "tokens", "weights", "audio"])
def test_what_differs_is_never_reused(change: str, examples: list[Example], wearvox_data: Path, tmp_path: Path) -> None:
    root = tmp_path / "data"
    (root / "wav").mkdir(parents=True)
    (root / "wav_mc").mkdir()
    one = examples[0]
    for name in ("mc", "beam"):
        (root / one.audio[name]).write_bytes((wearvox_data / one.audio[name]).read_bytes())
    run([one], Echo(), root=root, folder=tmp_path, config=QUIET)
    same = Echo()
    run([one], same, root=root, folder=tmp_path, config=QUIET)
    assert same.calls == []
    other = Echo()
    if change == "prompt":
        one = replace(one, messages=[{"role": "system", "content": "Be brief."}, *one.messages[1:]])
    elif change == "tokens":
        other = Echo(tokens=9)
    elif change == "weights":
        other.identity["weights"] = "b"
    else:
        write_audio(root / one.audio["beam"], 0.01 * torch.ones(1, int(one.seconds * 16_000)))
    found = run([one], other, root=root, folder=tmp_path, config=QUIET)
    assert other.calls == [one.id]
    assert found[0].key == prediction_key(one, other.identity, other.generation, root)


def test_weights_hash_follows_the_weights(
    ckpt: Path, model: CheckpointAdapter, make_checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    other = CheckpointAdapter(make_checkpoint(tmp_path / "tiny", seed=1))
    assert other.identity["weights"] != model.identity["weights"]
    assert CheckpointAdapter(ckpt).identity["weights"] == model.identity["weights"]


def test_model_batch_equals_alone(
    examples: list[Example], model: CheckpointAdapter, wearvox_data: Path, tmp_path: Path
) -> None:
    batched = run(examples, model, root=wearvox_data, folder=tmp_path / "a", config=replace(QUIET, batch_size=8))
    alone = run(examples, model, root=wearvox_data, folder=tmp_path / "b", config=replace(QUIET, batch_size=1))
    assert [p.raw for p in batched] == [p.raw for p in alone]
    timed = [p for p in alone if "ttft_s" in p.latency]
    assert {p.task for p in timed} == {e.task for e in examples} and all(p.latency["ttft_s"] > 0 for p in timed)


def test_silence_is_another_input(model: CheckpointAdapter, examples: list[Example]) -> None:
    heard: list[torch.Tensor] = []
    deaf = model.with_input("silence")
    for adapter in (model, deaf):
        clip = Clip(torch.ones(5, 4000), torch.ones(4000))
        _, audio = adapter._prepare(examples[0], clip)
        heard.append(torch.stack(tuple(audio)))
    assert heard[0].abs().sum() > 0 and heard[1].abs().sum() == 0 and heard[0].shape == heard[1].shape
    assert deaf.identity != model.identity and deaf.model is model.model


def test_majority_is_the_best_constant(examples: list[Example]) -> None:
    majority = MajorityAdapter(examples)
    said = dict(zip([e.id for e in examples], majority.generate(examples, [None] * len(examples)), strict=True))
    assert {said[e.id] for e in examples if e.task in ("tool_call", "non-assistant-directed")} == {"[Mute]"}
    assert said["row-7"] == "blue"


def test_too_long_stops_before_the_run_or_is_counted_as_wrong(
    examples: list[Example], wearvox_data: Path, tmp_path: Path
) -> None:
    short = Echo()
    short.max_audio_seconds = 0.55
    with pytest.raises(ValueError, match=r"recordings exceed the model's 0\.55 s \(first: row-3"):
        run(examples, short, root=wearvox_data, folder=tmp_path, config=QUIET)
    found = run(examples, short, root=wearvox_data, folder=tmp_path, config=replace(QUIET, bad_item="score_wrong"))
    assert [p.id for p in found if p.error] == [e.id for e in examples if e.seconds > 0.55]
    assert not set(short.calls) & {p.id for p in found if p.error}


def test_unreadable_recording(examples: list[Example], tmp_path: Path) -> None:
    (tmp_path / "wav").mkdir()
    (tmp_path / "wav_mc").mkdir()
    audio = noise_with_nan()
    write = {"mc": audio, "beam": audio[:1]}
    for name, samples in write.items():
        soundfile.write(tmp_path / examples[0].audio[name], samples.T.numpy(), 16_000, subtype="FLOAT")
    with pytest.raises(AudioError, match=examples[0].audio["mc"]):
        run(examples[:1], Echo(), root=tmp_path, folder=tmp_path, config=QUIET)
    config = replace(QUIET, bad_item="score_wrong")
    (found,) = run(examples[:1], Echo(), root=tmp_path, folder=tmp_path, config=config)
    assert "NaN" in found.error or "nan" in found.error.lower()


def noise_with_nan() -> torch.Tensor:
    audio = 0.1 * torch.randn(5, 4800, generator=torch.Generator().manual_seed(0))
    audio[2, 100] = torch.nan
    return audio


SCRIPT = """
import importlib.util
spec = importlib.util.spec_from_file_location("harness_tests", {tests!r})
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
from wearllama.evaluation.harness import run
from wearllama.evaluation.wearvox import WearVoxConfig, load_wearvox
examples = load_wearvox({data!r}, WearVoxConfig())
found = run(examples, module.Echo(), root={data!r}, folder={out!r}, config=module.QUIET)
assert [p.id for p in found] == [e.id for e in examples]
"""


def test_two_processes(wearvox_data: Path, examples: list[Example], tmp_path: Path) -> None:
    """As torchrun starts them: the ranks know each other by the environment and meet in the log."""
    script = tmp_path / "job.py"
    script.write_text(SCRIPT.format(tests=__file__, data=str(wearvox_data), out=str(tmp_path / "out")))
    ranks = [
        subprocess.Popen(
            [sys.executable, str(script)], cwd=ROOT, env={**os.environ, "RANK": str(rank), "WORLD_SIZE": "2"}
        )
        for rank in range(2)
    ]
    assert [rank.wait(timeout=300) for rank in ranks] == [0, 0]
    assert sorted(line["id"] for line in lines(tmp_path / "out")) == sorted(example.id for example in examples)
    assert {line["rank"] for line in lines(tmp_path / "out")} == {0, 1}


def test_a_run_that_did_not_finish_says_where_it_stopped(tmp_path: Path) -> None:
    for step in (20, 100):
        (tmp_path / f"checkpoint-{step}").mkdir()
    with pytest.raises(ValueError, match=r"the run is not finished, its last checkpoint is \S+checkpoint-100"):
        checkpoint_folder(tmp_path)
