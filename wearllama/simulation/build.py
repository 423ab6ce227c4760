"""Build a bank of simulated rooms: in parallel, resumable after any kill, the same bits for any number of workers."""

import json
import os
import shutil
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from wearllama.atomic import replacing
from wearllama.audio.array import ArrayGeometry
from wearllama.simulation.bank import RirBank, shard_name
from wearllama.simulation.bank_config import BankConfig, Shard, config_hash
from wearllama.simulation.bank_files import RirEntry, write_bank
from wearllama.simulation.rooms import Response, render_poses
from wearllama.simulation.scenes import Scene, draw_scene, scene_rng


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
    head = config.head.head(scene.device)
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
    paths = _part_paths(config, array, out_dir, shard)
    missing = rooms_to_build(config, array, out_dir, shard)
    next(iter(paths.values())).parent.mkdir(parents=True, exist_ok=True)
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


def rooms_to_build(
    config: BankConfig, array: ArrayGeometry, out_dir: str | Path, shard: Shard | None = None
) -> list[tuple[str, int]]:
    """Rooms (split, index) that no earlier run has finished."""
    return [room for room, path in _part_paths(config, array, out_dir, shard).items() if not path.is_file()]


def _part_paths(
    config: BankConfig, array: ArrayGeometry, out_dir: str | Path, shard: Shard | None
) -> dict[tuple[str, int], Path]:
    rooms = config.rooms() if shard is None else shard.of(config.rooms())
    parts = bank_folder(out_dir, shard) / "parts" / config_hash(config, array)
    return {(split, index): parts / f"{split}_{index:05d}.npz" for split, index in rooms}


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
