"""Every script that is a command, by name: found in the source, imported only when its configuration is wanted."""

import ast
import importlib.util
import sys
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("recipes", "eval", "tools", "tools/benchmarks")


class Command(NamedTuple):
    """One launcher."""

    script: str
    """Relative to the clone."""
    name: str
    """Of its configuration in conf/."""
    schema: str
    """Name of its dataclass."""
    summary: str
    """First line of its docstring."""

    def load(self) -> type:
        """The dataclass itself."""
        return getattr(_module(self.script), self.schema)  # type: ignore[no-any-return]


@lru_cache(maxsize=1)
def commands() -> tuple[Command, ...]:
    """All launchers, recipes first."""
    return tuple(command for folder in FOLDERS for command in _of(folder))


def command_of(script: str) -> Command | None:
    """The launcher at a path relative to the clone; None for scripts with arguments of another kind."""
    return next((command for command in commands() if command.script == script), None)


def _of(folder: str) -> Iterator[Command]:
    for path in sorted((ROOT / folder).glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in (node for node in tree.body if isinstance(node, ast.FunctionDef)):
            for call in node.decorator_list:
                if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "launch":
                    name, schema = call.args
                    assert isinstance(name, ast.Constant) and isinstance(schema, ast.Name)
                    summary = (ast.get_docstring(tree) or "").splitlines()[0]
                    yield Command(f"{folder}/{path.name}", str(name.value), schema.id, summary)


@lru_cache(maxsize=128)
def _module(script: str) -> object:
    """A script as a module of a name of its own, with its neighbours in reach as when it is run."""
    path = ROOT / script
    for folder in (path.parent, ROOT / "recipes", ROOT / "tools"):
        if str(folder) not in sys.path:
            sys.path.append(str(folder))
    spec = importlib.util.spec_from_file_location("script_" + script.replace("/", "_").removesuffix(".py"), path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module
