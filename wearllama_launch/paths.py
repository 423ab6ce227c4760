"""Paths that people type: a missing one is answered with the nearest that exists."""

from pathlib import Path

from wearllama_launch.schema import LaunchError, nearest


def existing_path(path: str | Path, key: str) -> Path:
    """`path` if it exists; otherwise a LaunchError that names `key`, the missing part and the nearest real path."""
    wanted = Path(path).expanduser()
    if wanted.exists():
        return wanted
    parent, missing = wanted.parent, wanted.name
    while not parent.exists():
        parent, missing = parent.parent, parent.name
    siblings = [item.name for item in parent.iterdir()] if parent.is_dir() else []
    message = f"{key}={path}: no such path"
    close = _nearest_path(parent, wanted.relative_to(parent).parts)
    if close is not None:
        return _refuse(f"{message}; did you mean {close}?")
    shown = ", ".join(sorted(name for name in siblings if not name.startswith("."))[:8]) or "nothing"
    return _refuse(f"{message}; there is no {missing!r} in {parent}/ (it holds {shown})")


def _refuse(message: str) -> Path:
    raise LaunchError(message)


def _nearest_path(parent: Path, parts: tuple[str, ...]) -> Path | None:
    """Follow `parts` below `parent`, each replaced by its nearest sibling; None when the first has none."""
    found = parent
    for part in parts:
        names = [item.name for item in found.iterdir()] if found.is_dir() else []
        name = part if part in names else nearest(part, names)
        if name is None:
            break
        found = found / name
    return found if found != parent else None
