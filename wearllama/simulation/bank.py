"""RIR bank on disk (contract 3): one door for simulated and measured responses.

A bank is a directory of ``index.jsonl`` (one :class:`RirEntry` a line), ``rirs.npy`` (entry, channel, tap; memory-
mapped, float16 or float32) and ``meta.json``; or of such directories ``shard-001-of-008`` ..., built on as many
machines, which open as the one bank that a single machine would have built.  Every entry has its first arrival at c_0
at tap ``meta["pre_samples"]``: ONE shift for all channels of an entry, so that delays between channels are kept, with
room before it for microphones that hear a source earlier than c_0.  ONE scale for the whole bank, so that levels
between entries and channels are real.

Shapes: M channels, K taps, F frequency bins.
"""

import json
from bisect import bisect_right
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import scipy.fft
from numpy.typing import NDArray

from wearllama.audio.array import ArrayGeometry, load_array
from wearllama.simulation.bank_files import FORMAT, BankError, RirEntry, read_index, write_bank

__all__ = ["BankError", "RirBank", "RirEntry", "write_bank"]

DIRECT_HALF = 40
SPECTRA_CACHE_BYTES = 192 * 2**20


class RirBank:
    """Read access to a bank; cheap to pickle into data workers (the maps are opened again there)."""

    def __init__(
        self, path: Path, entries: list[RirEntry], meta: dict[str, Any], parts: list[tuple[Path, int]]
    ) -> None:
        self.path = path
        self.entries = entries
        self.meta = meta
        self._parts = parts
        """Directories with an array each, and the entry that it begins with."""
        self._maps: list[NDArray[Any] | None] = [None] * len(parts)
        self._spectra: OrderedDict[tuple[int, int], NDArray[np.complex64]] = OrderedDict()
        self._cached_bytes = 0
        self._by_room: dict[str, list[int]] = {}
        self._selected: dict[tuple[Any, ...], list[int]] = {}
        self._rooms: dict[str | None, list[str]] = {}
        self._energies: dict[int, tuple[float, float]] = {}

    @classmethod
    def open(cls, path: str | Path) -> "RirBank":
        """Open and check a bank directory.

        Raises:
            BankError: a file or shard is missing, a line of the index is bad, index and array or two shards disagree.
        """
        path = Path(path)
        parts: list[tuple[Path, int]] = []
        entries: list[RirEntry] = []
        metas = []
        for folder in _folders(path):
            metas.append(_read_meta(folder))
            parts.append((folder, len(entries)))
            found = read_index(folder / "index.jsonl")
            array = np.load(folder / "rirs.npy", mmap_mode="r")
            if array.ndim != 3 or array.shape[0] != len(found):
                raise BankError(f"{folder}: rirs.npy has shape {array.shape}, index.jsonl has {len(found)} entries")
            entries += found
            differing = [name for name in metas[0] if name != "shard" and metas[0][name] != metas[-1].get(name)]
            if differing:
                raise BankError(f"{folder} and {parts[0][0].name} were built with different {', '.join(differing)}")
        return cls(path, entries, metas[0], parts)

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path, "entries": self.entries, "meta": self.meta, "parts": self._parts}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def __len__(self) -> int:
        return len(self.entries)

    def _map(self, part: int) -> NDArray[Any]:
        array = self._maps[part]
        if array is None:
            array = self._maps[part] = np.load(self._parts[part][0] / "rirs.npy", mmap_mode="r")
        return array

    @property
    def num_channels(self) -> int:
        return int(self._map(0).shape[1])

    @property
    def num_taps(self) -> int:
        return int(self._map(0).shape[2])

    @property
    def pre_samples(self) -> int:
        """Tap of the first arrival at c_0, the same for every entry."""
        return int(self.meta["pre_samples"])

    @property
    def reference(self) -> int:
        return int(self.meta["reference"])

    @property
    def array(self) -> ArrayGeometry:
        """The geometry that the bank was made for: as written in it, or by its name."""
        written = self.meta.get("array")
        if isinstance(written, dict):
            places = {"positions": tuple(map(tuple, written["positions"])), "mouth": tuple(written["mouth"])}
            return ArrayGeometry(**{**written, **places})
        return load_array(self.entries[0].array)

    def require_array(self, array: ArrayGeometry) -> None:
        """ValueError unless the bank was made for ``array``: a beam designed for it would point anywhere in another."""
        own = self.array
        if (own.positions, own.reference) != (array.positions, array.reference):
            raise ValueError(
                f"the bank {self.path} is of array {own.name!r}, wanted {array.name!r}, for which the beam is designed "
                "(SFT hears other arrays through data.other_banks)"
            )

    @property
    def sample_rate(self) -> int:
        return int(self.meta["sample_rate"])

    def rir(self, index: int) -> NDArray[np.float32]:
        """Response ``index`` as float32 (M, K)."""
        if not 0 <= index < len(self.entries):
            raise IndexError(f"{self.path}: entry {index}, wanted 0..{len(self.entries) - 1}")
        part = bisect_right(self._parts, index, key=lambda item: item[1]) - 1
        return np.asarray(self._map(part)[index - self._parts[part][1]], dtype=np.float32)

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
        pose: int | None = 0,
        source: str | None = None,
    ) -> list[int]:
        """Indices of entries that match everything asked for, in index order; ``pose=None`` for all poses."""
        key = (role, split, room, min_distance, max_distance, pose, source)
        if key not in self._selected:
            self._selected[key] = [
                index
                for index in (range(len(self.entries)) if room is None else self._rooms_entries().get(room, []))
                if (role is None or self.entries[index].role == role)
                and (split is None or self.entries[index].split == split)
                and (min_distance is None or self.entries[index].distance_m >= min_distance)
                and (max_distance is None or self.entries[index].distance_m <= max_distance)
                and (pose is None or self.entries[index].pose == pose)
                and (source is None or self.entries[index].source == source)
            ]
        return self._selected[key]

    def _rooms_entries(self) -> dict[str, list[int]]:
        if not self._by_room:
            for index, entry in enumerate(self.entries):
                self._by_room.setdefault(entry.room, []).append(index)
        return self._by_room

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


def shard_name(number: int, count: int) -> str:
    """Directory of one shard, 1 to ``count``."""
    return f"shard-{number:03d}-of-{count:03d}"


def _folders(path: Path) -> list[Path]:
    """The directory itself, or its shards in order."""
    shards = sorted(folder for folder in path.glob("shard-*-of-*") if (folder / "meta.json").is_file())
    if (path / "meta.json").is_file() or not shards:
        return [path]
    count = int(shards[0].name.rsplit("-", 1)[1])
    wanted = [path / shard_name(number, count) for number in range(1, count + 1)]
    if shards != wanted:
        missing = [folder.name for folder in wanted if folder not in shards]
        extra = [folder.name for folder in shards if folder not in wanted]
        raise BankError(f"{path}: shards missing {missing or 'none'}, of another count {extra or 'none'}")
    return shards


def _read_meta(path: Path) -> dict[str, Any]:
    for name in ("meta.json", "index.jsonl", "rirs.npy"):
        if not (path / name).is_file():
            raise BankError(
                f"{path}: no {name} here; build a bank with tools/build_rir_bank.py or tools/import_rirs.py"
            )
    meta = json.loads((path / "meta.json").read_text())
    if meta.get("format") != FORMAT:
        raise BankError(f"{path / 'meta.json'}: bank format {meta.get('format')!r}, wanted {FORMAT}")
    return meta
