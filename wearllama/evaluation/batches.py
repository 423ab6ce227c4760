"""Items of a benchmark in batches of similar length, and the sound of the next one read ahead."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias

from wearllama.audio.io import AudioError
from wearllama.data.manifest import Clip, Example

Batch: TypeAlias = Sequence[tuple[Example, str]]
"""Examples with the keys of their predictions."""
Sounds: TypeAlias = list[Clip | AudioError | None]


def in_batches(todo: Batch, most: int, seconds: float | None) -> list[Batch]:
    """Consecutive items (sorted by length, longest first): ``most`` of them, and no more sound than ``seconds``."""
    batches: list[Batch] = []
    start = 0
    while start < len(todo):
        size = most
        if seconds is not None:
            size = min(size, max(1, int(seconds / max(todo[start][0].seconds, 0.01))))
        batches.append(todo[start : start + size])
        start += size
    return batches


def prefetch(
    batches: Sequence[Batch], load: Callable[[Example], Clip | AudioError | None]
) -> Iterator[tuple[Batch, Sounds]]:
    """Batches with their sound; the next one is read while the model works on this one."""

    def sounds(batch: Batch) -> Sounds:
        return [load(example) for example, _ in batch]

    with ThreadPoolExecutor(max_workers=1) as pool:
        ahead = [pool.submit(sounds, batch) for batch in batches[:1]]
        for index, batch in enumerate(batches):
            clips = ahead.pop().result()
            ahead = [pool.submit(sounds, after) for after in batches[index + 1 : index + 2]]
            yield batch, clips
