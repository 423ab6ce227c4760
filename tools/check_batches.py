"""Does a checkpoint say the same alone and in batches? Greedy decoding of a benchmark's clips in several batch sizes.

Run as: python tools/check_batches.py ckpt=runs/demo/sft data=data/demo/vgbench/manifest.jsonl
        python tools/check_batches.py ckpt=... data=/data/WearVox items=1000 batch_sizes=[1,32] dtype=bfloat16

Prints every clip whose text differs, and one JSON line. Exit code 1 where any does.
"""

import json
import sys
import time
from dataclasses import dataclass, field
from typing import Literal

import torch

from wearllama.evaluation.adapters import CheckpointAdapter
from wearllama.evaluation.invariance import differences, texts_by_batch_size
from wearllama.evaluation.vgbench import VGBenchConfig, load_vgbench
from wearllama.evaluation.wearvox import WearVoxConfig, load_wearvox
from wearllama_launch import existing_path, launch


@dataclass(kw_only=True)
class CheckBatches:
    ckpt: str
    data: str = "data/demo/vgbench/manifest.jsonl"
    """A VGBench manifest, or a WearVox folder."""
    items: int = 200
    """Clips, evenly spread over the benchmark."""
    batch_sizes: tuple[int, ...] = (1, 4, 16)
    """The first is what the others are held against."""
    max_new_tokens: int = 96
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    device: str | None = None
    seed: int = 0
    """Of the batches' order."""
    vgbench: VGBenchConfig = field(default_factory=VGBenchConfig)
    wearvox: WearVoxConfig = field(default_factory=WearVoxConfig)

    def __post_init__(self) -> None:
        if self.items < 1 or len(self.batch_sizes) < 2 or min(self.batch_sizes) < 1:
            raise ValueError(f"items={self.items} batch_sizes={self.batch_sizes}: wanted clips and two sizes at least")


@launch("check_batches", CheckBatches)
def main(config: CheckBatches) -> None:
    existing_path(config.ckpt, "ckpt")
    data = existing_path(config.data, "data")
    if data.is_dir():
        examples, root, channels = load_wearvox(data, config.wearvox), data, config.wearvox.channels
    else:
        examples, root, channels = load_vgbench(data, config.vgbench), data.parent, config.vgbench.audio_channels
    heard = [example for example in examples if example.audio]
    count = min(config.items, len(heard))
    chosen = [heard[index * len(heard) // count] for index in range(count)]
    model = CheckpointAdapter(
        config.ckpt, max_new_tokens=config.max_new_tokens, device=config.device, dtype=getattr(torch, config.dtype)
    )
    started = time.perf_counter()
    texts = texts_by_batch_size(model, chosen, root, config.batch_sizes, channels=channels, seed=config.seed)
    wrong = differences(texts)
    for difference in wrong:
        print(f"{difference.id}, batch of {difference.batch_size}: {difference.found!r}, wanted {difference.wanted!r}")
    print(json.dumps({
        "check": "batch_invariance", "clips": len(chosen), "batch_sizes": list(config.batch_sizes),
        "dtype": config.dtype, "differences": len(wrong),
        "distinct_texts": len(set(texts[config.batch_sizes[0]].values())),
        "seconds": round(time.perf_counter() - started, 1),
    }))  # fmt: skip
    if wrong:
        sys.exit(1)


if __name__ == "__main__":
    main()
