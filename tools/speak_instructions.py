"""Text instructions -> spoken ones: numbers and symbols in words, a voice for each, training rows with their answers.

Reads JSONL with ``prompt`` and ``target`` (or ``instruction``/``input`` and ``output``/``response``); optional ``id``,
``task`` (``instruction``), ``dialect``, ``system`` (the assistant's prompt if not given). A killed run goes on.

Run as: python tools/speak_instructions.py texts=instructions.jsonl out_dir=data/instructions
        python tools/speak_instructions.py texts=... out_dir=... engines=[kokoro,flite] limit=200 workers=2
"""

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from synthesize import finished_ids, synthesize_all  # beside this script

from wearllama.data.faults import Faults
from wearllama.data.manifest import Example, write_manifest
from wearllama.data.prompts import PromptStyle, build_messages, load_prompts
from wearllama.data.read_aloud import read_aloud
from wearllama.data.speech_rows import MANIFEST, read_rows
from wearllama.data.spoken_examples import SceneDefaults, Turn, spoken_example
from wearllama.data.tools import WEARVOX_TOOLS
from wearllama.data.voices import clip_id, voices_of
from wearllama_launch import existing_path, launch


@dataclass(kw_only=True)
class SpeakInstructions:
    texts: str
    out_dir: str
    """Gets speech/ and examples.jsonl."""
    engines: list[str] = field(default_factory=lambda: ["kokoro"])
    """Of wearllama/data/voices.py; voices held out for evaluation are never drawn."""
    style: PromptStyle = "full"
    scenes: SceneDefaults = field(default_factory=SceneDefaults)
    max_words: int = 40
    """Longer instructions are nothing that one says in a breath: left out, counted."""
    speeds: tuple[float, float] = (0.9, 1.15)
    tolerance: float = 0.02
    """Share of the texts that may fail to be spoken."""
    limit: int | None = None
    workers: int = 1
    seed: int = 0


@launch("speak_instructions", SpeakInstructions)
def main(config: SpeakInstructions) -> None:
    out_dir = Path(config.out_dir)
    rows = [instruction(row, number) for number, row in enumerate(read_rows(existing_path(config.texts, "texts")))]
    rows = rows[: config.limit]
    short = [row for row in rows if len(row["spoken"].split()) <= config.max_words]
    faults = Faults(out_dir / "faults.jsonl", config.tolerance)
    voices = voices_of(*config.engines)
    if not voices:
        raise ValueError(f"engines={config.engines}: no training voice of these")
    requests = [request(row, voices, config) for row in short]
    for failure in synthesize_all(
        list({r["id"]: r for r in requests}.values()), out_dir / "speech", workers=config.workers
    ):
        faults.add("cannot be spoken", failure["id"], failure["error"])
    spoken = finished_ids(out_dir / "speech" / MANIFEST)
    faults.good(len(spoken))
    faults.finish()
    clips = {row["id"]: row for row in read_rows(out_dir / "speech" / MANIFEST)}
    pairs = [(row, clips[ask["id"]]) for row, ask in zip(short, requests, strict=True) if ask["id"] in clips]
    count = write_manifest(out_dir / "examples.jsonl", (example(row, clip, config) for row, clip in pairs))
    print(f"{out_dir / 'examples.jsonl'}: {count} rows of {len(rows)} texts, {len(rows) - len(short)} too long")


def instruction(row: dict[str, Any], number: int) -> dict[str, Any]:
    """A line in one form; ValueError where it has no prompt or no target."""
    prompt = row.get("prompt") or " ".join(filter(None, (row.get("instruction"), row.get("input"))))
    target = row.get("target") or row.get("output") or row.get("response")
    if not prompt or not target:
        raise ValueError(f"texts, line {number + 1}: wanted prompt and target, found {sorted(row)}")
    return {**row, "id": str(row.get("id", f"instruction-{number:06d}")), "spoken": read_aloud(str(prompt)),
            "written": str(prompt), "target": str(target)}  # fmt: skip


def request(row: dict[str, Any], voices: tuple[str, ...], config: SpeakInstructions) -> dict[str, Any]:
    """What is spoken by whom; of the row's id and the seed alone."""
    rng = random.Random(f"{config.seed}/{row['id']}")
    voice, speed = rng.choice(voices), round(rng.uniform(*config.speeds), 2)
    return {
        "text": row["spoken"],
        "voice": voice,
        "speed": speed,
        "pitch": 1.0,
        "id": clip_id(row["spoken"], voice, speed, 1.0),
    }


def example(row: dict[str, Any], clip: dict[str, Any], config: SpeakInstructions) -> Example:
    dialect = row.get("dialect", "wearvox")
    system = row.get("system") or load_prompts(style=config.style).system(dialect, WEARVOX_TOOLS)
    return spoken_example(
        row["id"], row.get("task", "instruction"), [Turn(clip)], messages=build_messages(system=system),
        target=row["target"], speech_root=Path(config.out_dir) / "speech", audio_root=Path(config.out_dir),
        defaults=config.scenes, source=Path(config.texts).stem,
        metadata={"dialect": dialect, "written": row["written"]},
    )  # fmt: skip


if __name__ == "__main__":
    main()
