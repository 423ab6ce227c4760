"""RIR bank on disk (contract 3): one door for simulated and measured responses.

A bank is a directory of ``index.jsonl`` (one :class:`RirEntry` a line), ``rirs.npy`` (entry, channel, tap; memory-
mapped, float16 or float32) and ``meta.json``.  Every entry has its first arrival at c_0 at tap
``meta["pre_samples"]``: ONE shift for all channels of an entry, so that delays between channels are kept, with room
before it for microphones that hear a source earlier than c_0.  ONE scale for the whole bank, so that levels between
entries and channels are real.

Shapes: M channels, K taps, F frequency bins.
"""

import json
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import scipy.fft
from numpy.typing import NDArray

from wearllama.atomic import replacing, write_json, write_text

ROLES = ("wearer", "partner", "bystander", "noise", "diffuse")
FORMAT = 1
DIRECT_HALF = 40
SPECTRA_CACHE_BYTES = 192 * 2**20


class BankError(ValueError):
    """A bank that is missing, incomplete or inconsistent; the message names file, found and wanted."""


@dataclass(frozen=True, kw_only=True)
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

    def __post_init__(self) -> None:
        if self.role not in ROLES:
            raise ValueError(f"RIR entry {self.id!r}: role is {self.role!r}, wanted one of {', '.join(ROLES)}")


class RirBank:
    """Read access to a bank; cheap to pickle into data workers (the map is opened again there)."""

    def __init__(self, path: Path, entries: list[RirEntry], meta: dict[str, Any]) -> None:
        self.path = path
        self.entries = entries
        self.meta = meta
        self._rirs: NDArray[Any] | None = None
        self._spectra: OrderedDict[tuple[int, int], NDArray[np.complex64]] = OrderedDict()
        self._cached_bytes = 0
        self._selected: dict[tuple[Any, ...], list[int]] = {}
        self._rooms: dict[str | None, list[str]] = {}
        self._energies: dict[int, tuple[float, float]] = {}

    @classmethod
    def open(cls, path: str | Path) -> "RirBank":
        """Open and check a bank directory.

        Raises:
            BankError: a file is missing, a line of the index is bad, or index and array disagree.
        """
        path = Path(path)
        for name in ("meta.json", "index.jsonl", "rirs.npy"):
            if not (path / name).is_file():
                raise BankError(f"{path}: no {name} here; build a bank with tools/build_rir_bank.py")
        meta = json.loads((path / "meta.json").read_text())
        if meta.get("format") != FORMAT:
            raise BankError(f"{path / 'meta.json'}: bank format {meta.get('format')!r}, wanted {FORMAT}")
        entries = _read_index(path / "index.jsonl")
        bank = cls(path, entries, meta)
        if bank._array.ndim != 3 or bank._array.shape[0] != len(entries):
            raise BankError(f"{path}: rirs.npy has shape {bank._array.shape}, index.jsonl has {len(entries)} entries")
        return bank

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path, "entries": self.entries, "meta": self.meta}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["path"], state["entries"], state["meta"])  # type: ignore[misc]

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def _array(self) -> NDArray[Any]:
        if self._rirs is None:
            self._rirs = np.load(self.path / "rirs.npy", mmap_mode="r")
        return self._rirs

    @property
    def num_channels(self) -> int:
        return int(self._array.shape[1])

    @property
    def num_taps(self) -> int:
        return int(self._array.shape[2])

    @property
    def pre_samples(self) -> int:
        """Tap of the first arrival at c_0, the same for every entry."""
        return int(self.meta["pre_samples"])

    @property
    def reference(self) -> int:
        return int(self.meta["reference"])

    @property
    def sample_rate(self) -> int:
        return int(self.meta["sample_rate"])

    def rir(self, index: int) -> NDArray[np.float32]:
        """Response ``index`` as float32 (M, K)."""
        return np.asarray(self._array[index], dtype=np.float32)

    def spectrum(self, index: int, n_fft: int) -> NDArray[np.complex64]:
        """Spectrum (M, n_fft // 2 + 1) of response ``index``; the most recently used are kept."""
        key = (index, n_fft)
        if key in self._spectra:
            self._spectra.move_to_end(key)
            return self._spectra[key]
        spectrum_MF = scipy.fft.rfft(self.rir(index), n_fft)
        self._spectra[key] = spectrum_MF
        self._cached_bytes += spectrum_MF.nbytes
        while self._cached_bytes > SPECTRA_CACHE_BYTES and len(self._spectra) > 1:
            self._cached_bytes -= self._spectra.popitem(last=False)[1].nbytes
        return spectrum_MF

    def select(
        self,
        *,
        role: str | None = None,
        split: str | None = None,
        room: str | None = None,
        min_distance: float | None = None,
        max_distance: float | None = None,
    ) -> list[int]:
        """Indices of entries that match everything asked for, in index order."""
        key = (role, split, room, min_distance, max_distance)
        if key not in self._selected:
            self._selected[key] = [
                index
                for index, entry in enumerate(self.entries)
                if (role is None or entry.role == role)
                and (split is None or entry.split == split)
                and (room is None or entry.room == room)
                and (min_distance is None or entry.distance_m >= min_distance)
                and (max_distance is None or entry.distance_m <= max_distance)
            ]
        return self._selected[key]

    def rooms(self, split: str | None = None) -> list[str]:
        """Room names of a split, sorted."""
        if split not in self._rooms:
            self._rooms[split] = sorted({entry.room for entry in self.entries if split in (None, entry.split)})
        return self._rooms[split]

    def energy(self, index: int) -> tuple[float, float]:
        """Energy of response ``index`` at c_0, and of its direct sound (2.5 ms around the first arrival) alone."""
        if index not in self._energies:
            squared_K = np.square(self.rir(index)[self.reference], dtype=np.float64)
            direct_K = squared_K[max(self.pre_samples - DIRECT_HALF, 0) : self.pre_samples + DIRECT_HALF]
            self._energies[index] = float(squared_K.sum()), float(direct_K.sum())
        return self._energies[index]


def _read_index(path: Path) -> list[RirEntry]:
    wanted = {field.name for field in fields(RirEntry)}
    entries = []
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        try:
            row = json.loads(line)
            if set(row) != wanted:
                raise ValueError(f"fields {sorted(row)}, wanted {sorted(wanted)}")
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
    with replacing(path / "rirs.npy") as temporary:
        array = np.lib.format.open_memmap(temporary, "w+", dtype, (len(entries), num_channels, num_taps))
        count = 0
        for count, rir_MK in enumerate(rirs, start=1):
            name = entries[count - 1].id if count <= len(entries) else f"number {count}"
            if rir_MK.shape != (num_channels, num_taps):
                raise BankError(f"{path}: response {name} has shape {rir_MK.shape}, wanted {(num_channels, num_taps)}")
            if not np.isfinite(rir_MK).all():
                raise BankError(f"{path}: response {name} is not finite")
            if count <= len(entries):
                array[count - 1] = rir_MK
        if count != len(entries):
            raise BankError(f"{path}: {count} responses for {len(entries)} entries")
        array.flush()
        del array
    write_text(path / "index.jsonl", "".join(json.dumps(asdict(entry)) + "\n" for entry in entries))
    meta = {
        "format": FORMAT,
        "sample_rate": sample_rate,
        "pre_samples": pre_samples,
        "reference": reference,
        "dtype": dtype,
        **(extra or {}),
    }
    write_json(path / "meta.json", meta, indent=2, ensure_ascii=True)
