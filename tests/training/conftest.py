"""A tiny training set of real files: five-channel recordings of different lengths, and rows without sound."""

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import soundfile
import torch
from transformers import set_seed

from wearllama.data.collate import Collator
from wearllama.data.sampling import BatchConfig
from wearllama.modeling.factory import ModelConfig, build_model, build_processor
from wearllama.training.config import TrainConfig
from wearllama.training.data import SftData, batch_sampler, load_sets
from wearllama.training.sft import run_sft
from wearllama_launch import compose_config

ROOT = Path(__file__).resolve().parents[2]
TARGETS = ("[Mute]", "It is nine.", '<|TOOL|>[{"name": "call", "parameters": {"contact": "Ann"}}]</|TOOL|>')


@pytest.fixture(scope="session")
def recipe(load_script: Callable[[str, str], ModuleType]) -> ModuleType:
    """recipes/sft.py as a module."""
    return load_script("recipes", "sft")


@pytest.fixture(scope="session")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """16 rows: 12 recordings of 0.2 to 0.75 s, 4 of text alone."""
    folder = tmp_path_factory.mktemp("rows")
    rng = np.random.default_rng(0)
    rows = []
    for number in range(16):
        row: dict[str, Any] = {"id": f"row-{number:02d}", "task": "tool_call", "split": "train"}
        row["messages"] = [{"role": "system", "content": "Answer."}]
        if number % 4 == 3:
            row["messages"].append({"role": "user", "content": f"call Ann {number}"})
        else:
            samples = 3200 + 800 * (number % 12)
            soundfile.write(folder / f"{number}.wav", 0.1 * rng.standard_normal((samples, 5)), 16000)
            row["messages"].append({"role": "user", "content": [{"type": "audio"}]})
            row["audio"] = {"mc": f"{number}.wav", "beam": None}
            row["metadata"] = {"seconds": samples / 16000}
        row["target"] = TARGETS[number % 3]
        rows.append(json.dumps(row))
    path = folder / "train.jsonl"
    path.write_text("\n".join(rows) + "\n")
    return path


@pytest.fixture(scope="session")
def tiny(recipe: ModuleType) -> ModelConfig:
    """conf/model/tiny.yaml."""
    return compose_config("sft", recipe.SftCommand, ["experiment=tiny", "data.manifest=x"])[0].model


@pytest.fixture
def quick() -> Callable[..., TrainConfig]:
    """Six steps on one thread, a checkpoint every second; keywords change that."""
    settings: dict[str, Any] = {
        "steps": 6, "warmup_steps": 1, "save_every": 2, "log_every": 1, "workers": 0, "threads": 1,
        "report_to": "none", "use_cpu": True, "bf16": False,
    }  # fmt: skip
    return lambda **changes: TrainConfig(**{**settings, **changes})


Train = Callable[..., Any]


@pytest.fixture
def train(manifest: Path, tiny: ModelConfig, quick: Callable[..., TrainConfig]) -> Train:
    """Run SFT from the same start every time; `change` may alter the model, `collate` the batches."""

    def start(
        run_dir: Path,
        config: TrainConfig | None = None,
        *,
        change: Callable[[torch.nn.Module], None] | None = None,
        collate: Callable[[Callable[..., Any]], Callable[..., Any]] | None = None,
    ) -> Any:
        set_seed(3)
        processor = build_processor(tiny)
        model = build_model(tiny, processor)
        if change is not None:
            change(model)
        data = load_sets(SftData(manifest=str(manifest)), processor, seed=3).train
        batches = BatchConfig(max_rows=4, audio_buckets=1, text_buckets=1)
        collator = Collator(processor)
        return run_sft(
            model=model,
            processor=processor,
            train_data=data,
            sampler=batch_sampler(data, processor, 2, batches, seed=3),
            collator=collate(collator) if collate is not None else collator,
            config=config or quick(),
            run_dir=run_dir,
        )

    return start
