"""Settings that a run would not read are refused by name: a user who gave one expects it to matter."""

from collections.abc import Iterator, Sequence
from dataclasses import MISSING, fields, is_dataclass
from typing import Any


def refuse_unread(config: Any, names: Sequence[str], where: str, *, prefix: str = "", hint: str = "") -> None:
    """ValueError for the first of a dataclass' fields that differs from its default, nested ones included.

    Args:
        config: the settings.
        names: fields that nobody reads here.
        where: completes "... is not read", such as "by openai models".
        prefix: stands before the names, as the command line has it (``judges.``).
        hint: what to set instead.
    """
    for name in names:
        for key, value in _given(name, getattr(config, name), _default(config, name)):
            raise ValueError(f"{prefix}{key}={value} is not read {where}{hint}")


def _given(name: str, value: Any, plain: Any) -> Iterator[tuple[str, Any]]:
    if value == plain:
        return
    if not is_dataclass(plain):
        yield name, value
        return
    for inner in fields(plain):
        yield from _given(f"{name}.{inner.name}", getattr(value, inner.name), getattr(plain, inner.name))


def _default(config: Any, name: str) -> Any:
    field = type(config).__dataclass_fields__[name]
    return field.default if field.default is not MISSING else field.default_factory()
