"""The launchers of eval/ under torchrun: two ranks predict every id once, and what one process predicts."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


def launch(script: str, ckpt: Path, data: Path, out: Path, ranks: int) -> list[dict[str, Any]]:
    """Run eval/`script`.py; the lines of its prediction log."""
    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={ranks}"] if ranks > 1 else []
    command = [
        sys.executable, *torchrun, f"eval/{script}.py", f"ckpt={ckpt}", f"data={data}", f"out={out}", "device=cpu",
        "max_new_tokens=6", "harness.ttft_items=0", "harness.batch_size=3", "clips=1",
    ]  # fmt: skip
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=900, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("report: ") == 1  # rank 0 alone reports
    logs = sorted(out.glob(f"{script}/*/predictions-*.jsonl"))
    return [json.loads(line) for path in logs for line in path.read_text().splitlines()]


def by_item(lines: list[dict[str, Any]]) -> dict[tuple[str, str, str], str]:
    """Raw output by system and id; fails where one stands twice."""
    found = {(line["model"]["model"], line["model"]["input"], line["id"]): line["raw"] for line in lines}
    assert len(found) == len(lines)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("script", ["wearvox", "vgbench"])
def test_two_ranks_predict_what_one_process_does(
    script: str, ckpt: Path, wearvox_data: Path, vgbench_data: Path, tmp_path: Path
) -> None:
    data = {"wearvox": wearvox_data, "vgbench": vgbench_data}[script]
    one = launch(script, ckpt, data, tmp_path / "one", 1)
    two = launch(script, ckpt, data, tmp_path / "two", 2)
    assert {line["rank"] for line in one} == {0} and {line["rank"] for line in two} == {0, 1}
    assert by_item(one) == by_item(two)
    assert {system for _, system, _ in by_item(two)} == {"audio", "silence", "none"}
