"""Supervised fine-tuning: ``transformers.Trainer`` with the project's batches, checks and log.

The loss is the sum over the target tokens of all ranks and accumulated batches divided by their number (a mean of means
would weigh short targets more). Shapes: B rows, S text positions, A clips, T mel frames.
"""

import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import Trainer
from transformers.trainer_callback import ProgressCallback

from wearllama.data.dataset import ExampleDataset
from wearllama.data.sampling import BucketBatchSampler
from wearllama.training.batches import TrainingCollator
from wearllama.training.callbacks import GracefulStop, MarkCheckpoints, OwnIntervals, ProgressBar
from wearllama.training.checkpoint import (
    FINAL,
    last_complete_checkpoint,
    mark_complete,
    remove_incomplete_checkpoints,
)
from wearllama.training.config import TrainConfig, training_arguments
from wearllama.training.distill import check_taught, check_teacher
from wearllama.training.ema import MovingAverage
from wearllama.training.resume import announce, cut_logs
from wearllama.training.staging import Stager
from wearllama.training.stream import EpochSampler
from wearllama.training.trainer import NonFiniteLossError, SftTrainer

__all__ = ["FINAL", "NonFiniteLossError", "SftResult", "prepare_wandb", "resume_point", "run_sft", "save_final"]


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
    train_data: ExampleDataset,
    sampler: EpochSampler,
    collator: Callable[[list[Any]], dict[str, Tensor]],
    config: TrainConfig,
    run_dir: str | Path,
    validation_data: ExampleDataset | None = None,
    validation_sampler: BucketBatchSampler | None = None,
    resume: bool = True,
    facts: Mapping[str, Any] | None = None,
    tolerance: float = 0.0,
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
        validation_sampler: its batches of this rank.
        resume: go on from the last whole checkpoint of `run_dir`.
        facts: kept in ``final/complete.json``.
        tolerance: share of the rows that may be broken, where `train_data` is tolerant.

    Raises:
        NonFiniteLossError: the loss became NaN or infinite.
        TooManyFaults: more rows than `tolerance` allows are broken.
    """
    run_dir = Path(run_dir)
    if config.threads:
        torch.set_num_threads(config.threads)
    if config.report_to == "wandb":
        prepare_wandb(run_dir)
    if config.eval_every and (validation_data is None or validation_sampler is None):
        raise ValueError(f"train.eval_every is {config.eval_every}, but there are no rows of the validation split")
    if config.distill:
        check_teacher(model)
        check_taught(train_data.examples)
    stop = GracefulStop()
    stager = Stager(run_dir, Path(config.staging), config.keep_checkpoints) if config.staging else None
    average = MovingAverage(model, config.ema, stager.folder if stager else None) if config.ema else None
    tasks = sorted({example.task for data in (train_data, validation_data) if data for example in data.examples})
    trainer = SftTrainer(
        model=model,
        args=training_arguments(config, run_dir),
        train_dataset=train_data,
        eval_dataset=validation_data,
        data_collator=TrainingCollator(
            collator,
            tasks,
            processor=processor if config.distill else None,
            ids=config.log_ids,
            packed=config.packed,
        ),
        processing_class=processor,
        callbacks=[stop, OwnIntervals(), *([average] if average else []), MarkCheckpoints(stager)],
        sampler=sampler,
        config=config,
        tasks=tasks,
        tolerance=tolerance,
        validation_sampler=validation_sampler,
        stager=stager,
    )
    trainer.remove_callback(ProgressCallback)
    trainer.add_callback(ProgressBar())
    checkpoint = resume_point(trainer, run_dir) if resume else None
    if not resume and trainer.is_world_process_zero():
        cut_logs(run_dir, None)
    if checkpoint is not None:
        trainer.start_step = int(checkpoint.name.rpartition("-")[2])
    with stop, stager or nullcontext():
        output = trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    final = run_dir / FINAL
    if stop.stopped_by is None:
        trainer.faults.finish()
        if average:
            average.apply()
        save_final(trainer, final, {"steps": config.steps, **(facts or {})})
    return SftResult(
        steps=trainer.state.global_step, loss=output.training_loss, stopped_by=stop.stopped_by, model_dir=final
    )


def resume_point(trainer: Trainer, run_dir: Path) -> Path | None:
    """The last whole checkpoint of `run_dir`; those that were cut short are removed, logs are cut back to it."""
    if trainer.is_world_process_zero():
        for broken in remove_incomplete_checkpoints(run_dir):
            print(f"{broken} was cut short and is removed")
        cut_logs(run_dir, last_complete_checkpoint(run_dir))
    trainer.accelerator.wait_for_everyone()
    checkpoint = last_complete_checkpoint(run_dir)
    if checkpoint is not None and trainer.is_world_process_zero():
        announce(checkpoint, trainer.args.world_size)
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
