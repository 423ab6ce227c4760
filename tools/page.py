"""A page of results: tables, what somebody wrote about them, and the commands that made them."""

import re
import time
from collections.abc import Sequence
from pathlib import Path

from wearllama.atomic import write_text
from wearllama.evaluation.tables import Table


def write_page(
    path: Path, title: str, intro: str, tables: Sequence[Table], commands: Sequence[str], figure: str | None = None
) -> None:
    """Write the page anew, its section "## Reading" as it was; ``figure``: of the trainings, beside the page."""
    drawn = ["### Training", "", f"![Loss by step]({figure})", ""] if figure else []
    shown = "\n".join(f"python {command}" for command in commands)
    write_text(path, "\n".join([
        f"# {title}", "", f"{intro} Made on {time.strftime('%Y-%m-%d')}.", "",
        *(table.markdown() for table in tables), *drawn, reading(path) + "## Commands", "", "```", shown, "```", "",
    ]))  # fmt: skip


def reading(path: Path) -> str:
    """What somebody wrote on the page about its tables."""
    written = re.search(r"^## Reading\n.*?(?=^## )", path.read_text(), re.S | re.M) if path.is_file() else None
    return written.group() if written else ""
