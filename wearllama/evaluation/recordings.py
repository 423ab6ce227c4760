"""Rows with recordings, of whichever kind of data a path holds."""

from pathlib import Path

from wearllama.data.manifest import Example, read_manifest
from wearllama.evaluation.vgbench import VGBenchConfig, load_vgbench
from wearllama.evaluation.wearvox import TURN_TASKS, WearVoxConfig, load_wearvox


def read_examples(data: Path, channels: int) -> list[Example]:
    """Rows of a WearVox folder, a VGBench manifest, or a manifest of recorded rows; recipes are a ValueError."""
    if data.suffix != ".jsonl":
        return load_wearvox(data, WearVoxConfig(tasks=TURN_TASKS, channels=channels))
    with data.open(encoding="utf-8") as lines:
        if '"scenario"' in lines.readline():
            return load_vgbench(data, VGBenchConfig(audio_channels=channels))
    rows = read_manifest(data)
    recipes = [row.id for row in rows if row.audio and "mixture" in row.audio]
    if recipes:
        raise ValueError(f"{data}: {len(recipes)} rows are recipes (first {recipes[0]}), wanted recordings; "
                         "tools/make_asr.py bank=... renders them")  # fmt: skip
    return rows


def audio_root(data: Path) -> Path:
    """The folder that the rows' paths are relative to."""
    return data.parent if data.suffix == ".jsonl" else data
