"""Build a bank of simulated rooms: in parallel, resumable after any kill, the same bits for any number of workers.

A bank may be cut into shards of consecutive rooms, one a machine; together they are the bank that one machine builds.
"""

import hashlib
import json
import shutil
import threading
import time
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
from wearllama.simulation.bank import RirBank, shard_name
from wearllama.simulation.bank_files import FORMAT, RirEntry, write_bank
from wearllama.simulation.heads import HeadResponses
from wearllama.simulation.rooms import Response, render_poses
from wearllama.simulation.scenes import Scene, SceneConfig, draw_scene, scene_rng

PHYSICS = 2
"""Raised when the same config gives other samples, so that stale banks are rebuilt."""
_LATER = ("kinds", "hallway", "car", "open_air", "motion")
"""Settings that did not always exist: at their defaults they change nothing, and not the hash either."""


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


@dataclass(frozen=True, kw_only=True)
class Shard:
    """One machine's part of a bank: number 1 to ``count``."""

    number: int
    count: int

    def __post_init__(self) -> None:
        if not 1 <= self.number <= self.count:
            raise ValueError(f"shard {self.number}/{self.count}: wanted 1/{self.count} to {self.count}/{self.count}")

    @classmethod
    def parse(cls, text: str) -> "Shard":
        """From ``2/8``."""
        number, slash, count = text.partition("/")
        if not (slash and number.isdecimal() and count.isdecimal()):
            raise ValueError(f"shard is {text!r}, wanted NUMBER/COUNT, for instance 2/8")
        return cls(number=int(number), count=int(count))

    def of(self, rooms: list[tuple[str, int]]) -> list[tuple[str, int]]:
        """Consecutive rooms, so that all shards in order are all rooms in order."""
        if self.count > len(rooms):
            raise ValueError(f"shard {self.number}/{self.count}: the bank has only {len(rooms)} rooms")
        return rooms[(self.number - 1) * len(rooms) // self.count : self.number * len(rooms) // self.count]


def config_hash(config: BankConfig, array: ArrayGeometry) -> str:
    """What a finished bank or a finished room must match to be kept."""
    settings, defaults = asdict(config), asdict(SceneConfig())
    for name in _LATER:
        if settings["scene"][name] == defaults[name]:
            del settings["scene"][name]
    described = json.dumps([FORMAT, PHYSICS, settings, asdict(array)], sort_keys=True, default=str)
    return hashlib.sha256(described.encode()).hexdigest()[:16]


def bank_folder(out_dir: str | Path, shard: Shard | None) -> Path:
    """Where a bank or one of its shards goes."""
    return Path(out_dir) if shard is None else Path(out_dir) / shard_name(shard.number, shard.count)


def bank_is_built(config: BankConfig, array: ArrayGeometry, out_dir: str | Path, shard: Shard | None = None) -> bool:
    """True where ``out_dir`` holds the finished bank (or shard) of exactly this config."""
    try:
        return RirBank.open(bank_folder(out_dir, shard)).meta.get("config_hash") == config_hash(config, array)
    except (ValueError, OSError):
        return False


def render_scene(scene: Scene, config: BankConfig, rng: np.random.Generator) -> list[tuple[RirEntry, NDArray[Any]]]:
    """All responses of one room: the sources in the scene's order, each in all poses."""
    head = HeadResponses(scene.device)
    spaces = [scene.space.moved(pose.turn_deg, pose.ahead_m) if pose.number else scene.space for pose in scene.poses]
    rendered = []
    for number, source in enumerate(scene.sources):
        emitter = source.emitter
        worn = head if not emitter.own_voice or emitter.position_3 is None else head.with_mouth(emitter.position_3)
        responses = render_poses(spaces, worn, emitter, taps=config.taps, pre_samples=config.pre_samples, rng=rng)
        for entry, response in zip(_entries(scene, number, responses), responses, strict=True):
            rendered.append((entry, response.rir_MK.astype(config.dtype)))
    return rendered


def _entries(scene: Scene, number: int, responses: list[Response]) -> Iterator[RirEntry]:
    role = scene.sources[number].role
    name = f"{scene.name}_{number:02d}_{role}"
    for pose, response in zip(scene.poses, responses, strict=True):
        azimuth, elevation = _direction(response.position_3)
        yield RirEntry(
            id=name if pose.number == 0 else f"{name}_{pose.number:+03d}",
            role=role,
            azimuth_deg=azimuth,
            elevation_deg=elevation,
            distance_m=round(response.distance_m, 4),
            rt60_s=round(scene.rt60_s, 4),
            drr_db=round(response.drr_db, 2),
            room=scene.name,
            split=scene.split,
            array=scene.device.name,
            kind=scene.kind,
            source=name if len(scene.poses) > 1 else "",
            pose=pose.number,
            turn_deg=pose.turn_deg,
            ahead_m=round(pose.ahead_m, 4),
        )


def _direction(position_3: NDArray[np.float64] | None) -> tuple[float, float]:
    if position_3 is None:
        return 0.0, 0.0
    left, up, ahead = position_3
    azimuth = float(np.rad2deg(np.arctan2(left, ahead)))
    return round(azimuth, 2), round(float(np.rad2deg(np.arctan2(up, np.hypot(left, ahead)))), 2)


def _build_room(config: BankConfig, array: ArrayGeometry, split: str, index: int, path: Path) -> None:
    rng = scene_rng(config.seed, split, index)
    rendered = render_scene(draw_scene(config.scene, array, split, index, rng), config, rng)
    rirs = np.stack([rir_MK for _, rir_MK in rendered])
    with replacing(path) as temporary, temporary.open("wb") as file:  # by name, savez would add .npz to it
        np.savez(file, rirs=rirs, entries=np.array(json.dumps([asdict(entry) for entry, _ in rendered])))


def build_bank(
    config: BankConfig,
    array: ArrayGeometry,
    out_dir: str | Path,
    workers: int = 1,
    progress: bool = True,
    shard: Shard | None = None,
) -> RirBank:
    """Build (or finish, or simply open) the bank of this config in ``out_dir``, or one shard of it.

    Each finished room is kept in ``parts/`` until the whole bank is there, so that a killed build goes on where it was.
    """
    folder = bank_folder(out_dir, shard)
    if bank_is_built(config, array, out_dir, shard):
        return RirBank.open(folder)
    rooms = config.rooms() if shard is None else shard.of(config.rooms())
    parts = folder / "parts" / config_hash(config, array)
    parts.mkdir(parents=True, exist_ok=True)
    paths = {room: parts / f"{room[0]}_{room[1]:05d}.npz" for room in rooms}
    missing = [room for room, path in paths.items() if not path.is_file()]
    jobs = [(config, array, split, index, paths[split, index]) for split, index in missing]
    with tqdm(
        total=len(paths), initial=len(paths) - len(missing), desc="rooms", unit="room", disable=not progress
    ) as bar:
        for _ in _run(jobs, workers):
            bar.update()
    entries = [RirEntry(**row) for path in paths.values() for row in json.loads(str(_read(path, "entries")))]
    write_bank(
        folder,
        entries,
        (rir_MK for path in paths.values() for rir_MK in _read(path, "rirs")),
        num_channels=array.num_mics,
        num_taps=config.taps,
        pre_samples=config.pre_samples,
        reference=array.reference,
        dtype=config.dtype,
        extra={"config_hash": config_hash(config, array), "config": asdict(config), "array": asdict(array)},
    )
    shutil.rmtree(folder / "parts")
    return RirBank.open(folder)


def _read(path: Path, name: str) -> NDArray[Any]:
    with np.load(path) as part:
        return part[name]


def _run(jobs: list[tuple[Any, ...]], workers: int) -> Iterator[None]:
    if workers <= 1 or len(jobs) <= 1:
        for job in jobs:
            _build_room(*job)
            yield
        return
    context = get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_end_with, initargs=(os.getpid(),)) as pool:
        futures = [pool.submit(_build_room, *job) for job in jobs]
        try:
            for future in as_completed(futures):
                yield future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _end_with(parent: int) -> None:
    """End this worker when the process that asked for it is gone: a killed build must leave nobody waiting."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
