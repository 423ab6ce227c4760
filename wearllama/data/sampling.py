"""Batches by two lengths: sound and text.

Rows are put into a grid of buckets (embeddings of sound x text tokens), so that rows of a batch are of a length in
both; every bucket has its own number of rows a batch, as many as the budget of decoder positions and of sound allows.
Buckets, and with them the number of batches, are the same in every epoch; only the order inside a bucket and of the
batches changes, drawn from (seed, epoch).

Text-only rows ride along with rows of sound: none of a bucket's batches is without sound as long as it has as many rows
of sound as batches.  Every rank gets the same number of batches.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Sampler

Indices = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Draw:
    """One rendering of one example: what a batch sampler hands to the dataset."""

    index: int
    epoch: int
    repeat: int = 0
    """How often this epoch drew the example before."""


@dataclass(kw_only=True)
class BatchConfig:
    """How batches are cut."""

    max_rows: int = 32
    """Rows a batch at most."""
    max_positions: int = 8192
    """Padded decoder positions a batch at most: rows x (embeddings + text tokens of the longest)."""
    max_audio_seconds: float = 600.0
    """Padded seconds of sound a batch at most."""
    audio_buckets: int = 6
    """Cuts by length of sound."""
    text_buckets: int = 2
    """Cuts by text tokens inside each of those."""
    weights: dict[str, float] = field(default_factory=dict)
    """Times an epoch that a task's rows are drawn; 1 where a task is not named, 0 leaves it out."""
    source_weights: dict[str, float] = field(default_factory=dict)
    """The same for sources (``metadata.source``); both factors apply."""
    temperature: float = 1.0
    """Sources of n rows are drawn in proportion to n^(1 / temperature); 1 leaves their sizes, large makes them equal.
    The number of draws an epoch stays about the same (Conneau et al. 2020, section 3.1, with alpha = 1 / temperature).
    """

    def __post_init__(self) -> None:
        for name in ("max_rows", "max_positions", "max_audio_seconds", "audio_buckets", "text_buckets"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} is {getattr(self, name)}, wanted more than 0")
        for field_name in ("weights", "source_weights"):
            for name, weight in getattr(self, field_name).items():
                if not 0 <= weight < 1000:
                    raise ValueError(f"{field_name}[{name!r}] is {weight}, wanted 0 or more")
        if self.temperature < 1:
            raise ValueError(f"temperature is {self.temperature}, wanted 1 or more")


@dataclass(frozen=True)
class Lengths:
    """What batching needs to know of every row."""

    seconds: NDArray[np.float64]
    """Seconds of sound; 0 for text-only rows."""
    embeddings: Indices
    """Decoder positions that the sound takes."""
    tokens: Indices
    """All other decoder positions: prompt and target."""
    tasks: Sequence[str]
    sources: Sequence[str] = ()
    """Where rows come from; empty: all from one place."""

    def __post_init__(self) -> None:
        counts = {len(self.seconds), len(self.embeddings), len(self.tasks), len(self.tokens)}
        counts |= {len(self.sources)} if self.sources else set()
        if counts != {len(self.seconds)} or not len(self.seconds):
            raise ValueError(f"lengths of rows: found {sorted(counts)} entries, wanted the same number, at least one")


class _Bucket(NamedTuple):
    """Rows of one cell; ``groups`` are its rows by kind (sound first) and task, with how many an epoch draws."""

    groups: list[tuple[Indices, int]]
    num_batches: int


class BucketBatchSampler(Sampler[list[Draw]]):
    """Batches of :class:`Draw` for one rank; call :meth:`set_epoch` before each epoch.

    Rank r of W takes batches r, r + W, ... of one global list, so that W ranks do in one step what one rank does in W
    accumulated ones.  The list is filled up with fresh renderings of its first batches to a multiple of W.
    """

    def __init__(
        self, lengths: Lengths, config: BatchConfig, *, seed: int = 0, rank: int = 0, world_size: int = 1
    ) -> None:
        if not 0 <= rank < world_size:
            raise ValueError(f"rank {rank} of {world_size} ranks, wanted 0..{world_size - 1}")
        unknown = sorted(set(config.weights) - set(lengths.tasks))
        if unknown:
            raise ValueError(f"weights names tasks {unknown}, the data has {sorted(set(lengths.tasks))}")
        unknown = sorted(set(config.source_weights) - set(lengths.sources))
        if unknown:
            raise ValueError(f"source_weights names {unknown}, the data has sources {sorted(set(lengths.sources))}")
        self.lengths, self.config = lengths, config
        self.seed, self.rank, self.world_size = seed, rank, world_size
        self.epoch = 0
        self._buckets = _make_buckets(lengths, config)
        total = sum(bucket.num_batches for bucket in self._buckets)
        if not total:
            raise ValueError("no rows to draw: every task has weight 0")
        self._per_rank = -(-total // world_size)
        self.num_own = len(range(rank, total, world_size))
        """Batches of this rank's epoch, which come first; what is left of ``len(self)`` fills up."""

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch that the next iteration draws."""
        self.epoch = epoch

    def __len__(self) -> int:
        return self._per_rank

    def __iter__(self) -> Iterator[list[Draw]]:
        return iter(self.global_batches()[self.rank :: self.world_size])

    def global_batches(self) -> list[list[Draw]]:
        """All ranks' batches of the current epoch, in order."""
        rng = np.random.default_rng([self.seed, self.epoch])
        drawn: dict[int, int] = {}
        batches: list[list[Draw]] = []
        for bucket in self._buckets:
            order = np.concatenate([_draw(rows, count, rng) for rows, count in bucket.groups])
            # Sound comes first and is dealt round: each batch gets some before any gets text-only rows.
            batches += [order[start :: bucket.num_batches].tolist() for start in range(bucket.num_batches)]
        shuffled = [batches[i] for i in rng.permutation(len(batches))]
        missing = self._per_rank * self.world_size - len(shuffled)
        shuffled += [shuffled[i % len(shuffled)] for i in range(missing)]
        return [[self._next(index, drawn) for index in batch] for batch in shuffled]

    def padding_ratio(self) -> float:
        """Share of the decoder positions of an epoch that are padding."""
        positions = self.lengths.embeddings + self.lengths.tokens
        rows = [positions[[draw.index for draw in batch]] for batch in self.global_batches()]
        return 1.0 - sum(int(row.sum()) for row in rows) / sum(int(row.max()) * len(row) for row in rows)

    def _next(self, index: int, drawn: dict[int, int]) -> Draw:
        repeat = drawn.get(index, 0)
        drawn[index] = repeat + 1
        return Draw(index, self.epoch, repeat)


def _draw(rows: Indices, count: int, rng: np.random.Generator) -> Indices:
    """``count`` of the rows in random order, each as often as any other to within one."""
    whole, rest = divmod(count, len(rows))
    drawn = np.concatenate([np.tile(rows, whole), rng.permutation(rows)[:rest]])
    return rng.permutation(drawn)


def row_weights(lengths: Lengths, config: BatchConfig) -> NDArray[np.float64]:
    """Times an epoch that each row is drawn on average: task, source and temperature."""
    weights = np.array([config.weights.get(task, 1.0) for task in lengths.tasks])
    if not lengths.sources:
        return weights
    names, source_R, counts = np.unique(np.array(lengths.sources), return_inverse=True, return_counts=True)
    share = counts ** (1.0 / config.temperature)
    share *= counts.sum() / share.sum()
    factors = share / counts * np.array([config.source_weights.get(str(name), 1.0) for name in names])
    return weights * factors[source_R]


def _make_buckets(lengths: Lengths, config: BatchConfig) -> list[_Bucket]:
    weights = row_weights(lengths, config)
    positions = lengths.embeddings + lengths.tokens
    over = np.flatnonzero((positions > config.max_positions) | (lengths.seconds > config.max_audio_seconds))
    if len(over):
        row = over[0]
        raise ValueError(
            f"{len(over)} rows are longer than a batch may be, the first is row {row} with {positions[row]} positions "
            f"and {lengths.seconds[row]:.1f} s; max_positions is {config.max_positions}, max_audio_seconds "
            f"{config.max_audio_seconds}"
        )
    kept = weights > 0
    sound = np.flatnonzero(kept & (lengths.seconds > 0))
    text = np.flatnonzero(kept & (lengths.seconds == 0))
    cells = _grid(sound if len(sound) else text, lengths, config)
    riders = _deal_riders(text, cells) if len(sound) else [text[:0] for _ in cells]
    return [_make_bucket(cell, rider, lengths, weights, config) for cell, rider in zip(cells, riders, strict=True)]


def _grid(rows: Indices, lengths: Lengths, config: BatchConfig) -> list[Indices]:
    """Equal shares by sound, each cut into equal shares by text."""
    by_sound = rows[np.lexsort((rows, lengths.tokens[rows], lengths.embeddings[rows]))]
    cells: list[Indices] = []
    for column in np.array_split(by_sound, config.audio_buckets):
        by_text = column[np.lexsort((column, lengths.tokens[column]))]
        cells += [cell for cell in np.array_split(by_text, config.text_buckets) if len(cell)]
    return cells


def _deal_riders(text: Indices, cells: list[Indices]) -> list[Indices]:
    """Text-only rows, spread over the cells in proportion to their rows of sound."""
    reached = np.cumsum([len(cell) for cell in cells])
    edges = np.round(reached / reached[-1] * len(text)).astype(int)
    shuffled = np.random.default_rng(0).permutation(text)
    return np.split(shuffled, edges[:-1])


def _by_kind(rows: Indices, lengths: Lengths) -> list[Indices]:
    """Rows of one kind, which share a weight; a kind is a task, and where there are sources the source, none too."""
    kinds: dict[tuple[str, str], list[int]] = {}
    for row in rows.tolist():
        kinds.setdefault((lengths.tasks[row], lengths.sources[row] if lengths.sources else ""), []).append(row)
    return [np.array(kinds[kind], dtype=np.int64) for kind in sorted(kinds)]


def _make_bucket(
    sound: Indices, riders: Indices, lengths: Lengths, weights: NDArray[np.float64], config: BatchConfig
) -> _Bucket:
    groups: list[tuple[Indices, int]] = []
    total = 0
    for rows in (sound, riders):
        for members in _by_kind(rows, lengths):
            count = max(1, round(len(members) * float(weights[members[0]])))
            groups.append((members, count))
            total += count
    rows = np.concatenate([sound, riders])
    size = min(
        config.max_rows,
        config.max_positions // int((lengths.embeddings[rows] + lengths.tokens[rows]).max()),
        int(config.max_audio_seconds / max(float(lengths.seconds[rows].max()), 1e-9)),
    )
    return _Bucket(groups, -(-total // size))
