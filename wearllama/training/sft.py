"""Supervised fine-tuning: ``transformers.Trainer`` with the project's batches, checks and log.

The loss is the sum over the target tokens of all ranks and accumulated batches divided by their number (a mean of means
would weigh short targets more). Shapes: B rows, S text positions, A clips, T mel frames.
"""

import os
import re
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset
from transformers import Trainer

from wearllama.audio.timebase import HOP_SAMPLES, SAMPLE_RATE
from wearllama.training.callbacks import GracefulStop, MarkCheckpoints, quiet_worker_signals
from wearllama.training.checkpoint import (
    FINAL,
    last_complete_checkpoint,
    mark_complete,
    remove_incomplete_checkpoints,
)
from wearllama.training.config import TrainConfig, training_arguments
from wearllama.training.stream import BatchStream, EpochSampler


class NonFiniteLossError(ValueError):
    """The loss became NaN or infinite; nothing of that step was applied."""


@dataclass
class _Tally:
    """Counts since the last log, of this rank."""

    audio_seconds: float = 0.0
    audio_frames: int = 0
    audio_slots: int = 0
    positions: int = 0
    position_slots: int = 0
    target_tokens: int = 0

    def add(self, inputs: Mapping[str, Tensor]) -> None:
        """Count one batch: mel frames, decoder positions and how many of either are padding."""
        mask_BS = inputs["attention_mask"]
        self.positions += int(mask_BS.sum())
        self.position_slots += mask_BS.numel()
        self.target_tokens += int((inputs["labels"] != -100).sum())
        lengths_A = inputs.get("feature_lengths")
        if lengths_A is not None:
            frames = int(lengths_A.sum())
            self.audio_frames += frames
            self.audio_slots += lengths_A.numel() * inputs["input_features"].shape[-2]
            self.audio_seconds += frames * HOP_SAMPLES / SAMPLE_RATE


class SftTrainer(Trainer):
    """Trainer over a :class:`BatchStream`; stops on a non-finite loss and logs audio throughput and padding."""

    def __init__(self, *, sampler: EpochSampler, config: TrainConfig, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.sampler = sampler
        self.config = config
        self._tally = _Tally()
        self._tally_start = time.perf_counter()

    def get_train_dataloader(self) -> DataLoader:
        """The stream, already this rank's share: it is not handed to accelerate, which would deal it out again."""
        assert self.train_dataset is not None
        return DataLoader(
            self.train_dataset,
            batch_sampler=BatchStream(self.sampler, self.args.max_steps * self.args.gradient_accumulation_steps),
            collate_fn=self.data_collator,
            pin_memory=self.args.dataloader_pin_memory,
            **self._worker_settings(),
        )

    def create_optimizer(self, model: nn.Module | None = None) -> torch.optim.Optimizer:
        """The library's optimiser, its groups split further by ``rates``."""
        fresh = self.optimizer is None
        optimizer = super().create_optimizer(model)
        trained = self.model if model is None else model
        if fresh and trained is not None:
            set_rates(optimizer, trained, self.config.rates)
        return optimizer

    def _worker_settings(self) -> dict[str, Any]:
        if not self.config.workers:
            return {}
        return {
            "num_workers": self.config.workers,
            "prefetch_factor": self.config.prefetch,
            "worker_init_fn": _init_worker,
        }

    def training_step(
        self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: Tensor | int | None = None
    ) -> Tensor:
        """One forward and backward pass; NonFiniteLossError before its gradients are used."""
        self._tally.add(inputs)
        loss = super().training_step(model, inputs, num_items_in_batch)
        if not torch.isfinite(loss):
            checkpoint = last_complete_checkpoint(str(self.args.output_dir))
            raise NonFiniteLossError(
                f"the loss is {loss.item()} in step {self.state.global_step + 1}; the last good checkpoint is "
                f"{checkpoint or 'none'}; try a lower train.learning_rate or train.bf16=false"
            )
        return loss

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Add throughput and padding, summed over ranks, to a line of training loss."""
        if "loss" in logs:
            logs.update(self._drain_tally())
        super().log(logs, start_time)

    def _drain_tally(self) -> dict[str, float]:
        seconds = time.perf_counter() - self._tally_start
        counts = torch.tensor(list(vars(self._tally).values()), dtype=torch.float64)
        if self.args.world_size > 1:
            counts = self.accelerator.reduce(counts.to(self.args.device, torch.float32), "sum").double()
        audio_seconds, frames, slots, positions, position_slots, targets = counts.tolist()
        self._tally, self._tally_start = _Tally(), time.perf_counter()
        return {
            "audio_seconds_per_second": round(audio_seconds / seconds, 2),
            "audio_padding": round(1.0 - frames / slots, 4) if slots else 0.0,
            "position_padding": round(1.0 - positions / position_slots, 4) if position_slots else 0.0,
            "target_tokens_per_second": round(targets / seconds, 1),
        }


def set_rates(optimizer: torch.optim.Optimizer, model: nn.Module, rates: Mapping[str, float]) -> None:
    """Give parameters that an expression of ``rates`` matches groups of their own, at so much of the rate.

    Raises:
        ValueError: an expression matches no trained parameter.
    """
    factors, unused = {}, set(rates)
    for name, parameter in model.named_parameters():
        matching = [pattern for pattern in rates if parameter.requires_grad and re.match(pattern, name)]
        unused -= set(matching)
        factors[parameter] = rates[matching[-1]] if matching else 1.0
    if unused:
        raise ValueError(f"train.rates: no trained parameter starts with {sorted(unused)}")
    groups = []
    for group in optimizer.param_groups:
        for factor in sorted({factors[parameter] for parameter in group["params"]}, reverse=True):
            chosen = [parameter for parameter in group["params"] if factors[parameter] == factor]
            groups.append({**group, "params": chosen, "lr": group["lr"] * factor})
    optimizer.param_groups[:] = groups


def _init_worker(worker_id: int) -> None:
    torch.set_num_threads(1)
    quiet_worker_signals()


@dataclass(kw_only=True)
class SftResult:
    """How a call of :func:`run_sft` ended."""

    steps: int
    loss: float | None
    """Mean training loss of this call; None when nothing was left to do."""
    stopped_by: int | None
    """Signal that ended it early; the next call goes on from the checkpoint it left."""
    model_dir: Path
    """Where the trained model is (or will be)."""


def run_sft(
    *,
    model: nn.Module,
    processor: Any,
    train_data: Dataset,
    sampler: EpochSampler,
    collator: Callable[[list[Any]], dict[str, Tensor]],
    config: TrainConfig,
    run_dir: str | Path,
    validation_data: Dataset | None = None,
    resume: bool = True,
    facts: Mapping[str, Any] | None = None,
) -> SftResult:
    """Train `model` for ``config.steps`` and save model and processor under ``run_dir/final``.

    Args:
        model: WearLlama, with ``requires_grad`` as it shall be trained.
        processor: saved beside the model, so that the folder is a whole checkpoint.
        train_data: dataset that `sampler`'s draws index.
        sampler: batches of this rank.
        collator: rows to model inputs with ``labels``.
        config: optimisation, saving, logging.
        run_dir: folder of the run; checkpoints go here.
        validation_data: for ``config.eval_every``.
        resume: go on from the last whole checkpoint of `run_dir`.
        facts: kept in ``final/complete.json``.

    Raises:
        NonFiniteLossError: the loss became NaN or infinite.
    """
    run_dir = Path(run_dir)
    if config.threads:
        torch.set_num_threads(config.threads)
    if config.report_to == "wandb":
        prepare_wandb(run_dir)
    stop = GracefulStop()
    trainer = SftTrainer(
        model=model,
        args=training_arguments(config, run_dir),
        train_dataset=train_data,
        eval_dataset=validation_data,
        data_collator=collator,
        processing_class=processor,
        callbacks=[stop, MarkCheckpoints()],
        sampler=sampler,
        config=config,
    )
    checkpoint = resume_point(trainer, run_dir) if resume else None
    output = trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    final = run_dir / FINAL
    if stop.stopped_by is None:
        save_final(trainer, final, {"steps": config.steps, **(facts or {})})
    return SftResult(
        steps=trainer.state.global_step, loss=output.training_loss, stopped_by=stop.stopped_by, model_dir=final
    )


def resume_point(trainer: Trainer, run_dir: Path) -> Path | None:
    """The last whole checkpoint of `run_dir`, those that were cut short removed first."""
    if trainer.is_world_process_zero():
        for broken in remove_incomplete_checkpoints(run_dir):
            print(f"{broken} was cut short and is removed")
    trainer.accelerator.wait_for_everyone()
    checkpoint = last_complete_checkpoint(run_dir)
    if checkpoint is not None and trainer.is_world_process_zero():
        print(f"going on from {checkpoint}")
    return checkpoint


def save_final(trainer: Trainer, final: Path, facts: Mapping[str, Any]) -> None:
    """Save beside and rename, so that ``final`` is whole whenever it exists."""
    temporary = final.with_name(f".{final.name}.tmp")
    trainer.save_model(str(temporary))
    trainer.accelerator.wait_for_everyone()
    if trainer.is_world_process_zero():
        mark_complete(temporary, facts)
        shutil.rmtree(final, ignore_errors=True)
        os.replace(temporary, final)
    trainer.accelerator.wait_for_everyone()


def prepare_wandb(run_dir: Path) -> None:
    """wandb without a key or mode raises, so it is offline unless the environment says otherwise."""
    if "WANDB_MODE" not in os.environ and "WANDB_API_KEY" not in os.environ:
        os.environ["WANDB_MODE"] = "offline"
        print(f"wandb: offline, into {run_dir}/wandb (WANDB_MODE=online sends it; train.report_to=none does without)")
    os.environ.setdefault("WANDB_PROJECT", "wearllama")
    os.environ.setdefault("WANDB_DIR", str(run_dir))
