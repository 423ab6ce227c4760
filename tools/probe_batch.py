"""The token budget of a device: the largest ``batches.max_positions`` at which a model trains without running out.

Every budget is tried on its two extremes, many short rows and few long ones, with gradients and the optimiser's state
in place; a tenth is kept in reserve for what fragments. Without a GPU, ``memory_gib`` is what the process may have.

Run as: python tools/probe_batch.py model=smollm2 longest_s=20
        python tools/probe_batch.py model=demo longest_s=6 memory_gib=4
"""

from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from wearllama.audio.timebase import SAMPLE_RATE
from wearllama.data.collate import Collator
from wearllama.data.dataset import Item
from wearllama.data.manifest import Example
from wearllama.data.prompts import build_messages, load_prompts
from wearllama.modeling.factory import ModelConfig, build_model, build_processor
from wearllama.training.config import fast_bf16
from wearllama.training.probe import find_budget, fits_in_memory, limit_memory
from wearllama_launch import launch


@dataclass(kw_only=True)
class ProbeBatch:
    model: ModelConfig
    shortest_s: float = 1.0
    longest_s: float = 20.0
    """Clips of the data, both ends."""
    target_words: int = 40
    reserve: float = 0.1
    memory_gib: float | None = None
    """Of the process, where there is no GPU."""

    def __post_init__(self) -> None:
        if not 0 < self.shortest_s <= self.longest_s or not 0 <= self.reserve < 1:
            raise ValueError(
                f"shortest_s {self.shortest_s}, longest_s {self.longest_s}, reserve {self.reserve}: wanted growing "
                "lengths and a share below 1"
            )


@launch("probe_batch", ProbeBatch)
def main(config: ProbeBatch) -> None:
    on_cpu = not torch.cuda.is_available()
    if on_cpu and config.memory_gib is None:
        raise ValueError("there is no GPU: memory_gib is wanted, what a training process may have")
    device = torch.device("cpu" if on_cpu else "cuda")
    processor = build_processor(config.model)
    model = build_model(config.model, processor).to(device).train()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.0)
    rows = [make_row(seconds, config.target_words) for seconds in (config.shortest_s, config.longest_s)]
    collate = Collator(processor)
    sizes = [collate([row])["input_ids"].shape[1] for row in rows]

    def step(row: Item, count: int) -> None:
        batch = {name: value.to(device) for name, value in collate([row] * count).items()}
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=fast_bf16(on_cpu=on_cpu)):
            loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    def fits(budget: int) -> bool:
        pairs = zip(rows, sizes, strict=True)
        return all(fits_in_memory(partial(step, row, max(1, budget // size))) for row, size in pairs)

    if config.memory_gib is not None and on_cpu:
        limit_memory(config.memory_gib)
    found = find_budget(fits, max(sizes))
    where = f"{config.memory_gib:g} GiB of a CPU's memory" if on_cpu else torch.cuda.get_device_name()
    print(f"{where}: {found} positions fit; batches.max_positions={int(found * (1 - config.reserve))}")


def make_row(seconds: float, words: int) -> Item:
    """A row of noise and words."""
    audio_N = torch.from_numpy(np.random.default_rng(0).standard_normal(round(seconds * SAMPLE_RATE), dtype=np.float32))
    messages = build_messages(system=load_prompts(style="compact").system("asr"))
    example = Example(id="probe", task="asr", split="train", messages=messages, target=" ".join(["word"] * words),
                      audio={"mc": "probe.wav", "beam": None})  # fmt: skip
    return Item(example, (0.05 * audio_N, 0.05 * audio_N))


if __name__ == "__main__":
    main()
