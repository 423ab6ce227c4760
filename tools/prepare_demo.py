"""Prepare the demo's data: speak the texts, write the training manifest and the two benchmarks in their layouts.

Run as: python tools/prepare_demo.py        (or with overrides: workers=4 reading.kokoro_seconds=120)

Needs the RIR bank (tools/build_rir_bank.py). Every stage is skipped when its output is there and made from the same
settings, texts and bank; Ctrl-C loses at most the clip in progress.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tqdm import tqdm

from wearllama.atomic import write_json, write_text
from wearllama.audio.array import load_array
from wearllama.audio.beamforming import design_beam
from wearllama.data.demo_benchmarks import BenchmarkSizes, vgbench_items, wearvox_scenes
from wearllama.data.demo_chatter import chatter_files, noise_folders
from wearllama.data.demo_layout import PLACES, Studio, write_vgbench, write_wearvox
from wearllama.data.demo_scenes import Scene, clip_seconds, to_example
from wearllama.data.demo_speakers import Pool, ReadingConfig, train_lines
from wearllama.data.demo_speech import available_engines, speak_lines
from wearllama.data.demo_splits import check_disjoint, split_record
from wearllama.data.demo_training import KEPT_SHARES, TrainPlanner, TrainRows, written_scenes
from wearllama.data.made_from import made_from
from wearllama.data.manifest import Example, write_manifest
from wearllama.data.prompts import load_prompts
from wearllama.simulation.bank import RirBank
from wearllama.simulation.noise import NoiseBank
from wearllama_launch import existing_path, launch

VERSION = 8
"""Raised when the same settings and texts give other data."""


@dataclass(kw_only=True)
class PrepareDemo:
    """Where the data go and how much there is."""

    out_dir: str = "data/demo"
    bank: str = "data/demo/rir_bank"
    array: str = "glasses5"
    reading: ReadingConfig = field(default_factory=ReadingConfig)
    rows: TrainRows = field(default_factory=TrainRows)
    text_rows: int = 10_000
    """Rows of text alone for the decoder's first training."""
    kept_text_rows: int = 2800
    """Fresh ones among the rows with sound, so that a decoder that learns to hear still knows how to read."""
    benchmarks: BenchmarkSizes = field(default_factory=BenchmarkSizes)
    level_dbfs: tuple[float, float] = (-40.0, -18.0)
    """Training's range of recording levels: RMS of the wearer's own voice at c_0."""
    seed: int = 0
    workers: int = 2
    """Processes that speak."""


@launch("prepare_demo", PrepareDemo)
def main(config: PrepareDemo) -> None:
    out_dir = Path(config.out_dir)
    bank = RirBank.open(existing_path(config.bank, "bank"))
    bank.require_array(load_array(config.array))
    engines, missing = available_engines()
    for sentence in missing:
        print(sentence)
    if "kokoro" not in engines:
        raise ValueError("the evaluation's held-out voices are Kokoro's, and Kokoro could not be had (see above)")
    chatter, left_out = chatter_files(out_dir)
    noises, silent = noise_folders(out_dir)
    for sentence in left_out + silent:
        print(sentence)
    key = data_key(config, engines, chatter)
    if not any(stage_due(out_dir, name, key) for name in _OUTPUTS):
        print(f"{out_dir} is prepared already")
        return

    lines = train_lines(config.reading, engines=engines)
    train = TrainPlanner(Pool(lines, config.seed), chatter=chatter, seed=config.seed).scenes(config.rows)
    written = written_scenes(config.text_rows, seed=config.seed)
    train += written_scenes(config.kept_text_rows, seed=config.seed + 1, shares=KEPT_SHARES)
    wearvox = wearvox_scenes(config.benchmarks, list(PLACES))
    vgbench = vgbench_items(config.benchmarks)
    held_out = wearvox + [item.scene for item in vgbench]
    if stage_due(out_dir, "speech", key):
        spoken = speak_lines(needed_lines(train + held_out), out_dir, workers=config.workers)
        print(f"speech: {spoken} clips spoken")
        stage_done(out_dir, "speech", key)
    files = {line.file for scene in train + held_out if not scene.text_only for line in scene.lines} | set(chatter)
    seconds = clip_seconds(out_dir, tqdm(sorted(files), desc="durations", unit="clip"))
    array = load_array(config.array)
    prompts = load_prompts(style="compact")
    studio = Studio(
        root=out_dir,
        seconds=seconds,
        bank=bank,
        noise=NoiseBank(noises["eval"]),
        array=array,
        beam=design_beam(array),
        prompts=prompts,
    )
    record = split_record(train + written, held_out, bank)
    check_disjoint(record)

    def examples(scenes: list[Scene]) -> Iterator[Example]:
        return (to_example(scene, seconds, prompts, level_dbfs=config.level_dbfs) for scene in scenes)

    stages: dict[str, Callable[[], Any]] = {
        "train": lambda: write_manifest(out_dir / "train.jsonl", examples(train)),
        "text": lambda: write_manifest(out_dir / "text.jsonl", examples(written)),
        "wearvox": lambda: write_wearvox(wearvox, studio, out_dir / "wearvox"),
        "vgbench": lambda: write_vgbench(vgbench, studio, out_dir / "vgbench"),
        "splits": lambda: write_json(out_dir / "splits.json", record),
    }
    for name, write in stages.items():
        if stage_due(out_dir, name, key):
            write()
            stage_done(out_dir, name, key)
    print(
        f"{out_dir}: {len(train)} training rows, {len(written)} of text, {len(wearvox)} WearVox items, "
        f"{len(vgbench)} VGBench conditions, {len(seconds)} clips ({sum(seconds.values()) / 60:.0f} minutes)"
    )


def needed_lines(scenes: list[Scene]) -> list[Any]:
    """Lines that are heard in some scene."""
    return [line for scene in scenes if not scene.text_only for line in scene.lines]


def data_key(config: PrepareDemo, engines: tuple[str, ...], chatter: list[str]) -> str:
    """What the data were made from: settings, texts, engines and bank."""
    return made_from(VERSION, config, (engines, chatter), bank=config.bank)


_OUTPUTS = {
    "speech": "speech",
    "train": "train.jsonl",
    "text": "text.jsonl",
    "wearvox": "wearvox/data_public.json",
    "vgbench": "vgbench/manifest.jsonl",
    "splits": "splits.json",
}


def stage_due(out_dir: Path, name: str, key: str) -> bool:
    """Whether a stage's output is missing or was made from something else."""
    stamp = out_dir / ".stages" / name
    return not (stamp.is_file() and stamp.read_text() == key and (out_dir / _OUTPUTS[name]).exists())


def stage_done(out_dir: Path, name: str, key: str) -> None:
    """Remember what a stage's output was made from."""
    write_text(out_dir / ".stages" / name, key)


if __name__ == "__main__":
    main()
