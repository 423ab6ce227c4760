"""Pages of the API reference: one a package, its modules in order; mkdocstrings fills them in."""

from collections.abc import Iterator
from pathlib import Path

PACKAGES = {
    "audio": "Waveforms, no learning: files, front end, arrays, beams.",
    "simulation": "Rooms, responses, mixing, noise, devices, evaluation conditions.",
    "modeling": "Conformer, BEST-RQ, projector, fusion, WearLlama, streaming.",
    "data": "Manifests, prompts, tools, the action contract, sampling, collation.",
    "training": "What the recipes share: SFT, BEST-RQ, GRPO, rewards, plans.",
    "evaluation": "Benchmarks, model adapters, judges, scoring, intervals, reports.",
}


def api_pages(root: Path) -> Iterator[tuple[str, str]]:
    """(place in the site, Markdown) of each page."""
    listed = "\n".join(f"- [`wearllama.{name}`](api/{name}.md): {text}" for name, text in PACKAGES.items())
    yield (
        "reference/api.md",
        "# API\n\nFrom the docstrings. Shapes stand in names: `audio_MN` is (microphones, samples); each module's "
        f"docstring has the legend.\n\n{listed}\n",
    )
    for name, text in PACKAGES.items():
        lines = [f"# wearllama.{name}\n", f"{text}\n"]
        for path in sorted((root / "wearllama" / name).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            if not any(part.startswith("_") for part in parts):
                lines.append(f"::: {'.'.join(parts)}\n")
        yield f"reference/api/{name}.md", "\n".join(lines)
