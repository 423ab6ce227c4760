"""SFT over real files and the tiny model: resume, signals, global token loss, ranks, non-finite losses."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import set_seed

from wearllama.data.collate import Collator
from wearllama.data.sampling import BatchConfig
from wearllama.modeling.factory import ModelConfig, build_model, build_processor, load_checkpoint
from wearllama.training import callbacks
from wearllama.training.checkpoint import complete_checkpoints, completed_facts, last_complete_checkpoint
from wearllama.training.data import SftData, batch_sampler, load_sets
from wearllama.training.resume import announce
from wearllama.training.sft import FINAL, NonFiniteLossError

ROOT = Path(__file__).resolve().parents[2]


def losses(folder: Path) -> dict[int, float]:
    """Logged training loss by step."""
    history = json.loads((folder / "trainer_state.json").read_text())["log_history"]
    return {line["step"]: line["loss"] for line in history if "loss" in line}


def weights(run_dir: Path) -> dict[str, torch.Tensor]:
    return load_file(run_dir / FINAL / "model.safetensors")


def calls_at(number: int, action: Callable[[], None]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Wrap a collator so that its `number`-th call does something first."""

    def wrap(collate: Callable[..., Any]) -> Callable[..., Any]:
        count = 0

        def wrapped(rows: list[Any]) -> Any:
            nonlocal count
            count += 1
            if count == number:
                action()
            return collate(rows)

        return wrapped

    return wrap


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("whole")


@pytest.fixture
def whole(uninterrupted: Path, train: Callable[..., Any]) -> Path:
    """Six steps in one go."""
    if not (uninterrupted / FINAL).exists():
        train(uninterrupted)
    return uninterrupted


def assert_same_run(one: Path, other: Path) -> None:
    assert losses(one / "checkpoint-6") == losses(other / "checkpoint-6")
    left, right = weights(one), weights(other)
    assert left.keys() == right.keys()
    for name, tensor in left.items():
        assert torch.equal(tensor, right[name]), name


def test_stopped_by_a_signal_and_resumed_equals_uninterrupted(
    tmp_path: Path, whole: Path, train: Callable[..., Any]
) -> None:
    def twice() -> None:
        """As under Slurm and torchrun: the second is no second thought."""
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)

    stopped = train(tmp_path, collate=calls_at(3, twice))
    assert stopped.stopped_by == signal.SIGTERM and stopped.steps == 3
    assert not (tmp_path / FINAL).exists()
    assert last_complete_checkpoint(tmp_path) == tmp_path / "checkpoint-3"
    assert train(tmp_path).stopped_by is None
    assert_same_run(whole, tmp_path)


@pytest.mark.parametrize(("apart_s", "at_once"), [(1e9, False), (-1.0, True)])
def test_a_second_ctrl_c_stops_at_once_unless_it_is_the_first_handed_on(
    tmp_path: Path, train: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, apart_s: float, at_once: bool
) -> None:
    def twice() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(callbacks, "ONE_KEY_S", apart_s)
    with pytest.raises(KeyboardInterrupt) if at_once else nullcontext():
        assert train(tmp_path, collate=calls_at(3, twice)).stopped_by == signal.SIGINT
    assert last_complete_checkpoint(tmp_path) == tmp_path / f"checkpoint-{2 if at_once else 3}"


def test_crashed_between_checkpoints_and_resumed_equals_uninterrupted(
    tmp_path: Path, whole: Path, train: Callable[..., Any]
) -> None:
    def crash() -> None:
        raise RuntimeError("the power went")

    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    with pytest.raises(RuntimeError):
        train(tmp_path, collate=calls_at(6, crash))
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before
    (tmp_path / "checkpoint-5").mkdir()  # as if it had been cut short while it was written
    (tmp_path / "checkpoint-5" / "model.safetensors").write_bytes(b"half")
    train(tmp_path)
    assert_same_run(whole, tmp_path)


def test_a_resumed_run_saves_and_logs_as_often_as_it_says(
    tmp_path: Path, train: Callable[..., Any], quick: Callable[..., Any]
) -> None:
    train(tmp_path, collate=calls_at(3, lambda: os.kill(os.getpid(), signal.SIGTERM)))
    train(tmp_path, quick(save_every=10, log_every=2))
    assert [path.name for path in complete_checkpoints(tmp_path)] == ["checkpoint-3", "checkpoint-6"]
    assert sorted(losses(tmp_path / "checkpoint-6")) == [1, 2, 3, 4, 6]


def test_going_on_with_other_ranks_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for rank in range(2):
        (tmp_path / f"rng_state_{rank}.pth").touch()
    announce(tmp_path, 2)
    assert capsys.readouterr().out == f"going on from {tmp_path}\n"
    announce(tmp_path, 4)
    assert "2 ranks wrote it, 4 go on" in capsys.readouterr().out


def test_workers_change_nothing(
    tmp_path: Path, whole: Path, train: Callable[..., Any], quick: Callable[..., Any]
) -> None:
    train(tmp_path, quick(workers=2))
    assert_same_run(whole, tmp_path)


def test_the_result_is_a_whole_checkpoint(whole: Path) -> None:
    model, processor = load_checkpoint(whole / FINAL)
    assert processor.num_channels == model.config.num_channels == 2
    facts = completed_facts(whole / FINAL)
    assert facts is not None and facts["steps"] == 6


def test_the_log_has_throughput_and_padding(whole: Path) -> None:
    history = json.loads((whole / "checkpoint-6" / "trainer_state.json").read_text())["log_history"]
    for line in (line for line in history if "loss" in line):
        assert line["audio_seconds_per_second"] > 0
        assert 0 <= line["audio_padding"] < 1 and 0 <= line["position_padding"] < 1
        assert line["target_tokens_per_second"] > 0


def test_the_loss_is_a_mean_over_all_target_tokens_of_a_step(
    tmp_path: Path, manifest: Path, tiny: ModelConfig, train: Callable[..., Any], quick: Callable[..., Any]
) -> None:
    train(tmp_path, quick(steps=2, save_every=1, accumulation=2))
    set_seed(3)
    processor = build_processor(tiny)
    model = build_model(tiny, processor).train()
    data = load_sets(SftData(manifest=str(manifest)), processor, seed=3).train
    sampler = batch_sampler(data, processor, 2, BatchConfig(max_rows=4, audio_buckets=1, text_buckets=1), seed=3)
    batches = [Collator(processor)([data[draw] for draw in draws]) for draws in list(sampler)[:2]]
    tokens = [int((batch["labels"] != -100).sum()) for batch in batches]
    assert tokens[0] != tokens[1]  # otherwise a mean of means would pass
    with torch.no_grad():
        sums = [model(**batch, num_items_in_batch=1).loss.item() for batch in batches]
    assert losses(tmp_path / "checkpoint-2")[1] == pytest.approx(sum(sums) / sum(tokens), rel=1e-5)
    mean_of_means = sum(total / count for total, count in zip(sums, tokens, strict=True)) / 2
    assert losses(tmp_path / "checkpoint-2")[1] != pytest.approx(mean_of_means, rel=1e-5)


def test_a_non_finite_loss_stops_the_run(tmp_path: Path, train: Callable[..., Any]) -> None:
    def spoil(model: torch.nn.Module) -> None:
        with torch.no_grad():
            next(model.get_submodule("projector").parameters()).fill_(float("nan"))

    with pytest.raises(NonFiniteLossError, match="nan in step 1"):
        train(tmp_path, change=spoil)
    assert not (tmp_path / FINAL).exists() and last_complete_checkpoint(tmp_path) is None


def test_two_ranks_give_the_losses_and_weights_of_one(tmp_path: Path, manifest: Path) -> None:
    common = [
        "recipes/sft.py", "experiment=tiny", f"data.manifest={manifest}", "train.use_cpu=true", "train.steps=4",
    ]  # fmt: skip
    run(sys.executable, *common, "train.accumulation=2", f"run_dir={tmp_path}/one")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    run(*torchrun, *common, f"run_dir={tmp_path}/two")
    one, two = losses(tmp_path / "one" / "checkpoint-4"), losses(tmp_path / "two" / "checkpoint-4")
    assert one.keys() == two.keys() == {1, 2, 3, 4}
    for step, loss in one.items():
        assert two[step] == pytest.approx(loss, rel=2e-5)
    left, right = weights(tmp_path / "one"), weights(tmp_path / "two")
    for name, tensor in left.items():
        torch.testing.assert_close(tensor, right[name], rtol=1e-3, atol=2e-5)


def run(*command: str) -> str:
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=600, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout
