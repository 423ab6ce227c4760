"""What a run was made from, in its folder: data.json names every file that decides the weights, with its hash."""

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from wearllama.atomic import write_json

DATA = "data.json"


def describe_files(files: Iterable[str | Path]) -> list[dict[str, Any]]:
    """Path, bytes, SHA-256 and, of JSONL, lines of each file."""
    return [_describe(Path(name)) for name in files]


def record_data(run_dir: Path, files: Iterable[str | Path], fingerprint: str) -> None:
    """Write run_dir/data.json; the fingerprint covers the settings too."""
    write_json(run_dir / DATA, {"fingerprint": fingerprint, "files": describe_files(files)}, indent=2)


def _describe(path: Path) -> dict[str, Any]:
    digest, lines = hashlib.sha256(), 0
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
            lines += block.count(b"\n")
    described: dict[str, Any] = {"path": str(path), "bytes": path.stat().st_size, "sha256": digest.hexdigest()}
    return described | ({"lines": lines} if path.suffix == ".jsonl" else {})
