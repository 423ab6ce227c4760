"""Kill -9 at random moments, inside a checkpoint's writing too, and go on: nothing differs from a run left alone.

Two ranks with two workers each, fp32 on the CPU.

Run as: WEARLLAMA_KILLS=20 python -m pytest -m slow tests/training/test_kills.py
"""

import contextlib
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import psutil
import pytest
import torch
from safetensors.torch import load_file

from wearllama.training.checkpoint import COMPLETE, FINAL

ROOT = Path(__file__).resolve().parents[2]
KILLS = int(os.environ.get("WEARLLAMA_KILLS", "3"))
STEPS = 12 + 6 * KILLS
EPOCH_STEPS = 2
"""16 rows in four batches over two ranks."""


def start(manifest: Path, run_dir: Path, *more: str) -> subprocess.Popen[bytes]:
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", "recipes/sft.py",
        "experiment=tiny", f"data.manifest={manifest}", f"run_dir={run_dir}", f"train.steps={STEPS}",
        "train.save_every=3", "train.workers=2", "train.log_ids=true", "train.use_cpu=true",
        "model.encoder_config.dropout=0.1", *more,
    ]  # fmt: skip
    with (run_dir.parent / f"{run_dir.name}.log").open("ab") as log:
        return subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, env={**os.environ, "OMP_NUM_THREADS": "1"})


def kill_all(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL for torchrun, its ranks and their workers, as when the power goes."""
    family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
    for member in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            member.kill()
    process.wait()
    psutil.wait_procs(family, timeout=60)


def lines(run_dir: Path) -> int:
    log = run_dir / "log.jsonl"
    return log.read_bytes().count(b"\n") if log.is_file() else 0


def in_a_checkpoint(run_dir: Path) -> bool:
    return any(not (path / COMPLETE).is_file() for path in run_dir.glob("checkpoint-*"))


def kill_once(manifest: Path, run_dir: Path, rng: random.Random, *more: str, inside_checkpoint: bool) -> bool:
    """Let the run make a step at least, then kill it; False where it ended first."""
    process = start(manifest, run_dir, *more)
    deadline, before, steps = time.monotonic() + 900, None, rng.randint(1, 8)
    while process.poll() is None:
        assert time.monotonic() < deadline, "the run does not get on"
        time.sleep(0.002)
        if before is None:  # logs are cut back when a run goes on: wait for the first checkpoint or line after that
            before = lines(run_dir) if family_is_training(process) else None
            continue
        if inside_checkpoint:
            if in_a_checkpoint(run_dir) and lines(run_dir) > before:
                kill_all(process)
                return True
        elif lines(run_dir) >= before + steps:
            time.sleep(rng.uniform(0, 0.05))
            kill_all(process)
            return True
    assert process.returncode == 0, (run_dir.parent / f"{run_dir.name}.log").read_text()[-3000:]
    return False


def family_is_training(process: subprocess.Popen[bytes]) -> bool:
    """Whether both ranks have their two workers, so the log has been cut back already."""
    try:
        ranks = psutil.Process(process.pid).children()
        return len(ranks) == 2 and all(len(rank.children()) >= 2 for rank in ranks)
    except psutil.NoSuchProcess:
        return False


def trained_ids(run_dir: Path) -> list[list[str]]:
    """Ids of every step, both ranks together."""
    steps: list[list[str]] = [[] for _ in range(STEPS)]
    for rank in range(2):
        rows = [json.loads(line) for line in (run_dir / f"rows-rank{rank}.jsonl").read_text().splitlines()]
        assert [row["step"] for row in rows] == list(range(1, STEPS + 1))
        for row in rows:
            steps[row["step"] - 1] += row["ids"]
    return steps


@pytest.mark.slow
@pytest.mark.parametrize("staged", [False, True], ids=["in-step", "beside"])
def test_killed_runs_end_as_the_one_that_was_left_alone(tmp_path: Path, manifest: Path, staged: bool) -> None:
    rng = random.Random(0)
    (tmp_path / "memory").mkdir()
    more = [f"train.staging={tmp_path}/memory"] if staged else []
    assert start(manifest, tmp_path / "whole").wait() == 0, (tmp_path / "whole.log").read_text()[-3000:]
    killed = [kill_once(manifest, tmp_path / "killed", rng, *more, inside_checkpoint=k % 3 == 0) for k in range(KILLS)]
    assert start(manifest, tmp_path / "killed", *more).wait() == 0, (tmp_path / "killed.log").read_text()[-3000:]
    assert sum(killed) >= max(1, KILLS // 2), f"most runs ended before they were killed: {killed}"
    assert "going on from" in (tmp_path / "killed.log").read_text(), "no run went on from a checkpoint"
    whole, other = (load_file(tmp_path / name / FINAL / "model.safetensors") for name in ("whole", "killed"))
    assert whole.keys() == other.keys()
    for name, tensor in whole.items():
        assert torch.equal(tensor, other[name]), name
    ids = trained_ids(tmp_path / "killed")
    assert ids == trained_ids(tmp_path / "whole")
    for first in range(0, STEPS, EPOCH_STEPS):
        counts = Counter(row for step in ids[first : first + EPOCH_STEPS] for row in step)
        assert len(counts) == 16 and set(counts.values()) == {1}, counts
