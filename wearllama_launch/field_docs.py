"""What a dataclass says of its fields: annotations and the docstrings under them, read from its source."""

import ast
import dataclasses
import inspect
import textwrap
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, get_args, get_type_hints

import yaml

WIDTH = 118


@lru_cache(maxsize=512)
def docs_of(schema: type) -> dict[str, tuple[str, str]]:
    """Annotation and docstring of each field, of the class and of those it inherits from."""
    found: dict[str, tuple[str, str]] = {}
    for base in reversed(schema.__mro__):
        if not dataclasses.is_dataclass(base):
            continue
        tree = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0]
        assert isinstance(tree, ast.ClassDef)
        for node, following in zip(tree.body, [*tree.body[1:], None], strict=True):
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                text = ""
                if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
                    text = str(following.value.value)
                found[node.target.id] = (ast.unparse(node.annotation).strip("'\""), text)
    return found


def dataclasses_in(hint: Any) -> Iterator[type]:
    """Dataclasses that an annotation names."""
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        yield hint
    for part in get_args(hint):
        yield from dataclasses_in(part)


def summary(schema: type) -> str:
    """First paragraph of a docstring, on one line."""
    return " ".join((inspect.getdoc(schema) or "").split("\n\n")[0].split())


def annotated_yaml(schema: type, plain: Mapping[str, Any], indent: str = "") -> Iterator[str]:
    """Lines of a config as YAML, each key below a comment with its meaning."""
    hints, texts = get_type_hints(schema), docs_of(schema)
    for name, value in plain.items():
        nested = next(dataclasses_in(hints.get(name)), None)
        _, text = texts.get(name, ("", ""))
        meaning = " ".join(text.split()) or (summary(nested) if nested else "")
        comment = indent + "# "
        words = textwrap.wrap(
            meaning.replace("``", "`"), WIDTH, initial_indent=comment, subsequent_indent=comment, break_on_hyphens=False
        )
        yield from words
        if nested is not None and isinstance(value, Mapping) and value:
            yield f"{indent}{name}:"
            yield from annotated_yaml(nested, value, indent + "  ")
        else:
            dumped = yaml.safe_dump({name: value}, sort_keys=False, allow_unicode=True)
            yield textwrap.indent(dumped.rstrip("\n"), indent)
