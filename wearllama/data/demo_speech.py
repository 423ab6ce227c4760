"""Speaking the demo's lines: parallel, resumable, each clip written whole or not at all."""

import multiprocessing
from collections.abc import Sequence
from pathlib import Path

from tqdm import tqdm

from wearllama.data.assets import AssetUnavailable, fetch
from wearllama.data.demo_speakers import Line
from wearllama.data.voices import synthesize, write_clip

_COST = {"kokoro": 0.6, "flite": 0.03, "pico": 0.015}
"""Seconds of one core for a second of speech: what the progress bar counts."""


def available_engines() -> tuple[tuple[str, ...], list[str]]:
    """Speech engines that work on this machine, and a sentence about each that does not."""
    engines, missing = ["pico"], []
    for engine in ("flite", "kokoro"):
        try:
            fetch(engine)
            engines.append(engine)
        except AssetUnavailable as error:
            missing.append(f"voices of {engine} are left out: {error}")
    return tuple(engines), missing


def clip_cost(line: Line) -> float:
    """Expected seconds of one core."""
    return 0.02 + line.expected_seconds * _COST.get(line.speaker.engine, 0.03)


def missing_lines(lines: Sequence[Line], root: Path) -> list[Line]:
    """Lines that have no clip yet, slow ones first, each clip once."""
    todo = {line.id: line for line in lines if not (root / line.file).is_file()}
    return sorted(todo.values(), key=lambda line: -clip_cost(line))


def speak_lines(lines: Sequence[Line], root: Path, *, workers: int) -> int:
    """Speak what is missing under ``root``; returns how many clips were spoken. Interrupted work is taken up again."""
    todo = missing_lines(lines, root)
    if not todo:
        return 0
    total = sum(clip_cost(line) for line in todo)
    context = multiprocessing.get_context("spawn")
    with context.Pool(workers) as pool, tqdm(total=total, desc="speak", unit="s", unit_scale=False) as bar:
        bar.bar_format = "{desc}: {percentage:3.0f}%|{bar}| [{elapsed}<{remaining}] {postfix}"
        jobs = [(line, str(root)) for line in todo]
        for number, line in enumerate(pool.imap_unordered(_speak, jobs), start=1):
            bar.update(clip_cost(line))
            bar.set_postfix_str(f"{number}/{len(todo)} clips", refresh=False)
    return len(todo)


def _speak(job: tuple[Line, str]) -> Line:
    line, root = job
    path = Path(root) / line.file
    speaker = line.speaker
    audio_N = synthesize(line.utterance.text, speaker.voice, speed=speaker.speed, pitch=speaker.pitch)
    write_clip(path, audio_N)
    return line
