"""The code of a checkpoint that loads where wearllama is not installed: the library's own files, made flat.

transformers copies the files beside a checkpoint's weights that its entry file imports relatively (``from .x import``),
from one folder. So every module that the model, its config and its processor need becomes one file of that folder, its
imports of the library turned into such imports and nothing else changed. All three classes come from one entry file:
transformers loads each entry apart, and two entries would give two classes of one name.
"""

import ast
import re
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

LIBRARY = Path(__file__).resolve().parents[1]
ENTRY = "wearllama_remote"
"""Name of the entry file, which no module of the library has."""
CLASSES = {
    "WearLlamaConfig": "wearllama.modeling.configuration",
    "WearLlamaForConditionalGeneration": "wearllama.modeling.modeling_wearllama",
    "WearLlamaProcessor": "wearllama.modeling.processing",
}
AUTO_MAP = {
    "AutoConfig": f"{ENTRY}.WearLlamaConfig",
    "AutoModel": f"{ENTRY}.WearLlamaForConditionalGeneration",
    "AutoModelForCausalLM": f"{ENTRY}.WearLlamaForConditionalGeneration",
    "AutoProcessor": f"{ENTRY}.WearLlamaProcessor",
}
"""For config.json and processor_config.json."""

_IMPORT = re.compile(r"^( *)from (wearllama(?:\.\w+)+) import ", re.MULTILINE)
_PYPI = {"yaml": "pyyaml"}


def flat_name(module: str) -> str:
    """File name without suffix: ``wearllama.audio.array`` -> ``audio_array``, ``wearllama.modeling.x`` -> ``x``."""
    return module.removeprefix("wearllama.").removeprefix("modeling.").replace(".", "_")


def flat_sources() -> dict[str, str]:
    """File name -> source of all that a bare checkpoint folder needs.

    Raises:
        ValueError: a module imports the library in a way that cannot be made flat.
    """
    found: dict[str, str] = {}
    waiting = list(CLASSES.values())
    while waiting:
        module = waiting.pop()
        if module not in found:
            found[module] = (LIBRARY.parent / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8")
            waiting += _own_imports(module, found[module])
    files = {f"{flat_name(module)}.py": _flat(module, source) for module, source in sorted(found.items())}
    assert len(files) == len(found) and f"{ENTRY}.py" not in files, "two modules share a flat name"
    return files | {f"{ENTRY}.py": _entry()}


def packages(sources: Mapping[str, str]) -> list[str]:
    """Names on PyPI of what the sources import beyond Python itself; peft, which only LoRA needs, is left out."""
    trees = [node for source in sources.values() for node in ast.walk(ast.parse(source))]
    names = {alias.name for node in trees if isinstance(node, ast.Import) for alias in node.names}
    names |= {str(node.module) for node in trees if isinstance(node, ast.ImportFrom) and node.level == 0}
    tops = {name.partition(".")[0] for name in names} - set(sys.stdlib_module_names) - {"peft"}
    return sorted(_PYPI.get(name, name) for name in tops)


def library_version() -> str:
    """The installed version of wearllama; ``unknown`` where it runs from a folder."""
    try:
        return version("wearllama")
    except PackageNotFoundError:
        return "unknown"


def _own_imports(module: str, source: str) -> list[str]:
    """Modules of the library that a module imports, each as ``from wearllama.x import name``."""
    wanted = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [str(node.module)] if node.level == 0 else ["wearllama"]
        else:
            continue
        for name in names:
            if name.partition(".")[0] != "wearllama":
                continue
            is_file = (LIBRARY.parent / f"{name.replace('.', '/')}.py").is_file()
            if isinstance(node, ast.Import) or not is_file:
                raise ValueError(
                    f"{module} line {node.lineno}: found {ast.unparse(node)!r}; what a checkpoint carries along "
                    "imports the library as 'from wearllama.x.y import name', y being a file"
                )
            wanted.append(name)
    return wanted


def _flat(module: str, source: str) -> str:
    flat = _IMPORT.sub(lambda match: f"{match[1]}from .{flat_name(match[2])} import ", source)
    origin = f"{module.replace('.', '/')}.py of wearllama {library_version()}"
    return f"# SPDX-License-Identifier: Apache-2.0\n# {origin}, made flat by tools/export_hub.py.\n{flat}"


def _entry() -> str:
    lines = [f"from .{flat_name(module)} import {name}" for name, module in CLASSES.items()]
    title = '"""WearLlama for transformers: what the auto_map of config.json and processor_config.json names."""'
    exported = ", ".join(f'"{name}"' for name in CLASSES)
    return "\n".join([title, "", *lines, "", f"__all__ = [{exported}]", ""])
