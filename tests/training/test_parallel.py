"""DDP, FSDP2, ZeRO-2 and ZeRO-3 on two gloo ranks, LoRA on, one rank without sound: the losses of one process."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
import torch

from wearllama.modeling.factory import ModelConfig, load_checkpoint
from wearllama.training.config import TrainConfig, training_arguments

ROOT = Path(__file__).resolve().parents[2]
STEPS = 20


@pytest.fixture(scope="module")
def alone(
    tmp_path_factory: pytest.TempPathFactory,
    manifest: Path,
    tiny: ModelConfig,
    load_script: Callable[[str, str], ModuleType],
) -> Path:
    """One process that accumulates what two ranks see."""
    folder = tmp_path_factory.mktemp("alone")
    script = load_script("tests/training", "two_ranks")
    script.train(replace(tiny, lora={"r": 4}), str(manifest), folder, script.settings(STEPS))
    return folder


def run_ranks(manifest: Path, out_dir: Path, ways: str) -> None:
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2",
        "tests/training/two_ranks.py", str(manifest), str(out_dir), str(STEPS), ways,
    ]  # fmt: skip
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=1800, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == 0, done.stderr[-3000:]


def losses(run_dir: Path) -> list[float]:
    lines = [json.loads(line) for line in (run_dir / "log.jsonl").read_text().splitlines()]
    return [line["loss"] for line in lines if "loss" in line]


def assert_same(run_dir: Path, alone: Path) -> None:
    found, wanted = losses(run_dir), losses(alone)
    assert len(wanted) == STEPS and wanted[-1] < wanted[0]
    assert found == pytest.approx(wanted, abs=1e-4)
    left, right = (load_checkpoint(folder / "final")[0].state_dict() for folder in (run_dir, alone))
    for name, tensor in right.items():
        torch.testing.assert_close(left[name], tensor, rtol=1e-3, atol=1e-3, msg=lambda text, n=name: f"{n}: {text}")


def test_ddp_and_fsdp2_give_the_run_of_one_process(tmp_path: Path, manifest: Path, alone: Path) -> None:
    run_ranks(manifest, tmp_path, "ddp,fsdp2")
    for way in ("ddp", "fsdp2"):
        assert_same(tmp_path / way, alone)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["zero2", "zero3"])
def test_deepspeed_gives_the_run_of_one_process(tmp_path: Path, manifest: Path, alone: Path, way: str) -> None:
    run_ranks(manifest, tmp_path, way)
    assert_same(tmp_path / way, alone)


def test_sharing_without_torchrun_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(ValueError, match=r"train\.parallel=fsdp2 needs torchrun"):
        training_arguments(TrainConfig(parallel="fsdp2", use_cpu=True), tmp_path)


def test_an_average_needs_whole_weights() -> None:
    with pytest.raises(ValueError, match=r"train\.ema needs whole weights"):
        TrainConfig(ema=0.99, parallel="fsdp2")
