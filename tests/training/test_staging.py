"""Checkpoints that are moved beside training: the same run, whole or not there, pruned; and what goes wrong is told."""

import errno
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from wearllama.training.checkpoint import COMPLETE, FINAL, complete_checkpoints, completed_facts
from wearllama.training.config import TrainConfig
from wearllama.training.ema import EMA
from wearllama.training.staging import Stager

Train = Callable[..., Any]
Quick = Callable[..., TrainConfig]


def staged(folder: Path, step: int) -> None:
    """What a rank of this node has written."""
    (folder / f"checkpoint-{step}").mkdir(parents=True)
    (folder / f"checkpoint-{step}" / f"{folder.parent.name}.bin").write_bytes(bytes(step))


def test_the_run_is_the_one_that_saves_in_step(tmp_path: Path, train: Train, quick: Quick) -> None:
    (tmp_path / "memory").mkdir()
    train(tmp_path / "plain", quick(ema=0.9))
    settings = quick(ema=0.9, staging=str(tmp_path / "memory"))

    def stop(collate: Any) -> Any:
        calls = iter(range(100))

        def counted(items: Any) -> Any:
            if next(calls) == 4:
                raise RuntimeError("the power went")
            return collate(items)

        return counted

    with pytest.raises(RuntimeError, match="the power went"):
        train(tmp_path / "run", settings, collate=stop)
    assert [path.name for path in complete_checkpoints(tmp_path / "run")] == ["checkpoint-2", "checkpoint-4"]
    train(tmp_path / "run", settings)
    assert [path.name for path in complete_checkpoints(tmp_path / "run")] == ["checkpoint-4", "checkpoint-6"]
    assert not list(tmp_path.glob("memory/*/*"))
    files = (f"{FINAL}/model.safetensors", f"checkpoint-6/{EMA}", "checkpoint-6/model.safetensors")
    for name in files:
        plain, run = (load_file(tmp_path / way / name) for way in ("plain", "run"))
        assert plain.keys() == run.keys() and all(torch.equal(plain[key], run[key]) for key in plain), name
    assert {path.name for path in (tmp_path / "plain" / "checkpoint-6").iterdir()} == {
        path.name for path in (tmp_path / "run" / "checkpoint-6").iterdir()
    }


def test_a_checkpoint_of_two_nodes_counts_when_both_have_moved_theirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GROUP_WORLD_SIZE", "2")
    nodes = []
    for node in range(2):
        monkeypatch.setenv("GROUP_RANK", str(node))
        nodes.append(Stager(tmp_path / "run", tmp_path / f"node{node}", keep=2))
        staged(nodes[-1].folder, 3)
    nodes[0].hand_over(3)
    time.sleep(0.5)
    target = tmp_path / "run" / "checkpoint-3"
    assert (target / "node0.bin").is_file() and completed_facts(target) is None
    nodes[1].hand_over(3)
    nodes[0].wait()
    assert completed_facts(target) == {"step": 3}
    assert sorted(path.name for path in target.iterdir()) == [COMPLETE, "node0.bin", "node1.bin"]


def test_older_ones_go_once_the_new_one_is_whole(tmp_path: Path) -> None:
    with Stager(tmp_path / "run", tmp_path / "memory", keep=2) as stager:
        for step in (2, 9, 10):
            staged(stager.folder, step)
            stager.hand_over(step)
    assert [path.name for path in complete_checkpoints(tmp_path / "run")] == ["checkpoint-9", "checkpoint-10"]
    assert not (tmp_path / "run" / "checkpoint-2").exists()


def test_a_move_that_fails_stops_training(
    tmp_path: Path, train: Train, quick: Quick, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "memory").mkdir()

    def full(*arguments: Any, **keywords: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(shutil, "copytree", full)
    with pytest.raises(OSError, match="No space left"):
        train(tmp_path / "run", quick(staging=str(tmp_path / "memory")))
    assert not complete_checkpoints(tmp_path / "run") and not (tmp_path / "run" / FINAL).exists()


def test_the_folder_must_be_there(quick: Quick) -> None:
    with pytest.raises(ValueError, match=r"train.staging is /nowhere: no such folder"):
        quick(staging="/nowhere")
