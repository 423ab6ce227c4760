"""The batches of a whole run as one finite stream, so that a position in the data is a number of batches."""

from collections.abc import Iterator
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

    The Trainer sees one long epoch: workers live through the run, and a resumed run skips exactly the batches that were
    used, without rendering them. Draws carry their epoch, so every epoch still renders its mixtures anew.
    """

    def __init__(self, sampler: EpochSampler, num_batches: int) -> None:
        self.sampler = sampler
        self.num_batches = num_batches

    def __len__(self) -> int:
        return self.num_batches

    def __iter__(self) -> Iterator[list[Draw]]:
        left, epoch = self.num_batches, 0
        while left > 0:
            self.sampler.set_epoch(epoch)
            for batch in self.sampler:
                if left == 0:
                    return
                left -= 1
                yield batch
            epoch += 1
