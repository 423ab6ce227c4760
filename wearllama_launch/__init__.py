"""What every script of recipes/, eval/ and tools/ shares: command line -> config tree -> plain dataclass -> function.

The library ``wearllama`` does not know Hydra; this small package is the only place that does.
"""

import errno
import functools
import os
import re
import shutil
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from wearllama.atomic import write_text
from wearllama_launch.compose import CONF_DIR, compose_config, compose_plain
from wearllama_launch.field_docs import annotated_yaml
from wearllama_launch.paths import existing_path
from wearllama_launch.run_folder import new_run_dir, rank, record_launch, world_size
from wearllama_launch.schema import LaunchError, did_you_mean, nearest

__all__ = [
    "CONF_DIR",
    "INTERRUPTED",
    "LaunchError",
    "compose_config",
    "did_you_mean",
    "existing_path",
    "launch",
    "nearest",
    "rank",
    "record_launch",
    "world_size",
]

ConfigT = TypeVar("ConfigT")
INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it."""


def launch(
    name: str, schema: type[ConfigT], *, config_dir: Path = CONF_DIR
) -> Callable[[Callable[[ConfigT], Any]], Callable[[], None]]:
    """Make ``main(config)`` a command: conf/`name`.yaml + Hydra overrides from the command line -> `schema`.

    A schema with a ``run_dir`` field (``str | None = None``) gets a run folder: its default is
    runs/`name`-DATE-TIME, one for all ranks, and config, command and git state are written there. What the user can
    mend (LaunchError, ValueError, FileNotFoundError) is printed as one line with exit code 2; set
    WEARLLAMA_TRACEBACK=1 to see where it came from. ``--help`` prints the docstring and the config with every key's
    meaning, ``--cfg`` the config alone.
    """

    def decorate(main: Callable[[ConfigT], Any]) -> Callable[[], None]:
        @functools.wraps(main)
        def command() -> None:
            sys.exit(_run(main, name, schema, sys.argv[1:], config_dir))

        return command

    return decorate


def _run(main: Callable[[Any], Any], name: str, schema: type, argv: list[str], config_dir: Path) -> int:
    flags = [text for text in argv if text.startswith("-")]
    overrides = [text for text in argv if not text.startswith("-")]
    config: Any = None
    try:
        if unknown := [flag for flag in flags if flag not in ("--help", "-h", "--cfg")]:
            raise LaunchError(f"unknown option {unknown[0]!r}; wanted key=value overrides, --help or --cfg")
        if flags:
            plain = compose_plain(name, schema, overrides, config_dir)
            explained = "--help" in flags or "-h" in flags
            _show(_help(main, schema, plain, config_dir) if explained else _as_yaml(plain))
            return 0
        config, plain = compose_config(name, schema, overrides, config_dir)
        if hasattr(config, "run_dir"):
            run_dir = Path(config.run_dir) if config.run_dir else new_run_dir(Path("runs"), name)
            config.run_dir = plain["run_dir"] = str(run_dir)
            run_dir.mkdir(parents=True, exist_ok=True)
            record_launch(run_dir, plain, overrides)
        main(config)
    except KeyboardInterrupt:
        print(f"{name}: interrupted; the same command goes on from here", file=sys.stderr)
        return INTERRUPTED
    except (ValueError, FileNotFoundError) as error:
        _report(error, getattr(config, "run_dir", None))
        return 2
    except Exception as error:
        if not _disk_is_full(error, getattr(config, "run_dir", None)):
            raise
        print(f"error: the disk is full: {_one_line(error)}; the same command goes on from here", file=sys.stderr)
        return 2
    return 0


def _disk_is_full(error: Exception, run_dir: str | None) -> bool:
    """Whether an error comes of a full disk: Python's own, safetensors' words for it, or the end of torch's writer."""
    codes = (errno.ENOSPC, errno.EDQUOT)
    if getattr(error, "errno", None) in codes:
        return True
    text = str(error)
    if any(f"(os error {code})" in text or f"[Errno {code}]" in text for code in codes):
        return True
    by_torch = "inline_container" in text or "PytorchStreamWriter" in text
    return by_torch and run_dir is not None and shutil.disk_usage(run_dir).free < 1 << 16


def _report(error: Exception, run_dir: str | None) -> None:
    """One line for the reader; the whole traceback for run_dir/error.txt. Ranks that say the same say it once."""
    if os.environ.get("WEARLLAMA_TRACEBACK"):
        traceback.print_exc()
    if run_dir is not None and Path(run_dir).is_dir():
        name = "error.txt" if rank() == 0 else f"error-rank{rank()}.txt"
        write_text(Path(run_dir) / name, traceback.format_exc())
    if rank() == 0 or not isinstance(error, LaunchError):
        where = f"[rank {rank()}] " if world_size() > 1 else ""
        print(f"{where}error: {_one_line(error)}", file=sys.stderr)


def _one_line(error: Exception) -> str:
    text = str(error)
    if text.startswith("Caught ") and "Original Traceback" in text:  # by a worker of torch's loader, with its stack
        text = re.split(rf"^(?:\w+\.)*{type(error).__name__}: ", text, flags=re.MULTILINE)[-1]
    text = " ".join(text.split()) or type(error).__name__
    if isinstance(error, LaunchError):
        return text
    return f"{text} (WEARLLAMA_TRACEBACK=1 shows where)"


def _show(text: str) -> None:
    """Print; whoever reads may stop early (``--help | head``)."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nothing is left to flush at exit


def _help(main: Callable[[Any], Any], schema: type, plain: dict[str, Any], config_dir: Path) -> str:
    document = sys.modules[main.__module__].__doc__ or main.__doc__ or ""
    groups = []
    for folder in sorted(path for path in config_dir.iterdir() if path.is_dir()):
        groups.append(f"  {folder.name}: {', '.join(sorted(path.stem for path in folder.glob('*.yaml')))}")
    values = annotated_yaml(schema, plain)
    return "\n".join(
        [document.strip(), "", "config groups (group=choice):", *groups, "", "config (key=value):", *values]
    )


def _as_yaml(plain: dict[str, Any]) -> str:
    import yaml

    return yaml.safe_dump(plain, sort_keys=False, allow_unicode=True)
