"""What a run was made from, in its folder: data.json has settings and files' hashes that decide the weights."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from wearllama.atomic import write_json
from wearllama.training.checkpoint import fingerprint

DATA = "data.json"


@dataclass(frozen=True)
class Origin:
    """What decides a run's weights."""

    settings: dict[str, Any]
    """Nested, as the config has them, less what decides nothing."""
    files: Sequence[str | Path]
    """Rows, banks, weights to start from."""

    @cached_property
    def fingerprint(self) -> str:
        """Two runs that share it trained the same thing."""
        return fingerprint(self.settings, self.files)

    def record(self, run_dir: Path) -> None:
        """Write run_dir/data.json."""
        described = {"fingerprint": self.fingerprint, "settings": self.settings, "files": describe_files(self.files)}
        write_json(run_dir / DATA, json.loads(json.dumps(described, default=str)), indent=2)

    def differences(self, run_dir: Path) -> list[str]:
        """Settings and files that run_dir's data.json has otherwise, in words; none where it says nothing of them."""
        path = run_dir / DATA
        before = json.loads(path.read_text()) if path.is_file() else {}
        return _changed_settings(before.get("settings"), self.settings) + _changed_files(before, self.files)


def describe_files(files: Iterable[str | Path]) -> list[dict[str, Any]]:
    """Path, bytes, SHA-256 and, of JSONL, lines of each file."""
    return [_describe(Path(name)) for name in files]


def _describe(path: Path) -> dict[str, Any]:
    digest, lines = hashlib.sha256(), 0
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
            lines += block.count(b"\n")
    described: dict[str, Any] = {"path": str(path), "bytes": path.stat().st_size, "sha256": digest.hexdigest()}
    return described | ({"lines": lines} if path.suffix == ".jsonl" else {})


def _changed_settings(before: dict[str, Any] | None, now: dict[str, Any]) -> list[str]:
    if before is None:  # a run from before settings were written down
        return []
    old, new = _flat(before), _flat(json.loads(json.dumps(now, default=str)))
    return [
        f"{name} {json.dumps(old.get(name))} -> {json.dumps(new.get(name))}"
        for name in sorted(old.keys() | new.keys())
        if old.get(name) != new.get(name)
    ]


def _flat(settings: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Values by dotted name."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        found |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) and value else {prefix + name: value}
    return found


def _changed_files(before: dict[str, Any], files: Sequence[str | Path]) -> list[str]:
    hashes = {file["path"]: file["sha256"] for file in before.get("files", ())}
    now = {file["path"]: file["sha256"] for file in describe_files(files)} if hashes else {}
    return [
        f"{path} {'is new' if path not in hashes else 'is gone' if path not in now else 'has another content'}"
        for path in sorted(hashes.keys() | now.keys())
        if hashes.get(path) != now.get(path)
    ]
