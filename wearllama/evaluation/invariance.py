"""Whether a model says the same whatever else is in its batch."""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tqdm import tqdm

from wearllama.data.manifest import Example, load_audio
from wearllama.evaluation.adapters import CheckpointAdapter


class Difference(NamedTuple):
    """One example whose text depends on the batch."""

    id: str
    batch_size: int
    wanted: str
    """What the first batch size gave."""
    found: str


def texts_by_batch_size(
    model: CheckpointAdapter,
    examples: Sequence[Example],
    root: str | Path,
    sizes: Sequence[int],
    *,
    channels: int | None = None,
    seed: int = 0,
) -> dict[int, dict[str, str]]:
    """Batch size -> id -> text, greedily decoded.

    Batches are drawn at random for each size: rows of unlike length in one batch are what padding could disturb.
    Clips are read when their batch comes, so that memory holds one batch.
    """
    found: dict[int, dict[str, str]] = {}
    for size in sizes:
        order = list(examples)
        random.Random(f"{seed} {size}").shuffle(order)
        texts: dict[str, str] = {}
        for start in tqdm(range(0, len(order), size), desc=f"batches of {size}", unit="batch"):
            batch = order[start : start + size]
            clips = [load_audio(example, root, channels=channels) for example in batch]
            texts |= zip((example.id for example in batch), model.generate(batch, clips), strict=True)
        found[size] = texts
    return found


def differences(texts: dict[int, dict[str, str]]) -> list[Difference]:
    """Examples whose text is not that of the first batch size."""
    first, *others = texts
    return [
        Difference(name, size, wanted, texts[size][name])
        for size in others
        for name, wanted in texts[first].items()
        if texts[size][name] != wanted
    ]
