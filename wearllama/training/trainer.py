"""The Trainer of fine-tuning: batches as one stream, a loss over global target tokens, a log of costs and losses."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader
from transformers import Trainer

from wearllama.data.faults import Faults
from wearllama.data.sampling import BucketBatchSampler
from wearllama.modeling.modeling_wearllama import num_targets
from wearllama.training.batches import FAULTS, IDS, ROWS, TASKS, take_extras
from wearllama.training.callbacks import init_worker
from wearllama.training.checkpoint import last_complete_checkpoint
from wearllama.training.config import TrainConfig
from wearllama.training.distill import TAUGHT, TEACHER, divergence, teacher_logits
from wearllama.training.flops import flops_model, peak_flops
from wearllama.training.optimiser import set_rates
from wearllama.training.runlog import IdLog, RunLog, Tally
from wearllama.training.staging import Stager
from wearllama.training.stream import BatchStream, EpochSampler


class NonFiniteLossError(ValueError):
    """The loss became NaN or infinite; nothing of that step was applied."""


def require_finite(loss: Tensor, trainer: Trainer) -> None:
    """NonFiniteLossError with the step and the checkpoint to go back to, unless the step's loss is a number."""
    if not torch.isfinite(loss):
        checkpoint = last_complete_checkpoint(str(trainer.args.output_dir))
        raise NonFiniteLossError(
            f"the loss is {loss.item()} in step {trainer.state.global_step + 1}; the last good checkpoint is "
            f"{checkpoint or 'none'}; try a lower train.learning_rate or train.bf16=false"
        )


class SftTrainer(Trainer):
    """Trainer over a :class:`BatchStream`; stops on a non-finite loss and logs what a run costs and learns."""

    def __init__(
        self,
        *,
        sampler: EpochSampler,
        config: TrainConfig,
        tasks: Sequence[str],
        tolerance: float,
        validation_sampler: BucketBatchSampler | None = None,
        stager: Stager | None = None,
        **kwargs: Any,
    ) -> None:
        model = kwargs["model"]
        self.stager = stager
        super().__init__(**kwargs)
        self.sampler, self.validation_sampler = sampler, validation_sampler
        self.config = config
        dtype = torch.bfloat16 if self.args.bf16 else torch.float32
        self.tally = Tally(tasks, flops_model(model), peak_flops(self.args.device, dtype), self.args.device)
        self.run_log = RunLog(Path(str(self.args.output_dir)))
        self.id_log = IdLog(Path(str(self.args.output_dir)), self.args.process_index) if config.log_ids else None
        file = Path(str(self.args.output_dir)) / f"faults-rank{self.args.process_index}.jsonl"
        self.faults = Faults(file, tolerance, keep=True)
        self.start_step = 0
        """Optimiser steps that the checkpoint of this call has behind it."""
        self._last_logged = 0
        if self.is_world_process_zero():
            print(f"peak of a device for MFU: {self.tally.peak / 1e12:.3g} TFLOP/s in {str(dtype).split('.')[1]}")

    def get_train_dataloader(self) -> DataLoader:
        """The stream, already this rank's share: it is not handed to accelerate, which would deal it out again."""
        accumulated = self.args.gradient_accumulation_steps
        stream = BatchStream(self.sampler, self.args.max_steps * accumulated, self.start_step * accumulated)
        return self._loader(self.train_dataset, stream)

    def _loader(self, rows: Any, stream: BatchStream) -> DataLoader:
        return DataLoader(
            rows,
            batch_sampler=stream,
            collate_fn=self.data_collator,
            generator=torch.Generator(),  # workers' seeds, which nothing uses, stay out of the run's random numbers
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

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        if self.stager is not None:
            self.stager.wait()  # the staging folder has room for one
        super()._save_checkpoint(model, trial)

    def _get_output_dir(self, trial: Any) -> str:
        """Where the library writes checkpoints."""
        return str(self.stager.folder) if self.stager is not None else super()._get_output_dir(trial)

    def _worker_settings(self) -> dict[str, Any]:
        if not self.config.workers:
            return {}
        return {
            "num_workers": self.config.workers,
            "prefetch_factor": self.config.prefetch,
            "worker_init_fn": init_worker,
        }

    def get_batch_samples(self, *args: Any, **kwargs: Any) -> Any:
        """As the library's, timed: this is where a step waits for data."""
        with self.tally.waiting():
            return super().get_batch_samples(*args, **kwargs)

    def training_step(
        self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: Tensor | int | None = None
    ) -> Tensor:
        """One forward and backward pass; NonFiniteLossError before its gradients are used."""
        self.tally.add(inputs)
        self.faults.good(inputs[ROWS])
        for name, why in inputs.get(FAULTS, ()):
            self.faults.add("broken row", name, why)
        if self.id_log is not None:
            self.id_log.write(self.state.global_step + 1, inputs[IDS])
        loss = super().training_step(model, inputs, num_items_in_batch)
        require_finite(loss, self)
        return loss

    @torch.no_grad()
    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        """Mean loss of the validation rows' target tokens over all ranks, every row rendered as ever, into the log."""
        assert self.validation_sampler is not None and self.model is not None
        stream = BatchStream(self.validation_sampler, len(self.validation_sampler))
        counts_2 = torch.zeros(2, dtype=torch.float64)
        self.model.eval()
        for number, inputs in enumerate(self._loader(self.eval_dataset, stream)):
            inputs = dict(self._prepare_inputs(inputs))
            take_extras(inputs)
            with self.compute_loss_context_manager():  # ranks that share weights wait for batches that fill up as well
                losses_N = self.model(**inputs).token_losses
            if number < self.validation_sampler.num_own:
                counts_2 += torch.tensor([float(losses_N.sum()), len(losses_N)])
        total, count = self._sum_over_ranks(counts_2.float()).tolist()
        found = {"eval_loss": total / max(1.0, count)}
        self.log(found)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, found)
        return found

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        """The model's loss over the global target tokens, and where it distils, the divergence from its reading."""
        inputs = dict(inputs)
        extras = take_extras(inputs)
        teach = TEACHER in extras
        taught_by = teacher_logits(model, extras[TEACHER]) if teach else None
        outputs = model(**inputs, num_items_in_batch=num_items_in_batch, target_logits=teach)
        loss = outputs.loss
        if taught_by is not None:
            divided = divergence(
                outputs.logits, taught_by, extras[TAUGHT], temperature=self.config.distill_temperature
            ) / num_targets(num_items_in_batch, outputs.token_losses)
            loss = loss + self.config.distill * divided
            if model.training:
                self.tally.add_extra(float(divided.detach()))
        if model.training:
            self.tally.add_losses(outputs.token_losses, extras[TASKS])
        if num_items_in_batch is not None:
            loss = loss * self.accelerator.num_processes  # ranks average gradients; the divisor is global already
        outputs.logits = None
        return (loss, outputs) if return_outputs else loss

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Add what was counted, summed over ranks, to a line of training loss; write and show the line."""
        step = self.state.global_step
        logs["epoch"] = round(step * self.args.gradient_accumulation_steps / len(self.sampler), 4)
        if "loss" in logs:
            steps, self._last_logged = step - max(self._last_logged, self.start_step), step
            extra = "distillation" if self.config.distill else None
            logs.update(self.tally.drain(self._sum_over_ranks, self.args.world_size, steps, extra=extra))
        super().log(logs, start_time)
        if self.is_world_process_zero():
            self.run_log.write({"step": step, **logs})

    def _sum_over_ranks(self, counts: Tensor) -> Tensor:
        if self.args.world_size == 1:
            return counts
        return self.accelerator.reduce(counts.to(self.args.device), "sum").cpu()
