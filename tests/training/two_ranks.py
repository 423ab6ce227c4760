"""Under torchrun: train the tiny model with LoRA in one or more ways of sharing it; rank 1 never hears anything.

Run as: torchrun --nproc_per_node=2 tests/training/two_ranks.py MANIFEST OUT_DIR STEPS ddp,fsdp2
"""

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from accelerate.state import AcceleratorState
from transformers import set_seed

from wearllama.data.collate import Collator
from wearllama.data.sampling import Draw
from wearllama.modeling.factory import ModelConfig, build_model, build_processor
from wearllama.training.config import TrainConfig
from wearllama.training.data import SftData, load_sets
from wearllama.training.sft import run_sft
from wearllama_launch import rank, world_size


class SoundForRankZero:
    """Batches of sound and batches of text in turn: the second of two ranks gets text alone."""

    def __init__(self, rows: list[bool], rank: int, world_size: int) -> None:
        sound, text = ([i for i, has in enumerate(rows) if has is kind] for kind in (True, False))
        self.batches = [batch for pair in zip(_threes(sound), _threes(text * 3), strict=True) for batch in pair]
        self.rank, self.world_size, self.epoch = rank, world_size, 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self.batches) // self.world_size

    def __iter__(self) -> Iterator[list[Draw]]:
        return iter([[Draw(i, self.epoch) for i in batch] for batch in self.batches[self.rank :: self.world_size]])


def _threes(rows: list[int]) -> list[list[int]]:
    return [rows[start : start + 3] for start in range(0, len(rows), 3)]


def train(model_config: ModelConfig, manifest: str, run_dir: Path, config: TrainConfig) -> None:
    """From the same start every time."""
    set_seed(3)
    processor = build_processor(model_config)
    data = load_sets(SftData(manifest=manifest), processor, seed=3).train
    run_sft(
        model=build_model(model_config, processor),
        processor=processor,
        train_data=data,
        sampler=SoundForRankZero([row.audio is not None for row in data.examples], rank(), world_size()),
        collator=Collator(processor),
        config=config,
        run_dir=run_dir,
    )


def settings(steps: int, parallel: str = "ddp") -> TrainConfig:
    """One step is two batches, on however many ranks."""
    return TrainConfig(
        steps=steps, warmup_steps=1, save_every=steps, log_every=1, workers=0, threads=1, report_to="none",
        use_cpu=True, bf16=False, accumulation=2 // world_size(), parallel=parallel, learning_rate=3e-3,
    )  # fmt: skip


def main() -> None:
    from wearllama_launch import compose_config  # recipes/sft.py holds the schema

    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "recipes"))
    from sft import SftCommand

    manifest, out_dir, steps, ways = sys.argv[1:]
    tiny = compose_config("sft", SftCommand, ["experiment=tiny", "data.manifest=x"])[0].model
    for way in ways.split(","):
        train(replace(tiny, lora={"r": 4}), manifest, Path(out_dir) / way, settings(int(steps), way))
        AcceleratorState._reset_state()


if __name__ == "__main__":
    main()
