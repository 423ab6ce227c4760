"""A lock file over a built benchmark: SHA-256 of every manifest and recording."""

import hashlib
import json
from pathlib import Path
from typing import Any

PATTERNS = ("*.jsonl", "audio/*.wav", "mono/*.wav")


def lock_of(folder: Path) -> dict[str, Any]:
    """Hashes by file, and one over all of them that a paper can print."""
    files = sorted(path for pattern in PATTERNS for path in folder.glob(pattern))
    hashes = {}
    for path in files:
        with path.open("rb") as stream:
            hashes[path.relative_to(folder).as_posix()] = hashlib.file_digest(stream, "sha256").hexdigest()
    whole = hashlib.sha256(json.dumps(hashes, sort_keys=True).encode()).hexdigest()
    return {"sha256": whole, "files": hashes}


def check_lock(folder: Path) -> int:
    """Number of files that are as ``lock.json`` has them; ValueError names the first that are not."""
    path = folder / "lock.json"
    if not path.is_file():
        raise ValueError(f"{folder} has no lock.json: it was not built to the end")
    wanted, found = json.loads(path.read_text())["files"], lock_of(folder)["files"]
    wrong = sorted(name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name))
    if wrong:
        raise ValueError(f"{folder}: {len(wrong)} files differ from lock.json, first {wrong[:3]}")
    return len(wanted)
