"""How encoder pre-training goes: what recipes/pretrain_encoder.py and recipes/best_rq.py have in common."""

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from transformers import TrainingArguments

from wearllama.training.checkpoint import fingerprint
from wearllama.training.config import one_device, use_bf16


@dataclass(kw_only=True)
class PretrainingSettings:
    """Optimisation, saving, logging."""

    max_steps: int = 20_000
    """Optimiser steps; 0 trains nothing and exports the encoder as it starts (a random one to compare with)."""
    decay_steps: int = 3_000
    """The last steps, over which the rate falls to zero; the steps before keep it constant (WSD)."""
    warmup_steps: int = 400
    learning_rate: float = 1.5e-3
    weight_decay: float = 0.01
    accumulation: int = 1
    """Batches of each rank summed into one step."""
    bf16: bool | Literal["auto"] = "auto"
    """bfloat16 autocast; auto takes it where the hardware multiplies in it."""
    workers: int = 1
    threads: int = 1
    save_steps: int = 500
    log_every: int = 50
    seed: int = 0
    run_dir: str | None = None
    export: str | None = None
    """Folder of the exported encoder; run_dir/encoder if not given."""

    def __post_init__(self) -> None:
        for name in ("max_steps", "decay_steps", "warmup_steps", "workers"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}, wanted at least 0")
        for name in ("accumulation", "threads", "save_steps", "log_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, wanted at least 1")
        if 0 < self.max_steps < self.warmup_steps + self.decay_steps:
            raise ValueError(
                f"warmup_steps {self.warmup_steps} and decay_steps {self.decay_steps} do not fit into "
                f"max_steps = {self.max_steps}"
            )


NEVER_DECIDES = ("run_dir", "export", "workers", "threads", "log_every", "save_steps", "max_steps", "decay_steps",
                 "validation_batches")  # fmt: skip


def run_fingerprint(settings: PretrainingSettings, bank: str | None, *, absent: Mapping[str, Any]) -> str:
    """What decides the batches and weights: a longer run, or one on other machinery, is the same run.

    Args:
        settings: of the recipe.
        bank: RIR bank that its scenes are drawn from, if any.
        absent: settings that came later, with the values at which a run is what it was before they were known.
    """
    found = asdict(settings)
    for name in NEVER_DECIDES:
        found.pop(name, None)
    for name, value in absent.items():
        if found[name] == value:
            found.pop(name)
    return fingerprint(found, [Path(bank) / "meta.json"] if bank else [])


def training_arguments(settings: PretrainingSettings, run_dir: Path, *, evaluated: bool) -> TrainingArguments:
    """For transformers.Trainer; ``evaluated``: at every checkpoint."""
    on_cpu = not torch.cuda.is_available()
    arguments = TrainingArguments(
        output_dir=str(run_dir),
        per_device_train_batch_size=1,
        max_steps=settings.max_steps,
        learning_rate=settings.learning_rate,
        weight_decay=settings.weight_decay,
        adam_beta2=0.98,
        max_grad_norm=1.0,
        gradient_accumulation_steps=settings.accumulation,
        average_tokens_across_devices=True,
        lr_scheduler_type="warmup_stable_decay",
        lr_scheduler_kwargs={"num_decay_steps": settings.decay_steps},
        warmup_steps=settings.warmup_steps,
        logging_steps=settings.log_every,
        logging_first_step=True,
        logging_nan_inf_filter=False,
        save_steps=settings.save_steps,
        eval_strategy="steps" if evaluated else "no",
        eval_steps=settings.save_steps,
        save_total_limit=2,
        dataloader_num_workers=settings.workers,
        remove_unused_columns=False,
        label_names=["labels"],
        report_to="none",
        bf16=use_bf16(settings.bf16, on_cpu=on_cpu),
        use_cpu=on_cpu,
        ddp_find_unused_parameters=False,
        ddp_broadcast_buffers=False,
        ddp_backend="gloo" if on_cpu and int(os.environ.get("WORLD_SIZE", "1")) > 1 else None,
        seed=settings.seed,
    )
    return one_device(arguments)
