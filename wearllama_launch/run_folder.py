"""One folder a run, whatever the number of ranks, with what is needed to know what ran."""

import datetime
import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from wearllama.atomic import write_json, write_text
from wearllama_launch.schema import LaunchError


def rank() -> int:
    """This process' global rank; 0 outside torchrun."""
    return int(os.environ.get("RANK", "0"))


def world_size() -> int:
    """Number of processes in this launch."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def new_run_dir(root: Path, label: str) -> Path:
    """``root/label-date-time``, the same on every rank: rank 0 names it and torchrun's own store carries it."""
    stamp = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    path = root / f"{label}-{stamp}"
    if world_size() == 1:
        return path
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        raise LaunchError("run_dir is required when several processes are started without torchrun: give run_dir=...")
    from torch.distributed import TCPStore  # torch takes seconds to import, and most launchers need none of this

    store = TCPStore(
        os.environ["MASTER_ADDR"],
        int(os.environ["MASTER_PORT"]),
        is_master=False,
        timeout=datetime.timedelta(seconds=120),
    )
    key = f"wearllama/run_dir/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"
    if rank() == 0:
        store.set(key, str(path))
    return Path(store.get(key).decode())


def record_launch(run_dir: Path, config: dict[str, Any], overrides: list[str]) -> None:
    """Rank 0 writes config.yaml (latest) and launches/TIME/{config.yaml,command.json,changes.diff}."""
    if rank() != 0:
        return
    here = run_dir / "launches" / datetime.datetime.now().strftime("%Y%m%d-%H%M%S-%f")
    here.mkdir(parents=True, exist_ok=True)
    text = yaml.safe_dump(config, sort_keys=False, allow_unicode=True)
    for path in (run_dir / "config.yaml", here / "config.yaml"):
        write_text(path, text)
    diff = _git("diff", "HEAD")
    state = {
        "command": [sys.executable, *sys.argv],
        "overrides": overrides,
        "world_size": world_size(),
        "python": sys.version.split()[0],
        "git_commit": _git("rev-parse", "HEAD").strip() or None,
        "git_branch": _git("rev-parse", "--abbrev-ref", "HEAD").strip() or None,
        "git_changes": _git("status", "--short").splitlines(),
        "git_diff_sha256": hashlib.sha256(diff.encode()).hexdigest() if diff else None,
    }
    write_json(here / "command.json", state, indent=2, ensure_ascii=True)
    write_text(here / "changes.diff", diff)


def _git(*arguments: str) -> str:
    """Output of git in the repository of this file; empty where there is no git or no repository."""
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=Path(__file__).parent, capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""
