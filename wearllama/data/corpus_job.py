"""What every job over a speech corpus is told and does: recordings one by one, the broken ones named and counted."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal

from tqdm import tqdm

from wearllama.atomic import write_text
from wearllama.audio.io import AudioError, FirstDamaged
from wearllama.data.corpora import Broken, CorpusSource, Recording, read_source
from wearllama.data.faults import Faults


@dataclass(kw_only=True)
class CorpusJob:
    """Settings that jobs over a corpus share."""

    source: CorpusSource
    out_dir: str
    name: str | None = None
    """``source`` of the rows, what mixtures are weighted by; the folder's name if not given."""
    tolerance: float = 0.01
    """Share of the recordings that may be broken."""
    limit: int | None = None
    """Recordings at most."""
    part: Literal["all", "train", "test"] = "all"
    """``test`` takes every ``every``-th recording, ``train`` the others: a folder to learn from and one to test on."""
    every: int = 20

    def __post_init__(self) -> None:
        if self.every < 2:
            raise ValueError(f"every is {self.every}, wanted 2 or more")

    @property
    def source_name(self) -> str:
        return self.name or Path(self.out_dir).name

    def takes(self, number: int) -> bool:
        """Whether the corpus' recording ``number`` is of this job's part."""
        return self.part == "all" or (self.part == "test") == (number % self.every == 0)


def claim(out_dir: Path, made_by: str) -> None:
    """Note what fills the folder; ValueError where it was something else: rows would come twice."""
    path = out_dir / "made_by.txt"
    if path.is_file() and (before := path.read_text(encoding="utf-8").strip()) != made_by:
        raise ValueError(f"{out_dir} was filled by {before!r}, now {made_by!r}: take another out_dir")
    write_text(path, f"{made_by}\n")


def for_each_recording(job: CorpusJob, use: Callable[[Recording], None]) -> None:
    """Call ``use`` on the corpus' recordings in order; what is broken, or cannot be decoded, goes to faults.jsonl.

    Raises:
        TooManyFaults: more than ``job.tolerance`` of them is broken.
        ValueError: the folder holds what another job, or the same from another corpus, made.
    """
    part = "" if job.part == "all" else f" {job.part} {job.every}"
    claim(Path(job.out_dir), f"{type(job).__name__} {job.source.layout} {Path(job.source.root).resolve()}{part}")
    faults = Faults(Path(job.out_dir) / "faults.jsonl", job.tolerance)
    damaged = FirstDamaged()
    mine = (found for number, found in enumerate(read_source(job.source)) if job.takes(number))
    for found in tqdm(islice(mine, job.limit), unit="clip", desc=job.source_name):
        if isinstance(found, Broken):
            faults.add(*found)
            continue
        try:
            with damaged.watching():
                use(found)
        except AudioError as error:
            faults.add("undecodable clip", found.id, str(error))
            continue
        faults.good()
    faults.finish()
    if damaged.count > 1:
        print(f"{damaged.count} warnings of clipping or silence, of which the first is shown")
