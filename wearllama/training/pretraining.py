"""The one loop of encoder pre-training, whatever the objective: words and acoustics, a teacher's features, BEST-RQ.

A run is a map-style dataset whose item k is its k-th batch, so that a place in the data is a number: any number of
workers gives the same batches, W ranks take every W-th, and a resumed run skips what was used without rendering it.
Objectives bring their model (``model(**batch)`` gives ``loss`` and what their meter counts) and a meter for the log.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sized
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.data import DataLoader, Dataset, Sampler
from transformers import Trainer, TrainingArguments

from wearllama.training.callbacks import GracefulStop, MarkCheckpoints, init_worker
from wearllama.training.checkpoint import last_complete_checkpoint
from wearllama.training.config import use_bf16
from wearllama.training.meters import Reduce, Throughput
from wearllama.training.resume import LOG, prepare


@dataclass(kw_only=True)
class PretrainingSettings:
    """How a run goes: what recipes/pretrain_encoder.py and recipes/best_rq.py have in common."""

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


class Meter(Protocol):
    """Collects what the log says of the steps since its last line."""

    def add(self, outputs: Mapping[str, Tensor]) -> None:
        """Count one batch of this rank."""

    def drain(self, reduce: Reduce) -> tuple[dict[str, float], dict[str, Any]]:
        """Figures for the console, and more for the file alone; ``reduce`` sums a tensor over ranks. Starts anew."""


class BatchNumbers(Sampler[list[int]]):
    """This rank's share of a run's batches: rank, rank + W, ..."""

    def __init__(self, total: int, rank: int, world_size: int) -> None:
        self.total, self.rank, self.world_size = total, rank, world_size

    def __len__(self) -> int:
        return self.total // self.world_size

    def __iter__(self) -> Iterator[list[int]]:
        return ([self.rank + self.world_size * step] for step in range(len(self)))


class PretrainingTrainer(Trainer):
    """transformers.Trainer over whole batches; stops on a non-finite loss and writes run_dir/log.jsonl."""

    def __init__(self, *, meter: Meter, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.meter = meter
        self.throughput = Throughput()
        # Batches with ``labels`` are averaged over the labelled frames of all ranks and accumulated batches.
        self.model_accepts_loss_kwargs = True

    def get_train_dataloader(self) -> DataLoader:
        """Already this rank's share: it is not handed to accelerate, which would deal it out again."""
        assert isinstance(self.train_dataset, Dataset) and isinstance(self.train_dataset, Sized)
        workers = self.args.dataloader_num_workers
        return DataLoader(
            self.train_dataset,
            batch_sampler=BatchNumbers(len(self.train_dataset), self.args.process_index, self.args.world_size),
            collate_fn=only_item,
            num_workers=workers,
            worker_init_fn=init_worker if workers else None,
            pin_memory=not self.args.use_cpu,
        )

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        counted = {} if num_items_in_batch is None else {"num_items": num_items_in_batch}
        with _quick_attention(self.args):
            outputs = model(**inputs, **counted)
        loss = outputs["loss"]
        if not loss.isfinite():
            scalars = {name: float(value) for name, value in outputs.items() if value.ndim == 0}
            raise FloatingPointError(f"step {self.state.global_step}: loss is not finite: {scalars}")
        self.meter.add(outputs)
        self.throughput.add(inputs["mel_lengths_B"])
        if counted:
            loss = loss * self.accelerator.num_processes  # ranks average gradients; the divisor is global already
        return (loss, outputs) if return_outputs else loss

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        more: dict[str, Any] = {}
        training = "loss" in logs
        if training:
            figures, more = self.meter.drain(self._sum_over_ranks)
            logs |= figures | self.throughput.drain(self._sum_over_ranks)
        super().log(logs, start_time)
        if training and self.is_world_process_zero():
            line = {"step": self.state.global_step, **logs, **more}
            with (Path(str(self.args.output_dir)) / LOG).open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")

    def _sum_over_ranks(self, counts: Tensor) -> Tensor:
        counts = counts.to(self.args.device)
        return self.accelerator.reduce(counts, "sum") if self.args.world_size > 1 else counts


@dataclass(kw_only=True)
class PretrainingResult:
    """How a call of :func:`run_pretraining` ended."""

    steps: int
    stopped_by: int | None
    """Signal that ended it early; the same call goes on from the checkpoint it left."""


def run_pretraining(
    model: nn.Module,
    batches: Dataset[dict[str, Any]],
    settings: PretrainingSettings,
    run_dir: Path,
    meter: Meter,
    *,
    fingerprint: str | None = None,
) -> PretrainingResult:
    """Train ``model`` in place for ``settings.max_steps``, going on from the last whole checkpoint of ``run_dir``.

    Args:
        model: ``model(**batch)`` gives a mapping with ``loss``.
        batches: ``max_steps * accumulation * world_size`` items, each one rank's batch with ``mel_lengths_B``.
        settings: optimisation, saving, logging.
        run_dir: checkpoints, log.jsonl and fingerprint.txt go here.
        meter: of the objective.
        fingerprint: of what decides the batches and weights; None for runs that may change between calls.

    Raises:
        ValueError: run_dir holds a run of another fingerprint.
        FloatingPointError: the loss became NaN or infinite; nothing of that step was applied.
    """
    if settings.max_steps == 0:
        return PretrainingResult(steps=0, stopped_by=None)
    run_dir.mkdir(parents=True, exist_ok=True)
    stop = GracefulStop()
    trainer = PretrainingTrainer(
        model=model,
        args=_arguments(settings, run_dir),
        train_dataset=batches,
        callbacks=[stop, MarkCheckpoints()],
        meter=meter,
    )
    if trainer.is_world_process_zero():
        prepare(run_dir, fingerprint)
    trainer.accelerator.wait_for_everyone()
    checkpoint = last_complete_checkpoint(run_dir)
    if checkpoint and trainer.is_world_process_zero():
        print(f"going on from {checkpoint}")
    trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    return PretrainingResult(steps=trainer.state.global_step, stopped_by=stop.stopped_by)


def only_item(items: list[dict[str, Any]]) -> dict[str, Any]:
    """Collator of a loader whose items are whole batches already."""
    assert len(items) == 1
    return items[0]


def _quick_attention(args: TrainingArguments) -> AbstractContextManager[None]:
    """On a CPU in bfloat16 the fused attention is slow backward (docs/decisions.md): plain products instead."""
    return sdpa_kernel(SDPBackend.MATH) if args.bf16 and args.use_cpu else nullcontext()


def _arguments(settings: PretrainingSettings, run_dir: Path) -> TrainingArguments:
    on_cpu = not torch.cuda.is_available()
    return TrainingArguments(
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
