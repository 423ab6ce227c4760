"""A small world for GRPO's tests: pairs of recordings whose sides a tiny model can tell apart, and its parts."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import torch
from transformers import set_seed

from wearllama.modeling.factory import ModelConfig, build_model, build_processor
from wearllama.training.data import SftData, load_sets
from wearllama.training.grpo_config import GrpoConfig
from wearllama.training.grpo_data import GroupStream, make_groups
from wearllama.training.grpo_explore import Explorer
from wearllama.training.rewards import Judge, RewardConfig
from wearllama.training.rollout import LocalEngine

TOOL = '{"name": "call", "params": {}}'


def write_pairs(folder: Path, pairs: int = 3, alone: int = 1) -> Path:
    """Pairs of loud (tool) and faint (mute) noise, and rows without sound that belong to no pair."""
    rng = np.random.default_rng(0)
    rows: list[dict[str, Any]] = []
    for number in range(pairs):
        for side, level, target in (("same_speaker", 0.2, TOOL), ("switch", 0.002, "[Mute]")):
            name = f"{number}-{side}.wav"
            soundfile.write(folder / name, level * rng.standard_normal((3200 + 800 * number, 5)), 16000)
            rows.append({
                "id": f"pair-{number}-{side}", "task": "speaker_switch", "target": target,
                "messages": [{"role": "user", "content": [{"type": "audio"}]}], "audio": {"mc": name, "beam": None},
                "metadata": {"seconds": 0.2 + 0.05 * number, "dialect": "vgbench", "group": f"pair-{number}",
                             "side": side, "seed_id": f"pair-{number}"},
            })  # fmt: skip
    for number in range(alone):
        rows.append({
            "id": f"self-{number}", "task": "self_talk", "target": "[Mute]", "metadata": {"dialect": "vgbench"},
            "messages": [{"role": "user", "content": f"I should call Ann {number}"}],
        })  # fmt: skip
    path = folder / "pairs.jsonl"
    path.write_text("".join(json.dumps({"split": "train", **row}) + "\n" for row in rows))
    return path


def start(tiny: ModelConfig, seed: int = 3) -> tuple[Any, Any]:
    """Processor and model, the same at every call; the model half knows the two words of this world."""
    set_seed(seed)
    processor = build_processor(tiny)
    model = build_model(tiny, processor)
    with torch.no_grad():
        model.projector.norm_out.weight.fill_(0.3)
    return processor, model


def teach(model: Any, processor: Any, dataset: Any, steps: int = 60) -> None:
    """Supervised steps on both answers for every row, whatever it wants: a policy that guesses."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    items = [dataset[index] for index in range(len(dataset))]
    for step in range(steps):
        targets = [(TOOL, "[Mute]")[(step + number) % 2] for number in range(len(items))]
        batch = processor([item.example.messages for item in items], [item.audio for item in items], targets)
        optimizer.zero_grad()
        model(**batch).loss.backward()
        optimizer.step()


def explorer(model: Any, processor: Any, manifest: Path, config: GrpoConfig, **stream: int) -> Explorer:
    dataset = load_sets(SftData(manifest=str(manifest)), processor).train
    return Explorer(
        dataset=dataset,
        stream=GroupStream(make_groups(dataset.examples, config.pairing), config.weights, seed=config.seed, **stream),
        engine=LocalEngine(model, processor, temperature=config.temperature,
                           max_completion_length=config.max_completion_length, max_rows=64),
        judge=Judge(config.reward_weights, RewardConfig()),
        processor=processor,
        config=config,
    )  # fmt: skip
