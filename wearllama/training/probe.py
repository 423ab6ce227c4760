"""How large a batch may be: try until memory is out."""

import gc
import resource
from collections.abc import Callable

import torch

CPU_OUT_OF_MEMORY = ("allocate memory", "could not create a primitive", "could not create a memory")
"""How torch's allocator and oneDNN tell it; neither has an error of its own."""


def find_budget(fits: Callable[[int], bool], start: int, *, most: int = 1 << 24, step: float = 0.05) -> int:
    """The largest budget that fits, to within ``step`` of itself: doubled until one does not, then halved between.

    Args:
        fits: whether a batch of so many positions can be trained on.
        start: a budget that should fit.
        most: stop looking above this.
        step: relative precision.

    Raises:
        ValueError: ``start`` itself does not fit.
    """
    if not fits(start):
        raise ValueError(f"a batch of {start} positions does not fit; shorter rows or a smaller model are wanted")
    good, bad = start, None
    while bad is None and good < most:
        good, bad = (2 * good, None) if fits(2 * good) else (good, 2 * good)
    while bad is not None and bad - good > max(1, step * good):
        middle = (good + bad) // 2
        good, bad = (middle, bad) if fits(middle) else (good, middle)
    return good


def fits_in_memory(train_step: Callable[[], None]) -> bool:
    """Run a step; False where the GPU, or a process under :func:`limit_memory`, ran out of memory; it is given back."""
    try:
        train_step()
    except (RuntimeError, MemoryError) as error:
        known = isinstance(error, (torch.OutOfMemoryError, MemoryError))
        if not known and not any(words in str(error) for words in CPU_OUT_OF_MEMORY):
            raise
        fitted = False
    else:
        fitted = True
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return fitted


def limit_memory(gib: float) -> None:
    """Let this process hold so much memory (private, writable) and no more: what asks for more fails at once."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (round(gib * 2**30), hard))
