"""Build a bank of simulated rooms: in parallel, resumable after any kill, the same bits for any number of workers."""

import hashlib
import json
import shutil
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from wearllama.atomic import replacing
from wearllama.audio.array import ArrayGeometry
from wearllama.simulation.bank import FORMAT, RirBank, RirEntry, write_bank
from wearllama.simulation.heads import HeadResponses
from wearllama.simulation.rooms import render_response
from wearllama.simulation.scenes import Scene, SceneConfig, Source, draw_scene, scene_rng

PHYSICS = 2
"""Raised when the same config gives other samples, so that stale banks are rebuilt."""


@dataclass(frozen=True, kw_only=True)
class BankConfig:
    """What a simulated bank holds."""

    train_rooms: int = 24
    eval_rooms: int = 8
    seed: int = 0
    taps: int = 6400
    """Length of each response: 6400 taps are .4 s."""
    pre_samples: int = 32
    """Room before the first arrival at c_0 for microphones that hear a source earlier."""
    dtype: str = "float16"
    scene: SceneConfig = field(default_factory=SceneConfig)

    def __post_init__(self) -> None:
        if self.train_rooms < 0 or self.eval_rooms < 0 or self.train_rooms + self.eval_rooms == 0:
            raise ValueError(f"bank config: {self.train_rooms} train and {self.eval_rooms} eval rooms; wanted some")
        if self.taps < 512 or not 16 <= self.pre_samples <= 256:
            raise ValueError(f"bank config: taps {self.taps} (>= 512) and pre_samples {self.pre_samples} (16..256)")
        if self.dtype not in ("float16", "float32"):
            raise ValueError(f"bank config: dtype is {self.dtype!r}, wanted float16 or float32")

    def rooms(self) -> list[tuple[str, int]]:
        """Every room as (split, index)."""
        return [("train", i) for i in range(self.train_rooms)] + [("eval", i) for i in range(self.eval_rooms)]


def config_hash(config: BankConfig, array: ArrayGeometry) -> str:
    """What a finished bank or a finished room must match to be kept."""
    described = json.dumps([FORMAT, PHYSICS, asdict(config), asdict(array)], sort_keys=True, default=str)
    return hashlib.sha256(described.encode()).hexdigest()[:16]


def bank_is_built(config: BankConfig, array: ArrayGeometry, out_dir: str | Path) -> bool:
    """True where ``out_dir`` holds the finished bank of exactly this config."""
    try:
        return RirBank.open(out_dir).meta.get("config_hash") == config_hash(config, array)
    except (ValueError, OSError):
        return False


def render_scene(scene: Scene, config: BankConfig, rng: np.random.Generator) -> list[tuple[RirEntry, NDArray[Any]]]:
    """All responses of one room in the scene's order."""
    head = HeadResponses(scene.device)
    rendered = []
    for number, source in enumerate(scene.sources):
        own_voice = source.role == "wearer"
        worn = head
        if own_voice:
            assert source.position_3 is not None, "only a diffuse field has no position"
            worn = head.with_mouth(source.position_3)
        response = render_response(
            scene.room,
            worn,
            source.position_3,
            facing_head_3=source.facing_3,
            own_voice=own_voice,
            taps=config.taps,
            pre_samples=config.pre_samples,
            rng=rng,
        )
        azimuth, elevation = _direction(source)
        entry = RirEntry(
            id=f"{scene.name}_{number:02d}_{source.role}",
            role=source.role,
            azimuth_deg=azimuth,
            elevation_deg=elevation,
            distance_m=round(response.distance_m, 4),
            rt60_s=round(scene.room.rt60_s, 4),
            drr_db=round(response.drr_db, 2),
            room=scene.name,
            split=scene.split,
            array=scene.device.name,
        )
        rendered.append((entry, response.rir_MK.astype(config.dtype)))
    return rendered


def _direction(source: Source) -> tuple[float, float]:
    if source.position_3 is None:
        return 0.0, 0.0
    left, up, ahead = source.position_3
    azimuth = float(np.rad2deg(np.arctan2(left, ahead)))
    return round(azimuth, 2), round(float(np.rad2deg(np.arctan2(up, np.hypot(left, ahead)))), 2)


def _build_room(config: BankConfig, array: ArrayGeometry, split: str, index: int, path: Path) -> None:
    rng = scene_rng(config.seed, split, index)
    rendered = render_scene(draw_scene(config.scene, array, split, index, rng), config, rng)
    rirs = np.stack([rir_MK for _, rir_MK in rendered])
    with replacing(path) as temporary, temporary.open("wb") as file:  # by name, savez would add .npz to it
        np.savez(file, rirs=rirs, entries=np.array(json.dumps([asdict(entry) for entry, _ in rendered])))


def build_bank(
    config: BankConfig, array: ArrayGeometry, out_dir: str | Path, workers: int = 1, progress: bool = True
) -> RirBank:
    """Build (or finish, or simply open) the bank of this config in ``out_dir``.

    Each finished room is kept in ``parts/`` until the whole bank is there, so that a killed build goes on where it was.
    """
    out_dir = Path(out_dir)
    if bank_is_built(config, array, out_dir):
        return RirBank.open(out_dir)
    parts = out_dir / "parts" / config_hash(config, array)
    parts.mkdir(parents=True, exist_ok=True)
    paths = {room: parts / f"{room[0]}_{room[1]:05d}.npz" for room in config.rooms()}
    missing = [room for room, path in paths.items() if not path.is_file()]
    jobs = [(config, array, split, index, paths[split, index]) for split, index in missing]
    with tqdm(
        total=len(paths), initial=len(paths) - len(missing), desc="rooms", unit="room", disable=not progress
    ) as bar:
        for _ in _run(jobs, workers):
            bar.update()
    loaded = [np.load(path) for path in paths.values()]
    entries = [RirEntry(**row) for part in loaded for row in json.loads(str(part["entries"]))]
    write_bank(
        out_dir,
        entries,
        (rir_MK for part in loaded for rir_MK in part["rirs"]),
        num_channels=array.num_mics,
        num_taps=config.taps,
        pre_samples=config.pre_samples,
        reference=array.reference,
        dtype=config.dtype,
        extra={"config_hash": config_hash(config, array), "config": asdict(config), "array": asdict(array)},
    )
    for part in loaded:
        part.close()
    shutil.rmtree(out_dir / "parts")
    return RirBank.open(out_dir)


def _run(jobs: list[tuple[Any, ...]], workers: int) -> Iterator[None]:
    if workers <= 1 or len(jobs) <= 1:
        for job in jobs:
            _build_room(*job)
            yield
        return
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        futures = [pool.submit(_build_room, *job) for job in jobs]
        try:
            for future in as_completed(futures):
                yield future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
