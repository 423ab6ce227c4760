"""What every job over a speech corpus is told and does: recordings one by one, the broken ones named and counted."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm

from wearllama.audio.io import AudioError
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

    @property
    def source_name(self) -> str:
        return self.name or Path(self.out_dir).name


def for_each_recording(job: CorpusJob, use: Callable[[Recording], None]) -> None:
    """Call ``use`` on the corpus' recordings in order; what is broken, or cannot be decoded, goes to faults.jsonl.

    Raises:
        TooManyFaults: more than ``job.tolerance`` of them is broken.
    """
    faults = Faults(Path(job.out_dir) / "faults.jsonl", job.tolerance)
    for number, found in enumerate(tqdm(read_source(job.source), unit="clip", desc=job.source_name)):
        if job.limit is not None and number >= job.limit:
            break
        if isinstance(found, Broken):
            faults.add(*found)
            continue
        try:
            use(found)
        except AudioError as error:
            faults.add("undecodable clip", found.id, str(error))
            continue
        faults.good()
    faults.finish()
