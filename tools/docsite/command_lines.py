"""Command lines of documentation: found in fenced blocks, and checked against the launchers without running them."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from docsite.commands import ROOT, command_of

from wearllama_launch import CONF_DIR, LaunchError
from wearllama_launch.compose import compose_plain
from wearllama_launch.schema import build

FENCE = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
SHELLS = ("", "sh", "bash", "console")
LAUNCHERS = ("torchrun", "srun", "accelerate")


class CommandLine(NamedTuple):
    """One command of a page."""

    page: str
    text: str


def command_lines(page: Path) -> Iterator[CommandLine]:
    """Commands of the page's shell blocks, continued lines joined, comments cut."""
    for match in FENCE.finditer(page.read_text(encoding="utf-8")):
        if match.group(2) not in SHELLS:
            continue
        block = re.sub(r"\\\n\s*", " ", match.group(3))
        for line in block.splitlines():
            text = re.split(r"\s+#\s", line.strip().removeprefix("$ "))[0].strip()
            if re.match(
                r"(\w+=\S+ )*(python3?|torchrun|srun|make|pip|git|pre-commit|deepspeed|mkdocs|jupyter)\b", text
            ):
                yield CommandLine(page.name, text)


def problem_of(line: CommandLine) -> str | None:
    """What is wrong with a command; None where it exists with those options."""
    try:
        words = [word for word in shlex.split(line.text) if not re.match(r"[A-Z_]+=", word)]
        if words[0] == "make":
            return _make_problem(words[1:])
        script = next((number for number, word in enumerate(words) if word.endswith(".py")), None)
        if script is None:
            return None
        return _script_problem(words[script], words[script + 1 :])
    except (ValueError, LaunchError) as error:
        return str(error)


def _make_problem(words: list[str]) -> str | None:
    known = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    unknown = [word for word in words if "=" not in word and word not in known]
    return f"no target {unknown[0]!r} in the Makefile" if unknown else None


def _script_problem(script: str, arguments: list[str]) -> str | None:
    if not (ROOT / script).is_file():
        return f"no script {script}"
    if script == "tools/benchmark.py":
        script, arguments = f"tools/benchmarks/{arguments[0]}.py", arguments[1:]
    command = command_of(script)
    if command is None:
        options = re.findall(r"""["'](--[\w-]+)["']""", (ROOT / script).read_text())
        unknown = [word for word in arguments if word.startswith("--") and word.split("=")[0] not in options]
        return f"{script} has no option {unknown[0]}" if unknown else None
    overrides = [_override(word) for word in arguments if "=" in word]
    loose = [word for word in arguments if "=" not in word and word not in ("--help", "--cfg")]
    if loose and script != "tools/listen.py":  # its first argument is the file
        return f"{loose[0]!r} is no key=value"
    schema = command.load()
    plain = compose_plain(command.name, schema, overrides, CONF_DIR)
    try:
        build(schema, plain)
    except LaunchError as error:
        if " is required: give" not in str(error):  # a line may leave out what the text around it says
            return str(error)
    except (ValueError, FileNotFoundError) as error:
        return None if "no such file" in str(error) or "wanted either ckpt=" in str(error) else str(error)
    return None


def _override(word: str) -> str:
    """``key=...`` stands for a value of the reader's."""
    key, _, value = word.partition("=")
    return f"{key}=X" if value == "..." else word
