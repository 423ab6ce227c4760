"""The batches of a whole run as one finite stream, so that a position in the data is a number of batches."""

from collections.abc import Iterator
from itertools import islice
from typing import Protocol

from torch.utils.data import Sampler

from wearllama.data.sampling import Draw


class EpochSampler(Protocol):
    """What the stream needs of a batch sampler (``wearllama.data.sampling.BucketBatchSampler``)."""

    def set_epoch(self, epoch: int) -> None: ...

    def __iter__(self) -> Iterator[list[Draw]]: ...

    def __len__(self) -> int: ...


class BatchStream(Sampler[list[Draw]]):
    """Epoch after epoch of `sampler`, cut after `num_batches`.

    The Trainer sees one long epoch: workers live through the run. A resumed run starts at batch ``start``, which costs
    as much as starting at 0: whole epochs are passed over, and nothing is drawn for them. Draws carry their epoch, so
    every epoch still renders its mixtures anew.
    """

    def __init__(self, sampler: EpochSampler, num_batches: int, start: int = 0) -> None:
        self.sampler = sampler
        self.num_batches = num_batches
        self.start = start

    def __len__(self) -> int:
        """Of the whole run, wherever it starts: the Trainer's steps are numbered by it."""
        return self.num_batches

    def __iter__(self) -> Iterator[list[Draw]]:
        left = self.num_batches - self.start
        epoch, inside = divmod(self.start, len(self.sampler))
        while left > 0:
            self.sampler.set_epoch(epoch)
            for batch in islice(self.sampler, inside, inside + left):
                left -= 1
                yield batch
            epoch, inside = epoch + 1, 0
