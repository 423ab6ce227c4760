"""A disk that is really full: a small file system of one's own, in a namespace of one's own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile

ROOT = Path(__file__).resolve().parents[2]
NAMESPACE = ("unshare", "--map-root-user", "--mount")


def may_mount() -> bool:
    """Whether this system gives an ordinary process a mount namespace."""
    try:
        return (
            subprocess.run([*NAMESPACE, "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True).returncode == 0
        )
    except FileNotFoundError:
        return False


pytestmark = pytest.mark.skipif(not may_mount(), reason="no mount namespaces here")


def twice(folder: Path, small: str, command: list[str]) -> list[str]:
    """Run a command whose output goes to ``folder`` with ``small`` bytes there, then with enough; what it said."""
    folder.mkdir()
    script = (
        f'mount -t tmpfs -o size={small} tmpfs {folder}; "$@" 2>&1; echo "exit code $?"; echo ----;'
        f'mount -o remount,size=1g {folder}; "$@" 2>&1; echo "exit code $?"; cp -r {folder} {folder}-kept'
    )
    done = subprocess.run(
        [*NAMESPACE, "sh", "-c", script, "sh", sys.executable, *command], cwd=ROOT, capture_output=True, text=True,
        timeout=1800, env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    return done.stdout.split("----")


def test_an_import_stops_and_goes_on(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    (tmp_path / "in").mkdir()
    for number in range(6):
        soundfile.write(tmp_path / "in" / f"{number}.wav", 0.1 * rng.standard_normal(32000), 16000)
    command = ["tools/import_speech.py", "source.layout=folder", f"source.root={tmp_path}/in",
               f"out_dir={tmp_path}/out"]  # fmt: skip
    first, second = twice(tmp_path / "out", "200k", command)
    assert "error: the disk is full" in first and "exit code 2" in first and "Traceback" not in first
    assert "6 clips" in second and "exit code 0" in second
    rows = [json.loads(line) for line in (tmp_path / "out-kept" / "manifest.jsonl").read_text().splitlines()]
    assert len({row["id"] for row in rows}) == 6
    for row in rows:
        assert soundfile.info(tmp_path / "out-kept" / row["file"]).frames == 32000
    assert not (tmp_path / "out-kept" / "faults.jsonl").read_text()  # the corpus is not to blame


@pytest.mark.slow
def test_a_training_run_stops_at_a_checkpoint_and_goes_on(tmp_path: Path, manifest: Path) -> None:
    command = ["recipes/sft.py", "experiment=tiny", f"data.manifest={manifest}", f"run_dir={tmp_path}/run",
               "train.steps=12", "train.save_every=2", "train.use_cpu=true"]  # fmt: skip
    size = os.environ.get("WEARLLAMA_SMALL_DISK", "5m")
    first, second = twice(tmp_path / "run", size, command)
    assert "error: the disk is full" in first and "exit code 2" in first and "Traceback" not in first, first
    assert "exit code 0" in second and "going on from" in second, second
    assert (tmp_path / "run-kept" / "final" / "model.safetensors").is_file()
