"""What the batching benchmark trains on: lengths of a speech corpus, and clips of those lengths on five channels."""

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import soundfile
import torch
import yaml
from numpy.typing import NDArray
from torch import Tensor, nn

from wearllama.audio.io import read_audio
from wearllama.audio.timebase import SAMPLE_RATE, num_embeddings
from wearllama.data.collate import Collator
from wearllama.data.dataset import ExampleDataset, Item
from wearllama.data.manifest import Example
from wearllama.data.prompts import build_messages, load_prompts
from wearllama.data.sampling import BatchConfig, BucketBatchSampler, Draw, Lengths
from wearllama.modeling.factory import ModelConfig, build_model, build_processor
from wearllama.training.checkpoint import mark_complete
from wearllama.training.config import TrainConfig
from wearllama.training.sft import run_sft
from wearllama_launch.schema import build

MODELS = Path(__file__).resolve().parents[2] / "conf" / "model"
MICS = 5


class Setting(NamedTuple):
    """A model, and rows of a corpus as it would train on them."""

    model: nn.Module
    processor: Any
    examples: list[Example]
    sources: list[Path]
    """The clips' own files."""
    lengths: Lengths


def load_setting(manifest: Path, scale: str, limit: int | None) -> Setting:
    """Rows ask for the transcript of a clip; prompts and tokens are the model's."""
    config: ModelConfig = build(ModelConfig, yaml.safe_load((MODELS / f"{scale}.yaml").read_text()), "model")
    config.attn_implementation = "sdpa" if torch.cuda.is_available() else "eager"
    processor = build_processor(config)
    rows = [json.loads(line) for line in manifest.read_text(encoding="utf-8").splitlines()][:limit]
    messages = build_messages(system=load_prompts(style="compact").system("asr"))
    examples = [
        Example(
            id=str(row["id"]), task="asr", split="train", messages=messages, target=row["text"],
            audio={"mc": f"{row['id']}.wav", "beam": None}, metadata={"seconds": float(row["seconds"])},
        )
        for row in rows
    ]  # fmt: skip
    channels = 2 if config.channels == "mc" else 1
    samples = [round(example.seconds * SAMPLE_RATE) for example in examples]
    prompt = len(processor.encode_prompt(messages, num_samples=[SAMPLE_RATE])) - num_embeddings(SAMPLE_RATE, channels)
    lengths = Lengths(
        seconds=np.array([example.seconds for example in examples]),
        embeddings=np.array([num_embeddings(count, channels) for count in samples]),
        tokens=np.array([prompt + len(processor.encode_target(example.target)) for example in examples]),
        tasks=["asr"] * len(examples),
    )
    model = build_model(config, processor).train()
    return Setting(model, processor, examples, [manifest.parent / row["audio"] for row in rows], lengths)


def random_item(setting: Setting, index: int, rng: np.random.Generator) -> Item:
    """A row with noise of its length for sound: as long to compute, quick to have."""
    samples = round(setting.examples[index].seconds * SAMPLE_RATE)
    audio_N = torch.from_numpy(rng.standard_normal(samples, dtype=np.float32) * 0.05)
    return Item(setting.examples[index], (audio_N, audio_N))


def write_clips(setting: Setting, folder: Path, chosen: Iterator[int] | list[int]) -> None:
    """The clips of some rows on five channels, each a little later and softer than the one before."""
    for index in chosen:
        audio_N = read_audio(setting.sources[index], channels=1, resample=True)[0].numpy()
        wanted = round(setting.examples[index].seconds * SAMPLE_RATE)
        audio_N = np.resize(audio_N, wanted) if len(audio_N) < wanted else audio_N[:wanted]
        channels_NM = np.stack([0.9**mic * np.roll(audio_N, mic) for mic in range(MICS)], axis=1)
        soundfile.write(folder / setting.examples[index].audio["mc"], channels_NM, SAMPLE_RATE)  # type: ignore[index]


def file_dataset(setting: Setting, folder: Path, rows: list[int] | None = None) -> ExampleDataset:
    """The rows (all of them if none are named) as they are read in training."""
    processor = setting.processor
    examples = setting.examples if rows is None else [setting.examples[row] for row in rows]
    return ExampleDataset(examples, root=folder, array=processor.array, beam=processor.beam)


def resumed_seconds(setting: Setting, folder: Path, step: int) -> float:
    """Processor time from ``resume=auto`` to the end of the first step, with a checkpoint behind ``step`` steps.

    The checkpoint is that of a run of two steps under another number. Small batches of the rows whose clips are in
    ``folder``, made in line: a worker's time would not be seen. (Wall time on a GPU.)
    """
    clock = time.perf_counter if torch.cuda.is_available() else time.process_time
    rows = [row for row, example in enumerate(setting.examples) if (folder / example.audio["mc"]).is_file()]  # type: ignore[index]
    dataset = file_dataset(setting, folder, rows)
    lengths = setting.lengths
    part = Lengths(lengths.seconds[rows], lengths.embeddings[rows], lengths.tokens[rows], ["asr"] * len(rows))
    sampler = BucketBatchSampler(part, BatchConfig(max_rows=8))

    def train(run_dir: Path, steps: int) -> float:
        started = clock()
        run_sft(
            model=setting.model, processor=setting.processor, train_data=dataset, sampler=sampler,
            collator=Collator(setting.processor), run_dir=run_dir, config=TrainConfig(
                steps=steps, warmup_steps=1, workers=0, threads=1, save_every=2, log_every=10**9, report_to="none"
            ),
        )  # fmt: skip
        return clock() - started

    if not (folder / "two").exists():
        train(folder / "two", 2)
    run_dir = folder / f"run-{step}"
    checkpoint = run_dir / f"checkpoint-{step}"
    shutil.copytree(folder / "two" / "checkpoint-2", checkpoint)
    state = json.loads((checkpoint / "trainer_state.json").read_text())
    (checkpoint / "trainer_state.json").write_text(json.dumps(state | {"global_step": step}))
    mark_complete(checkpoint, {"step": step})
    return train(run_dir, step + 1)


def fixed_batches(count: int, size: int, rng: np.random.Generator) -> list[list[Draw]]:
    """Shuffled rows, so many a batch."""
    order = rng.permutation(count)
    return [[Draw(int(i), 0) for i in order[start : start + size]] for start in range(0, count - size + 1, size)]


def used_share(batches: list[list[Draw]], lengths: NDArray[Any]) -> float:
    """Share of the padded slots of batches that hold something."""
    rows = [lengths[[draw.index for draw in batch]] for batch in batches]
    return float(sum(row.sum() for row in rows) / sum(row.max() * len(row) for row in rows))


def train_step(model: nn.Module, batch: dict[str, Tensor], dtype: torch.dtype | None) -> None:
    """Forward and backward."""
    device = next(model.parameters()).device
    batch = {name: value.to(device, non_blocking=True) for name, value in batch.items()}
    with torch.autocast(device.type, dtype=dtype or torch.bfloat16, enabled=dtype is not None):
        loss = model(**batch).loss
    loss.backward()
    model.zero_grad(set_to_none=True)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
