"""The stream of batches: a run that goes on sees what it would have seen, and pays nothing for what is behind it."""

from collections.abc import Iterator

import pytest

from wearllama.data.sampling import Draw
from wearllama.training.stream import BatchStream


class Counting:
    """Three batches an epoch; counts the epochs it made."""

    def __init__(self) -> None:
        self.epoch, self.made = 0, 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return 3

    def __iter__(self) -> Iterator[list[Draw]]:
        self.made += 1
        return iter([[Draw(index, self.epoch)] for index in range(3)])


@pytest.mark.parametrize("start", [0, 1, 3, 5, 10, 11])
def test_started_late_is_the_rest_of_started_early(start: int) -> None:
    assert list(BatchStream(Counting(), 11, start)) == list(BatchStream(Counting(), 11))[start:]


def test_epochs_behind_the_start_are_not_made() -> None:
    sampler = Counting()
    stream = BatchStream(sampler, 3_000_000, 2_999_998)
    assert [batch[0] for batch in stream] == [Draw(1, 999_999), Draw(2, 999_999)]
    assert sampler.made == 1 and len(stream) == 3_000_000
