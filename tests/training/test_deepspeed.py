"""DeepSpeed by config, on the CPU: the run of the plain trainer, ends whole, and compiles nothing."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from wearllama.modeling.factory import load_checkpoint
from wearllama.training.checkpoint import completed_facts
from wearllama.training.config import TrainConfig, training_arguments

ROOT = Path(__file__).resolve().parents[2]
STEPS = {1, 2, 3, 4}


def run_sft(manifest: Path, run_dir: Path, *overrides: str, ranks: int | None = None) -> None:
    """recipes/sft.py experiment=tiny; `ranks` starts it with torchrun."""
    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={ranks}"] if ranks else []
    command = [
        sys.executable, *torchrun, "recipes/sft.py", "experiment=tiny", f"data.manifest={manifest}",
        "train.use_cpu=true", f"train.steps={max(STEPS)}", f"run_dir={run_dir}", *overrides,
    ]  # fmt: skip
    built = run_dir.parent / "built"
    settings = {**os.environ, "OMP_NUM_THREADS": "1", "TORCH_EXTENSIONS_DIR": str(built)}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1200, env=settings)
    assert done.returncode == 0, done.stderr[-3000:]
    assert not built.exists(), f"an operator was compiled: {list(built.rglob('*'))}"


def losses(run_dir: Path) -> dict[int, float]:
    """Logged training loss by step."""
    state = json.loads((run_dir / f"checkpoint-{max(STEPS)}" / "trainer_state.json").read_text())
    return {line["step"]: line["loss"] for line in state["log_history"] if "loss" in line}


def assert_same_run(run_dir: Path, plain: Path, tolerance: float = 1e-4) -> None:
    """Losses and trained weights agree, and the model in `run_dir` opens as a whole checkpoint."""
    found, wanted = losses(run_dir), losses(plain)
    assert found.keys() == wanted.keys() == STEPS
    for step, loss in wanted.items():
        assert found[step] == pytest.approx(loss, abs=tolerance)
    facts = completed_facts(run_dir / "final")
    assert facts is not None and facts["steps"] == max(STEPS)
    model, _ = load_checkpoint(run_dir / "final")
    trained = model.state_dict()
    for name, tensor in load_file(plain / "final" / "model.safetensors").items():
        torch.testing.assert_close(trained[name], tensor, rtol=1e-3, atol=tolerance, msg=lambda m, n=name: f"{n}: {m}")


def test_zero2_gives_the_run_of_the_plain_trainer(tmp_path: Path, manifest: Path) -> None:
    run_sft(manifest, tmp_path / "plain")
    run_sft(manifest, tmp_path / "zero2", "train.parallel=zero2", ranks=1)
    assert_same_run(tmp_path / "zero2", tmp_path / "plain")


@pytest.mark.slow
def test_zero3_gives_the_run_of_the_plain_trainer(tmp_path: Path, manifest: Path) -> None:
    run_sft(manifest, tmp_path / "plain")
    run_sft(manifest, tmp_path / "zero3", "train.parallel=zero3", ranks=1)
    assert_same_run(tmp_path / "zero3", tmp_path / "plain")


@pytest.mark.slow
def test_zero2_on_two_ranks_cut_short_and_resumed(tmp_path: Path, manifest: Path) -> None:
    """Two ranks see in a step what the plain run accumulates; going on from step 2 changes nothing."""
    run_sft(manifest, tmp_path / "plain", "train.accumulation=2")
    run_sft(manifest, tmp_path / "zero2", "train.parallel=zero2", ranks=2)
    assert_same_run(tmp_path / "zero2", tmp_path / "plain")
    shutil.rmtree(tmp_path / "zero2" / "final")
    shutil.rmtree(tmp_path / "zero2" / "checkpoint-4")
    run_sft(manifest, tmp_path / "zero2", "train.parallel=zero2", ranks=2)
    assert_same_run(tmp_path / "zero2", tmp_path / "plain")


def test_deepspeed_without_torchrun_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    config = TrainConfig(parallel="zero2", use_cpu=True)
    with pytest.raises(ValueError, match="needs torchrun"):
        training_arguments(config, tmp_path)


def test_deepspeed_that_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setattr("wearllama.training.deepspeed_cpu.importlib.util.find_spec", lambda name: None)
    config = TrainConfig(parallel="zero2", use_cpu=True)
    with pytest.raises(ValueError, match="deepspeed is not installed"):
        training_arguments(config, tmp_path)
