"""The one loop of encoder pre-training, whatever the objective: words and acoustics, a teacher's features, BEST-RQ.

A run is a map-style dataset whose item k is its k-th batch, so that a place in the data is a number: any number of
workers gives the same batches, W ranks take every W-th, and a resumed run skips what was used without rendering it.
Objectives bring their model (``model(**batch)`` gives ``loss`` and what their meter counts) and a meter for the log.
"""

import json
from collections.abc import Iterator, Mapping, Sized
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.data import DataLoader, Dataset, Sampler
from transformers import Trainer, TrainingArguments

from wearllama.training.callbacks import GracefulStop, MarkCheckpoints, OwnIntervals, init_worker
from wearllama.training.checkpoint import last_complete_checkpoint
from wearllama.training.meters import Reduce, Throughput
from wearllama.training.pretraining_config import PretrainingSettings, training_arguments
from wearllama.training.resume import LOG, announce, prepare

HELD_OUT = "held_out_"
"""How figures of what training never sees begin."""


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


@dataclass(frozen=True, kw_only=True)
class HeldOut:
    """What training never sees: measured at every checkpoint, logged as ``held_out_...``."""

    batches: Dataset[dict[str, Any]]
    """At least one for each rank."""
    meter: Meter


class PretrainingTrainer(Trainer):
    """transformers.Trainer over whole batches; stops on a non-finite loss and writes run_dir/log.jsonl."""

    def __init__(self, *, meter: Meter, held_out: HeldOut | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.meter, self.held_out = meter, held_out
        self.throughput = Throughput()
        # Batches with ``labels`` are averaged over the labelled frames of all ranks and accumulated batches.
        self.model_accepts_loss_kwargs = True

    def get_train_dataloader(self) -> DataLoader:
        """Already this rank's share: it is not handed to accelerate, which would deal it out again."""
        return self._loader(self.train_dataset, self.args.dataloader_num_workers)

    def _loader(self, batches: Any, workers: int) -> DataLoader:
        assert isinstance(batches, Dataset) and isinstance(batches, Sized)
        return DataLoader(
            batches,
            batch_sampler=BatchNumbers(len(batches), self.args.process_index, self.args.world_size),
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

    @torch.no_grad()
    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        """The held-out batches' loss and figures, into the log."""
        assert self.held_out is not None and self.model is not None
        meter, losses = self.held_out.meter, []
        self.model.eval()
        for batch in self._loader(self.held_out.batches, workers=0):
            with self.compute_loss_context_manager(), _quick_attention(self.args):
                outputs = self.model(**self._prepare_inputs(batch))
            meter.add(outputs)
            losses.append(float(outputs["loss"]))
        loss = self._sum_over_ranks(torch.tensor([sum(losses), len(losses)]))
        figures, _ = meter.drain(self._sum_over_ranks)
        found = {HELD_OUT + name: value for name, value in {"loss": float(loss[0] / loss[1]), **figures}.items()}
        self.log(found)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, found)
        return found

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        more: dict[str, Any] = {}
        training = "loss" in logs
        if training:
            figures, more = self.meter.drain(self._sum_over_ranks)
            logs |= figures | self.throughput.drain(self._sum_over_ranks)
        super().log(logs, start_time)
        if (training or any(name.startswith(HELD_OUT) for name in logs)) and self.is_world_process_zero():
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
    held_out: HeldOut | None = None,
    fingerprint: str | None = None,
) -> PretrainingResult:
    """Train ``model`` in place for ``settings.max_steps``, going on from the last whole checkpoint of ``run_dir``.

    Args:
        model: ``model(**batch)`` gives a mapping with ``loss``.
        batches: ``max_steps * accumulation * world_size`` items, each one rank's batch with ``mel_lengths_B``.
        settings: optimisation, saving, logging.
        run_dir: checkpoints, log.jsonl and fingerprint.txt go here.
        meter: of the objective.
        held_out: measured at every checkpoint, if given.
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
        args=training_arguments(settings, run_dir, evaluated=held_out is not None),
        train_dataset=batches,
        eval_dataset=None if held_out is None else held_out.batches,
        callbacks=[stop, OwnIntervals(), MarkCheckpoints()],
        meter=meter,
        held_out=held_out,
    )
    if trainer.is_world_process_zero():
        prepare(run_dir, fingerprint)
    trainer.accelerator.wait_for_everyone()
    checkpoint = last_complete_checkpoint(run_dir)
    if checkpoint and trainer.is_world_process_zero():
        announce(checkpoint, trainer.args.world_size)
    with stop:
        trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    return PretrainingResult(steps=trainer.state.global_step, stopped_by=stop.stopped_by)


def only_item(items: list[dict[str, Any]]) -> dict[str, Any]:
    """Collator of a loader whose items are whole batches already."""
    assert len(items) == 1
    return items[0]


def _quick_attention(args: TrainingArguments) -> AbstractContextManager[None]:
    """On a CPU in bfloat16 the fused attention is slow backward (docs/decisions.md): plain products instead."""
    return sdpa_kernel(SDPBackend.MATH) if args.bf16 and args.use_cpu else nullcontext()
