"""What an adapter may say about an output beside its text."""

from collections.abc import Mapping
from typing import Any


class Output(str):
    """A raw output with what is known about it. A plain ``str`` is an output of which nothing more is known.

    ``extra`` goes into the log: ``truncated_from_s`` (the recording was longer than the model takes),
    ``prompt_tokens``, ``completion_tokens``, ``transcript`` (a cascade's), ``attempts``, ``served_by``.  ``error`` says
    why there is no text; a ``transient`` one is never logged, so that the next run asks again.
    """

    extra: Mapping[str, Any]
    error: str
    transient: bool

    def __new__(
        cls, text: str, extra: Mapping[str, Any] | None = None, *, error: str = "", transient: bool = False
    ) -> "Output":
        self = super().__new__(cls, text)
        self.extra, self.error, self.transient = dict(extra or {}), error, transient
        return self
