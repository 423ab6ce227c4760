"""Files of a bank: one JSON line an entry, one array, one description; written so that a kill leaves none half done.

Shapes: M channels, K taps.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wearllama.atomic import replacing, write_json, write_text

FORMAT = 1
ROLES = ("wearer", "partner", "bystander", "noise", "diffuse")


class BankError(ValueError):
    """A bank that is missing, incomplete or inconsistent; the message names file, found and wanted."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RirEntry:
    """What is known of one multichannel response."""

    id: str
    role: str
    """wearer, partner, bystander, noise (a point) or diffuse (no direct sound)."""
    azimuth_deg: float
    """Direction seen from the wearer's head: 0 ahead, positive to the left."""
    elevation_deg: float
    distance_m: float
    """From the source to c_0."""
    rt60_s: float
    drr_db: float
    """Direct-to-reverberant energy ratio at c_0."""
    room: str
    split: str
    array: str
    kind: str = "shoebox"
    """Kind of space: shoebox, hallway, car, open_air or measured."""
    source: str = ""
    """Id of the entry for the same source with the head in pose 0, where there are more poses."""
    pose: int = 0
    """Place on the room's track: neighbours in number are neighbours in space.  0 for still scenes."""
    turn_deg: float = 0.0
    """Turn of the head against pose 0, positive to the left."""
    ahead_m: float = 0.0
    """Way of the head from pose 0."""

    def __post_init__(self) -> None:
        if self.role not in ROLES:
            raise ValueError(f"RIR entry {self.id!r}: role is {self.role!r}, wanted one of {', '.join(ROLES)}")


_FIELDS = {item.name: item.default for item in fields(RirEntry)}
_NEEDED = {name for name, default in _FIELDS.items() if default is MISSING}


def to_line(entry: RirEntry) -> str:
    """One line of JSON; what an entry has by default is left out."""
    return json.dumps({name: value for name, value in asdict(entry).items() if value != _FIELDS[name]})


def read_index(path: Path) -> list[RirEntry]:
    """All entries of an index file; BankError names the line that is wrong."""
    entries = []
    with path.open() as lines:
        for number, line in enumerate(lines, start=1):
            try:
                row = json.loads(line)
                if not _NEEDED <= row.keys() <= _FIELDS.keys():
                    raise ValueError(
                        f"fields {sorted(row)}, wanted {sorted(_NEEDED)} and maybe others of {list(_FIELDS)}"
                    )
                entries.append(RirEntry(**row))
            except (ValueError, TypeError, AttributeError) as error:
                raise BankError(f"{path}, line {number}: {error}") from error
    return entries


def write_bank(
    path: str | Path,
    entries: Sequence[RirEntry],
    rirs: Iterable[NDArray[np.floating[Any]]],
    *,
    num_channels: int,
    num_taps: int,
    pre_samples: int,
    reference: int = 0,
    sample_rate: int = 16_000,
    dtype: str = "float16",
    extra: dict[str, Any] | None = None,
) -> None:
    """Write a bank; also the door for measured responses.

    ``rirs`` yields one (M, K) array an entry, in order: first arrival at c_0 at tap ``pre_samples``, all in one common
    scale.  ``meta.json`` is written last, so that a killed run leaves no directory that opens.

    Raises:
        BankError: an array has another shape, is not finite, or their number differs from the entries'.
    """
    if dtype not in ("float16", "float32"):
        raise BankError(f"{path}: dtype is {dtype!r}, wanted float16 or float32")
    path = Path(path)
    (path / "meta.json").unlink(missing_ok=True)
    for left in path.glob(".rirs.npy.*.tmp"):  # of a killed run, as large as the bank
        left.unlink()
    with replacing(path / "rirs.npy") as temporary:
        _write_array(temporary, path, entries, rirs, (num_channels, num_taps), dtype)
    write_text(path / "index.jsonl", "".join(to_line(entry) + "\n" for entry in entries))
    meta = {
        "format": FORMAT,
        "sample_rate": sample_rate,
        "pre_samples": pre_samples,
        "reference": reference,
        "dtype": dtype,
        **(extra or {}),
    }
    write_json(path / "meta.json", meta, indent=2, ensure_ascii=True)


def _write_array(
    temporary: Path,
    path: Path,
    entries: Sequence[RirEntry],
    rirs: Iterable[NDArray[np.floating[Any]]],
    shape: tuple[int, int],
    dtype: str,
) -> None:
    array = np.lib.format.open_memmap(temporary, "w+", dtype, (len(entries), *shape))
    largest = float(np.finfo(dtype).max)
    count = 0
    for count, rir_MK in enumerate(rirs, start=1):
        name = entries[count - 1].id if count <= len(entries) else f"number {count}"
        if rir_MK.shape != shape:
            raise BankError(f"{path}: response {name} has shape {rir_MK.shape}, wanted {shape}")
        if not np.isfinite(rir_MK).all():
            raise BankError(f"{path}: response {name} is not finite")
        if np.abs(rir_MK).max(initial=0) > largest:
            raise BankError(
                f"{path}: response {name} reaches {np.abs(rir_MK).max():.3g}, {dtype} ends at {largest:.3g}"
            )
        if count <= len(entries):
            array[count - 1] = rir_MK
    if count != len(entries):
        raise BankError(f"{path}: {count} responses for {len(entries)} entries")
    array.flush()
