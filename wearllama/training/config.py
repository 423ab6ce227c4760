"""How a training run goes: one dataclass in our words, and its translation into ``transformers.TrainingArguments``."""

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from transformers import TrainingArguments

from wearllama.training.parallel import parallel_arguments


@dataclass(kw_only=True)
class TrainConfig:
    """Optimisation, saving and logging of one run; the model and the data have configs of their own."""

    steps: int = 1000
    """Optimiser steps of the whole run."""
    learning_rate: float = 1e-3
    schedule: Literal["cosine", "wsd", "linear", "constant"] = "cosine"
    """After the warm-up: down to `final_lr` of the peak by a half cosine, constant with a line down at the end (WSD, Hu
    et al. 2024), a line to 0, or constant."""
    warmup_steps: int = 50
    decay_steps: int = 0
    """Length of WSD's line; a tenth of the run if 0."""
    final_lr: float = 0.05
    """Learning rate of the last step, as a fraction of the peak (cosine and wsd; linear ends at 0)."""
    rates: dict[str, float] = field(default_factory=dict)
    """Regular expression at the start of a parameter's name -> factor on its learning rate; later entries win."""
    weight_decay: float = 0.01
    betas: tuple[float, float] = (0.9, 0.98)
    clip_norm: float = 1.0
    """Gradient norm above which gradients are scaled down."""
    accumulation: int = 1
    """Batches of each rank summed into one step."""
    bf16: bool | Literal["auto"] = "auto"
    """bfloat16 autocast over fp32 parameters; auto takes it where the hardware multiplies in it (see `fast_bf16`)."""
    activation_checkpointing: bool = False
    packed: bool = False
    """Rows of a batch behind each other in one, kept apart by a document mask, instead of padded."""
    ema: float = 0.0
    """Decay of a moving average of the trained weights, .999 say; it becomes run_dir/final. 0 keeps none."""
    distill: float = 0.0
    """Weight of the KL divergence to the decoder that reads ``metadata.transcript`` instead of hearing it; 0 never."""
    distill_temperature: float = 1.0
    seed: int = 1
    use_cpu: bool = False
    """Stay on the CPU even where there is a GPU."""
    threads: int = 0
    """CPU threads of the training process; 0 leaves torch's own choice."""
    workers: int = 1
    """Processes that render and collate batches ahead of the training process; 0 does it in line."""
    prefetch: int = 4
    """Batches that each worker keeps ready."""
    save_every: int = 200
    """Steps between checkpoints."""
    keep_checkpoints: int = 2
    staging: str | None = None
    """Folder of each node, in memory (``/dev/shm``) or on a fast disk: checkpoints are written there in step and moved
    to run_dir while training goes on. Not given: a step writes to run_dir itself."""
    log_every: int = 10
    log_ids: bool = False
    """Write the ids of every batch's rows to run_dir/rows-rankN.jsonl."""
    eval_every: int = 0
    """Steps between evaluations of the validation loss; 0 never."""
    report_to: Literal["wandb", "tensorboard", "none"] = "wandb"
    """Where curves go, beside trainer_state.json. wandb stays offline unless WANDB_MODE says otherwise."""
    parallel: Literal["ddp", "fsdp2", "zero2", "zero3"] = "ddp"
    """What ranks keep of the model: all of it, or shares of its weights (fsdp2, zero3) or of the optimiser (zero2)."""
    deepspeed: str | None = None
    """DeepSpeed JSON of one's own for zero2 and zero3; conf/train/zero2.json and zero3.json if not given."""
    find_unused: bool = False
    """DDP's search for parameters without gradient; needed only for models with conditional parts."""

    def __post_init__(self) -> None:
        for name in ("steps", "accumulation", "save_every", "log_every", "keep_checkpoints"):
            if getattr(self, name) < 1:
                raise ValueError(f"train.{name} is {getattr(self, name)}, wanted at least 1")
        for name in ("warmup_steps", "workers", "threads", "eval_every"):
            if getattr(self, name) < 0:
                raise ValueError(f"train.{name} is {getattr(self, name)}, wanted at least 0")
        if self.keep_checkpoints < 2:
            raise ValueError("train.keep_checkpoints is 1, wanted at least 2: one must stand while another is written")
        if not 0.0 < self.learning_rate < 1.0:
            raise ValueError(f"train.learning_rate is {self.learning_rate}, wanted between 0 and 1")
        if wrong := {name: factor for name, factor in self.rates.items() if factor < 0}:
            raise ValueError(f"train.rates has {wrong}, wanted factors of 0 or more")
        if self.warmup_steps >= self.steps:
            raise ValueError(
                f"train.warmup_steps is {self.warmup_steps}, wanted below train.steps = {self.steps}: for a short try, "
                f"train.warmup_steps={self.steps // 10}"
            )
        if not 0 <= self.decay_steps <= self.steps - self.warmup_steps:
            raise ValueError(f"train.decay_steps is {self.decay_steps}, wanted 0 to steps - warmup_steps")
        if self.decay_steps and self.schedule != "wsd":
            raise ValueError(f"train.decay_steps is {self.decay_steps}, which only train.schedule=wsd reads")
        if not 0 <= self.ema < 1 or self.distill < 0 or self.distill_temperature <= 0:
            raise ValueError(
                f"train.ema {self.ema}, distill {self.distill} and distill_temperature {self.distill_temperature}: "
                "wanted 0 to 1, 0 or more, and more than 0"
            )
        if self.ema and self.parallel in ("fsdp2", "zero3"):
            raise ValueError(f"train.ema needs whole weights on every rank: parallel=ddp or zero2, not {self.parallel}")
        if self.staging is not None and not Path(self.staging).is_dir():
            raise ValueError(f"train.staging is {self.staging}: no such folder")
        self._check_deepspeed()

    def _check_deepspeed(self) -> None:
        if self.deepspeed is None:
            return
        if not Path(self.deepspeed).is_file():
            raise ValueError(f"train.deepspeed is {self.deepspeed}: no such file")
        if self.parallel not in ("zero2", "zero3"):
            raise ValueError(f"train.deepspeed is given, but train.parallel is {self.parallel}: wanted zero2 or zero3")
        given = json.loads(Path(self.deepspeed).read_text(encoding="utf-8"))
        stage = given.get("zero_optimization", {}).get("stage")
        if f"zero{stage}" != self.parallel:
            raise ValueError(f"{self.deepspeed}: zero_optimization.stage is {stage}, train.parallel is {self.parallel}")
        for name in ("optimizer", "scheduler"):
            if name in given:
                raise ValueError(f"{self.deepspeed} has its own {name}: wanted none, train's rates and schedule hold")


def fast_bf16(*, on_cpu: bool) -> bool:
    """Whether bfloat16 is faster than fp32 here: GPUs that have it, and CPUs with AMX tiles (six times in products).

    On other CPUs bfloat16 is emulated and slower.
    """
    if not on_cpu:
        return torch.cuda.is_bf16_supported(including_emulation=False)
    flags = Path("/proc/cpuinfo")
    return flags.is_file() and "amx_bf16" in flags.read_text()


def use_bf16(setting: bool | Literal["auto"], *, on_cpu: bool) -> bool:
    """The setting of a run, with ``auto`` decided for this machine (see `fast_bf16`)."""
    return fast_bf16(on_cpu=on_cpu) if setting == "auto" else setting


def training_arguments(config: TrainConfig, output_dir: str | Path) -> TrainingArguments:
    """The Trainer's arguments for `config`.

    What is fixed here is what the project relies on: the loss is divided by the global number of target tokens
    (``average_tokens_across_devices``), non-finite losses are not hidden, and no column is dropped before the model.
    """
    on_cpu = config.use_cpu or not torch.cuda.is_available()
    arguments = TrainingArguments(
        output_dir=str(output_dir),
        max_steps=config.steps,
        learning_rate=config.learning_rate,
        warmup_steps=config.warmup_steps,
        weight_decay=config.weight_decay,
        adam_beta1=config.betas[0],
        adam_beta2=config.betas[1],
        max_grad_norm=config.clip_norm,
        gradient_accumulation_steps=config.accumulation,
        average_tokens_across_devices=True,
        bf16=use_bf16(config.bf16, on_cpu=on_cpu),
        seed=config.seed,
        data_seed=config.seed,
        use_cpu=on_cpu,
        ddp_backend="gloo" if on_cpu and int(os.environ.get("WORLD_SIZE", "1")) > 1 else None,
        ddp_find_unused_parameters=config.find_unused,
        dataloader_num_workers=config.workers,
        dataloader_pin_memory=not on_cpu,
        save_strategy="steps",
        save_steps=config.save_every,
        save_total_limit=config.keep_checkpoints,
        logging_strategy="steps",
        logging_steps=config.log_every,
        logging_first_step=True,
        logging_nan_inf_filter=False,
        eval_strategy="steps" if config.eval_every else "no",
        eval_steps=config.eval_every or None,
        prediction_loss_only=True,
        report_to=config.report_to,
        remove_unused_columns=False,
        ignore_data_skip=True,  # the stream itself starts where the checkpoint left it
        label_names=["labels"],
        **parallel_arguments(config, on_cpu=on_cpu),
        **_schedule(config),
    )
    return one_device(arguments)


def one_device(arguments: TrainingArguments) -> TrainingArguments:
    """Plain ``python`` trains on one GPU: the Trainer's DataParallel over all would cut clips otherwise than rows."""
    arguments._n_gpu = min(arguments.n_gpu, 1)
    return arguments


def _schedule(config: TrainConfig) -> dict[str, Any]:
    if config.schedule == "wsd":
        decay = {"num_decay_steps": config.decay_steps or max(1, config.steps // 10), "min_lr_ratio": config.final_lr}
        return {"lr_scheduler_type": "warmup_stable_decay", "lr_scheduler_kwargs": {**decay, "decay_type": "linear"}}
    if config.schedule == "cosine":
        return {"lr_scheduler_type": "cosine_with_min_lr", "lr_scheduler_kwargs": {"min_lr_rate": config.final_lr}}
    return {"lr_scheduler_type": {"linear": "linear", "constant": "constant_with_warmup"}[config.schedule]}
