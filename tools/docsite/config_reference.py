"""The configuration reference as Markdown, from the dataclasses and the docstrings under their fields."""

import dataclasses
from collections.abc import Iterator
from typing import Any, NamedTuple, get_type_hints

from docsite.commands import Command, commands

from wearllama_launch.field_docs import dataclasses_in, docs_of, summary

INTRO = """# Configuration

Every script is a command with a configuration: `conf/NAME.yaml` over the defaults of the dataclass below, changed on
the command line by `key=value` ([Hydra](https://hydra.cc)'s syntax: `a.b=1`, `list=[1,2]`, `group=choice`). `--help`
prints the script's own words and all its values with their meaning, `--cfg` the values alone; an unknown key is an
error that names the nearest right one. This page is generated from the code.
"""


class Field(NamedTuple):
    """One row of a table."""

    name: str
    kind: str
    default: str
    text: str
    nested: type | None


def reference_page() -> str:
    """The whole page: scripts, then the dataclasses they share."""
    lines = [INTRO, "## Scripts\n"]
    shared: dict[str, type] = {}
    for command in commands():
        schema = command.load()
        lines += [f"### {command.script} {{ #{anchor(command)} }}\n", f"{plain(command.summary)}\n"]
        lines += [table(schema), ""]
        for nested in nested_types(schema):
            shared.setdefault(class_anchor(nested), nested)
    lines.append("## Parts\n")
    for name, schema in sorted(shared.items(), key=lambda item: item[1].__name__):
        lines += [f"### {schema.__name__} {{ #{name} }}\n", f"`{schema.__module__}`: {plain(summary(schema))}\n"]
        lines += [table(schema), ""]
    return "\n".join(lines)


def anchor(command: Command) -> str:
    """Where a script's section is."""
    return "script-" + command.script.removesuffix(".py").replace("/", "-")


def class_anchor(schema: type) -> str:
    """Where a dataclass' section is; two of one name have a section each."""
    module = schema.__module__.removeprefix("wearllama.").removeprefix("script_")
    return f"{module}.{schema.__name__}".lower().replace(".", "-").replace("_", "-")


def table(schema: type) -> str:
    """A dataclass as a table."""
    rows = ["| key | type | default | meaning |", "|---|---|---|---|"]
    for item in fields_of(schema):
        kind = f"[{item.kind}](#{class_anchor(item.nested)})" if item.nested else f"`{item.kind}`"
        default = "" if item.nested else ("**required**" if item.default == "" else f"`{item.default}`")
        text = item.text or (plain(summary(item.nested)) if item.nested else "")
        rows.append(f"| `{item.name}` | {kind} | {default} | {text} |")
    return "\n".join(rows)


def fields_of(schema: type) -> Iterator[Field]:
    """Fields in order, inherited ones included."""
    texts = docs_of(schema)
    hints = get_type_hints(schema)
    for item in dataclasses.fields(schema):
        if not item.init:
            continue
        kind, text = texts.get(item.name, ("", ""))
        nested = next(dataclasses_in(hints[item.name]), None)
        yield Field(item.name, cell(kind), cell(_default(item)), plain(text), nested)


def nested_types(schema: type) -> Iterator[type]:
    """Dataclasses that a dataclass holds, and those that these hold."""
    for hint in get_type_hints(schema).values():
        for nested in dataclasses_in(hint):
            yield nested
            yield from nested_types(nested)


def _default(item: "dataclasses.Field[Any]") -> str:
    if item.default is not dataclasses.MISSING:
        return repr(item.default)
    if item.default_factory is not dataclasses.MISSING:
        value = item.default_factory()
        return "" if dataclasses.is_dataclass(value) else repr(value)
    return ""


def plain(text: str) -> str:
    """A docstring as one line of Markdown that no table breaks on."""
    text = " ".join(text.split()).replace("|", "\\|").replace("``", "`")
    for role in ("class", "func", "meth", "data", "mod"):
        text = text.replace(f":{role}:`", "`")
    return text.replace("<", "&lt;") if "`" not in text else text


def cell(text: str) -> str:
    """Code in a table: a bar would end the cell."""
    return text.replace(" | ", " or ").replace("|", "/").replace("`", "'")
