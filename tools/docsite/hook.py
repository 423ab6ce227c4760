"""mkdocs' hook: pages that are made from the code, and figures that our own tools draw, at every build."""

import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
for folder in (ROOT, ROOT / "tools"):
    sys.path.insert(0, str(folder))

from docsite.api_reference import api_pages  # noqa: E402
from docsite.config_reference import reference_page  # noqa: E402
from docsite.figures import figures  # noqa: E402
from mkdocs.config.defaults import MkDocsConfig  # noqa: E402
from mkdocs.structure.files import File, Files  # noqa: E402


def on_files(files: Files, config: MkDocsConfig, **kwargs: Any) -> Files:
    """Add what is generated; mkdocs then treats it like any page."""
    made: dict[str, str | bytes] = {
        "reference/configuration.md": reference_page(),
        "changelog.md": (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"),
        "licence.md": _licence(),
        "citation.md": _citation(),
        **dict(api_pages(ROOT)),
        **{f"figures/{name}.svg": svg for name, svg in figures().items()},
    }
    for place, content in made.items():
        files.append(File.generated(config, place, content=content))
    return files


def _licence() -> str:
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    return (
        "# Licence\n\nThe code, the packaged encoder and tokenizer, and these pages are under the Apache License 2.0, "
        "below. Voices, recordings and weights that `make demo` fetches have licences of their own, each named in "
        f"`conf/assets.yaml`.\n\n```text\n{text}\n```\n"
    )


def _citation() -> str:
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    intro = (
        "If WearLlama helps your work, cite the software; tools such as `cffconvert` turn this file into BibTeX. The "
        "methods and benchmarks are those of the papers named under `references`: cite these as well."
    )
    return f"# Citation\n\n{intro}\n\n```yaml\n{text}\n```\n"
