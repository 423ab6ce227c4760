"""Docstrings use a few roles of reStructuredText (`func`, `class`, ...); the site shows them as code."""

import re
from typing import Any

from griffe import Extension, Object

ROLE = re.compile(r":(?:func|class|meth|mod|data|attr):`")


class Roles(Extension):
    """Takes the roles away before docstrings become pages."""

    def on_object(self, *, obj: Object, **kwargs: Any) -> None:
        """Called for every object that is found."""
        if obj.docstring is not None:
            obj.docstring.value = ROLE.sub("`", obj.docstring.value)
