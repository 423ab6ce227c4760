"""Mixtures rendered once and kept in tar files: the same samples as on the fly, without the work.

A folder holds ``shards.json`` (what was rendered), and for each shard ``shard-00000.tar`` with ``KEY.json`` and
``KEY.flac`` (or ``.npy`` for samples that are not 16-bit) in WebDataset's layout, and ``shard-00000.index`` for random
access.  A sample is found by its seed, which is a hash of (run seed, id, epoch, repeat), and belongs to its recipe: a
:class:`ShardReader` is a renderer like any other and refuses a recipe that is not the one that was rendered.

Shapes: M microphones, N samples.
"""

import hashlib
import io
import json
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import torch
from numpy.typing import NDArray
from torch import Tensor

from wearllama.atomic import replacing, write_text
from wearllama.audio.timebase import SAMPLE_RATE
from wearllama.data.dataset import MixtureRenderer
from wearllama.data.manifest import Example, Renderer, example_seed, seed_id

FORMAT = 1
META = "shards.json"


@dataclass(kw_only=True)
class ShardConfig:
    """Which renderings are kept; all of it decides the samples but ``per_shard``."""

    seed: int = 1
    """Of the training run: the default is that of ``train.seed``."""
    epochs: int = 1
    """Epochs 0 to ``epochs - 1``."""
    repeats: int = 1
    """Renderings of a row in each epoch; more where ``batches.weights`` draws rows more often than once."""
    per_shard: int = 500

    def __post_init__(self) -> None:
        if self.seed < 0 or min(self.epochs, self.repeats, self.per_shard) < 1:
            raise ValueError(f"shards: {self}: seed must be >= 0, the others >= 1")


@dataclass(frozen=True)
class Item:
    """One rendering to keep."""

    example: Example
    epoch: int
    repeat: int
    seed: int


def shard_items(examples: Sequence[Example], config: ShardConfig) -> list[list[Item]]:
    """All renderings of the rows that are mixtures, epoch by epoch, cut into shards."""
    rows = [example for example in examples if example.audio and "mixture" in example.audio]
    items = [
        Item(row, epoch, repeat, example_seed(seed_id(row), epoch=epoch, repeat=repeat, seed=config.seed))
        for epoch in range(config.epochs)
        for repeat in range(config.repeats)
        for row in rows
    ]
    return [items[start : start + config.per_shard] for start in range(0, len(items), config.per_shard)]


def recipe_hash(recipe: Mapping[str, Any]) -> str:
    """16 hexadecimal digits of a recipe."""
    return hashlib.sha256(json.dumps(recipe, sort_keys=True).encode()).hexdigest()[:16]


def fingerprint(examples: Sequence[Example], config: ShardConfig, renderer: MixtureRenderer) -> str:
    """Everything that decides the samples: recipes, seeds, bank and noise (by names and sizes)."""
    digest = hashlib.sha256()
    for items in shard_items(examples, config):
        for item in items:
            assert item.example.audio is not None
            digest.update(f"{item.seed} {recipe_hash(item.example.audio['mixture'])}\n".encode())
    for name in ("meta.json", "index.jsonl"):
        digest.update((renderer.bank.path / name).read_bytes())
    for kind, files in sorted({**renderer.noise.files, **renderer.noise.speakers}.items()):
        digest.update(f"{kind} {[(path.name, path.stat().st_size) for path in files]}\n".encode())
    digest.update(json.dumps(renderer.noise.drawn).encode())
    return digest.hexdigest()[:16]


def begin(folder: Path, key: str, config: ShardConfig, shards: int) -> None:
    """Claim a folder for one set of renderings; ValueError if it holds others."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / META
    meta = {"format": FORMAT, "fingerprint": key, "shards": shards, "config": asdict(config)}
    if path.is_file():
        found = json.loads(path.read_text())
        if found != meta:
            raise ValueError(f"{folder} holds other shards: found {found}, wanted {meta}; give another folder")
        return
    write_text(path, json.dumps(meta, indent=1) + "\n")


def is_done(folder: Path, number: int) -> bool:
    """Whether a shard is complete: its index is written last."""
    return _index_path(folder, number).is_file()


def write_shard(folder: Path, number: int, items: Sequence[Item], renderer: Renderer) -> None:
    """Render a shard and write it as a whole or not at all; the same bytes wherever it is done."""
    rows = []
    with (
        replacing(_tar_path(folder, number)) as temporary,
        tarfile.open(temporary, "w", format=tarfile.USTAR_FORMAT) as tar,
    ):
        for place, item in enumerate(items):
            assert item.example.audio is not None
            recipe = item.example.audio["mixture"]
            name, data = _encode(renderer(recipe, item.seed))
            key = f"{number:05d}-{place:06d}"
            described = {
                "id": item.example.id, "epoch": item.epoch, "repeat": item.repeat, "seed": item.seed,
                "example": item.example.to_dict(),
            }  # fmt: skip
            _add(tar, f"{key}.json", json.dumps(described, ensure_ascii=False).encode())
            offset = _add(tar, f"{key}.{name}", data)
            rows.append({"seed": item.seed, "offset": offset, "size": len(data), "recipe": recipe_hash(recipe)})
    write_text(_index_path(folder, number), "".join(json.dumps(row) + "\n" for row in rows))


class ShardReader:
    """A renderer that reads: the samples of a recipe and seed from the shards, or from ``otherwise``.

    Rows that share a seed (counterfactual pairs) differ in their recipes. Cheap to pickle into data workers.
    """

    def __init__(self, folder: str | Path, otherwise: Renderer | None = None) -> None:
        """ValueError if the folder holds no complete set; ``otherwise`` renders what was not kept."""
        self.folder = Path(folder)
        self.otherwise = otherwise
        path = self.folder / META
        if not path.is_file():
            raise ValueError(f"no {path}: render shards with tools/render_shards.py")
        self.meta = json.loads(path.read_text())
        if self.meta.get("format") != FORMAT:
            raise ValueError(f"{path}: format {self.meta.get('format')!r}, wanted {FORMAT}")
        missing = [number for number in range(self.meta["shards"]) if not is_done(self.folder, number)]
        if missing:
            raise ValueError(f"{self.folder}: {len(missing)} of {self.meta['shards']} shards are missing, run "
                             f"tools/render_shards.py again (first: {missing[0]})")  # fmt: skip
        self._load()

    def _load(self) -> None:
        rows = list(self._rows())
        order = np.argsort([row[0] for row in rows], kind="stable")
        self._seed = np.array([rows[i][0] for i in order], dtype=np.uint64)
        self._place = np.array([rows[i][1:4] for i in order], dtype=np.int64).reshape(-1, 3)
        self._recipe = np.array([rows[i][4] for i in order], dtype="U16")

    def _rows(self) -> Iterator[tuple[int, int, int, int, str]]:
        for number in range(self.meta["shards"]):
            for line in _index_path(self.folder, number).read_text().splitlines():
                row = json.loads(line)
                yield row["seed"], number, row["offset"], row["size"], row["recipe"]

    @property
    def seed(self) -> int:
        """Of the training run that the renderings are for."""
        return int(self.meta["config"]["seed"])

    def __len__(self) -> int:
        return len(self._seed)

    def __call__(self, recipe: Mapping[str, Any], seed: int) -> Tensor:
        """Samples (M, N) of a recipe in its JSON form."""
        first, end = (int(np.searchsorted(self._seed, np.uint64(seed), side)) for side in ("left", "right"))
        if first == end:
            if self.otherwise is not None:
                return self.otherwise(recipe, seed)
            raise ValueError(
                f"{self.folder} has no rendering of seed {seed}: rendered were {self.meta['config']}; render more, or "
                "give data.bank so that the rest is rendered on the fly"
            )
        same = np.flatnonzero(self._recipe[first:end] == recipe_hash(recipe))
        if not len(same):
            raise ValueError(f"{self.folder}: seed {seed} was rendered from another recipe; render the shards anew")
        return _decode(*self._read(*(int(value) for value in self._place[first + same[0]])))

    def _read(self, number: int, offset: int, size: int) -> tuple[bytes, str]:
        """A member's bytes, and where they are from; ValueError where the file ends before them."""
        path = _tar_path(self.folder, number)
        with path.open("rb") as stream:
            stream.seek(offset)
            data = stream.read(size)
        where = f"{path}, bytes {offset} to {offset + size}"
        if len(data) != size:
            raise ValueError(f"{where}: truncated, found {len(data)} of {size} bytes; render the shard again")
        return data, where


def _decode(data: bytes, where: str) -> Tensor:
    """Samples (M, N); ValueError where the bytes are none."""
    try:
        if data.startswith(b"\x93NUMPY"):
            return torch.from_numpy(np.load(io.BytesIO(data)))
        audio_NM, rate = soundfile.read(io.BytesIO(data), dtype="float32", always_2d=True)
    except (soundfile.LibsndfileError, ValueError) as error:
        raise ValueError(f"{where}: broken ({error}); render the shard again") from error
    assert rate == SAMPLE_RATE, (where, rate)
    return torch.from_numpy(np.ascontiguousarray(audio_NM.T))


def _encode(audio_MN: Tensor) -> tuple[str, bytes]:
    """File name suffix and bytes that give back exactly these samples."""
    samples_NM: NDArray[np.float32] = audio_MN.T.numpy()
    scaled_NM = samples_NM * np.float32(32768)
    stream = io.BytesIO()
    if np.array_equal(scaled_NM, np.rint(scaled_NM)) and np.abs(scaled_NM).max(initial=0) <= 32767:
        soundfile.write(stream, scaled_NM.astype(np.int16), SAMPLE_RATE, format="FLAC", subtype="PCM_16")
        return "flac", stream.getvalue()
    np.save(stream, np.ascontiguousarray(samples_NM.T))  # a float WAV would carry the time of its writing
    return "npy", stream.getvalue()


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> int:
    """Append a member without a date; returns where its bytes begin."""
    info = tarfile.TarInfo(name)
    info.size = len(data)
    begin_at = tar.offset + tarfile.BLOCKSIZE
    tar.addfile(info, io.BytesIO(data))
    return begin_at


def _tar_path(folder: Path, number: int) -> Path:
    return folder / f"shard-{number:05d}.tar"


def _index_path(folder: Path, number: int) -> Path:
    return folder / f"shard-{number:05d}.index"
