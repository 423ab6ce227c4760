"""GRPO on counterfactual pairs: ``transformers.Trainer`` whose step explores, then takes one gradient step.

TRL's trainer forms groups by position and carries images, not sound; this one has its vocabulary and its formulas
(``grpo_loss``), explicit groups, and reads each condition once.  Shapes: see ``policy.py``.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.data import DataLoader
from transformers import Trainer

from wearllama.atomic import write_json
from wearllama.modeling.processing import WearLlamaProcessor
from wearllama.training.callbacks import GracefulStop, MarkCheckpoints, OwnIntervals
from wearllama.training.checkpoint import FINAL, load_initial_weights
from wearllama.training.config import TrainConfig, training_arguments
from wearllama.training.grpo_config import GrpoConfig
from wearllama.training.grpo_explore import Batch, Explorer, Tally
from wearllama.training.grpo_loss import LossParts, denominator, policy_loss
from wearllama.training.grpo_reference import ReferencePolicy
from wearllama.training.parallel import ranks_with_other_weights
from wearllama.training.policy import Policy
from wearllama.training.rollout import encode_items
from wearllama.training.sft import SftResult, prepare_wandb, resume_point, save_final
from wearllama.training.trainer import require_finite
from wearllama.unread import refuse_unread


class GrpoTrainer(Trainer):
    """One step: rollouts of groups until enough are live, then the policy gradient of exactly those."""

    def __init__(self, *, policy: Policy, explorer: Explorer, config: GrpoConfig, **kwargs: Any) -> None:
        super().__init__(model=policy, train_dataset=range(kwargs["args"].max_steps), **kwargs)
        self.policy, self.explorer, self.config = policy, explorer, config
        self.reference = ReferencePolicy(policy, config.reference) if config.beta else None
        self.settings = config.loss_settings()
        self.start_step = 0
        """Step that this launch begins after."""
        self._batch: Batch | None = None
        self._fresh = False

    # ---- data -----------------------------------------------------------------------------------------------------

    def get_train_dataloader(self) -> DataLoader:
        """Numbers of steps: what a step explores is decided while it runs (:class:`Explorer`)."""
        steps: Any = self.train_dataset
        return DataLoader(steps, batch_size=1, sampler=range(self.start_step, len(steps)), collate_fn=_as_step)

    # ---- one step -------------------------------------------------------------------------------------------------

    def training_step(
        self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: Tensor | int | None = None
    ) -> Tensor:
        """Explore (or reuse the last exploration) and accumulate the gradient; returns this rank's share of the loss.

        The step's number alone says which, so that all ranks do the same, and a resumed run what it would have done.
        Where no rank has a live group there is no forward pass, no gradient, and the optimizer leaves all as it is.
        """
        model.train()
        step = int(inputs["step"])
        self._fresh = step % self.config.num_iterations == 0 or step == self.start_step
        if self._fresh:
            self.explorer.engine.sync(self.state.global_step)
            self._batch = self.explorer.explore(step)
            if self._batch is not None and self.config.num_iterations > 1:
                self._batch.old_logps_NT = self._score(self._batch)
        batch = self._batch
        counts = torch.tensor([0.0, 0.0] if batch is None else [len(batch.advantages_N), self._mask(batch).sum()])
        completions, tokens = self._sum_over_ranks(counts).tolist()
        if not completions:
            return torch.zeros((), device=self.args.device)
        divisor = denominator(self.settings, completions, tokens) / self.args.world_size
        parts = batch.split(self.config.micro_completions) if batch is not None else []
        loss = torch.zeros((), device=self.args.device)
        for last, part in _with_last(parts):
            with nullcontext() if last else self.accelerator.no_sync(model):
                share = self._loss(model, part).total / divisor
                self.accelerator.backward(share)
            loss += share.detach()
        if not parts:
            self._join_the_others(model)
        require_finite(loss, self)
        return loss

    def _loss(self, model: nn.Module, part: Batch) -> LossParts:
        inputs = self._inputs(part)
        mask_NT = self._mask(part).to(self.args.device)
        logps_NT = model(*inputs)
        ref_NT = None
        if self.reference is not None:
            with self.accelerator.autocast():
                ref_NT = self.reference.logps(*inputs)
        old_NT = part.old_logps_NT
        loss = policy_loss(
            logps_NT,
            mask_NT,
            part.advantages_N.to(self.args.device),
            self.settings,
            old_logps_NT=None if old_NT is None else old_NT.to(self.args.device),
            ref_logps_NT=ref_NT,
        )
        self._note(part, logps_NT.detach(), mask_NT, loss)
        return loss

    def _inputs(self, part: Batch) -> tuple[dict[str, Tensor], Tensor, Tensor, Tensor]:
        device = self.args.device
        prompts = dict(encode_items(self.explorer.processor, part.items, device))
        rollouts = part.rollouts
        return prompts, rollouts.tokens_NT.to(device), rollouts.mask_NT.to(device), rollouts.prompt_N.to(device)

    def _mask(self, part: Batch) -> Tensor:
        """Tokens that give gradient (N, T)."""
        mask_NT = part.rollouts.mask_NT
        return mask_NT & part.rollouts.ended_N[:, None] if self.config.mask_truncated_completions else mask_NT

    @torch.no_grad()
    def _score(self, batch: Batch) -> Tensor:
        """Log-probabilities (N, T) under the policy before its first update from these completions."""
        with self.accelerator.autocast():
            parts = [self.policy(*self._inputs(part)).cpu() for part in batch.split(self.config.micro_completions)]
        longest = batch.rollouts.tokens_NT.shape[1]
        return torch.cat([nn.functional.pad(part, (0, longest - part.shape[1])) for part in parts])

    def _join_the_others(self, model: nn.Module) -> None:
        """A backward pass of zeros: other ranks have live groups and wait for this one's gradients."""
        draw = self.explorer.stream.groups[0].rows[0]
        item = self.explorer.dataset[draw]
        prompts = dict(encode_items(self.explorer.processor, [item], self.args.device))
        one = torch.ones(1, 1, dtype=torch.long, device=self.args.device)
        self.accelerator.backward(0.0 * model(prompts, one, one, torch.zeros_like(one[0])).sum())

    # ---- figures --------------------------------------------------------------------------------------------------

    def _note(self, part: Batch, logps_NT: Tensor, mask_NT: Tensor, loss: LossParts) -> None:
        tally, tokens = self.explorer.tally, max(1.0, float(mask_NT.sum()))
        gap_NT = (part.rollouts.logps_NT.to(logps_NT.device) - logps_NT).abs()
        known = mask_NT.bool() & torch.isfinite(gap_NT)
        if self._fresh and bool(known.any()):
            tally.add("rollout_gap/mean", float(gap_NT[known].sum()), int(known.sum()))
            tally.add("rollout_gap/max", float(gap_NT[known].max()))
        tally.add("kl", float(loss.kl_sum), tokens)
        tally.add("clip_ratio", float(loss.clipped), tokens)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Add the means since the last log, over all ranks."""
        if "loss" in logs:
            tallies: list[Any] = [self.explorer.tally]
            if self.args.world_size > 1:
                tallies = [None] * self.args.world_size
                dist.all_gather_object(tallies, self.explorer.tally)
            logs.update(Tally().merge(tallies))
            self.explorer.tally = Tally()
        super().log(logs, start_time)

    def _sum_over_ranks(self, values: Tensor) -> Tensor:
        if self.args.world_size == 1:
            return values
        return self.accelerator.reduce(values.to(self.args.device), "sum").cpu()

    # ---- checkpoints ----------------------------------------------------------------------------------------------

    def _save(self, output_dir: str | None = None, state_dict: dict | None = None) -> None:
        """The model inside the policy, as every other checkpoint of the project."""
        folder = Path(output_dir or str(self.args.output_dir))
        if self.args.should_save:
            self.policy.model.save_pretrained(folder)
            self.explorer.processor.save_pretrained(folder)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None:
        load_initial_weights(self.policy.model, resume_from_checkpoint)

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        super()._save_checkpoint(model, trial)
        folder = Path(str(self.args.output_dir)) / f"checkpoint-{self.state.global_step}"
        write_json(self._place_file(folder), {"position": self.explorer.stream.position})

    def restore_place(self, checkpoint: Path) -> None:
        """Go on where this rank's stream of groups was; ValueError on another number of ranks."""
        file = self._place_file(checkpoint)
        if not file.is_file() or len(list(checkpoint.glob("groups-*.json"))) != self.args.world_size:
            raise ValueError(f"{checkpoint} was written by another number of ranks than {self.args.world_size}")
        self.explorer.stream.position = int(json.loads(file.read_text())["position"])

    def _place_file(self, folder: Path) -> Path:
        return folder / f"groups-{self.args.process_index:05d}.json"


def _as_step(numbers: list[int]) -> dict[str, Tensor]:
    return {"step": torch.tensor(numbers[0])}


def _with_last(parts: Sequence[Batch]) -> Iterator[tuple[bool, Batch]]:
    return ((number == len(parts) - 1, part) for number, part in enumerate(parts))


def without_dropout(model: nn.Module) -> None:
    """Switch dropout off for good: rollouts and training then see one policy."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        elif isinstance(getattr(module, "attention_dropout", None), float):
            setattr(module, "attention_dropout", 0.0)  # noqa: B010  (modules type their attributes as tensors)


UNREAD = ("rates", "packed", "ema", "distill", "distill_temperature", "prefetch", "staging", "log_ids", "eval_every")
"""Settings of ``train`` that only supervised fine-tuning has."""


def check_settings(train: TrainConfig, config: GrpoConfig) -> None:
    """ValueError for settings of training that GRPO would not read, or does not run with."""
    if train.parallel != "ddp" or train.accumulation != 1:
        raise ValueError(
            f"GRPO runs on one process or under DDP: train.parallel is {train.parallel}, wanted ddp; "
            f"train.accumulation is {train.accumulation}, wanted 1 (grpo.micro_completions bounds the memory)"
        )
    if train.workers > 1:
        raise ValueError(f"train.workers is {train.workers}, wanted 0: GRPO renders rows while it draws them")
    refuse_unread(train, UNREAD, "by GRPO", prefix="train.")
    if train.save_every % config.num_iterations:
        raise ValueError(
            f"train.save_every is {train.save_every}, wanted a multiple of grpo.num_iterations = "
            f"{config.num_iterations}: a checkpoint does not keep completions that are still to be used"
        )


def run_grpo(
    *,
    policy: Policy,
    processor: WearLlamaProcessor,
    explorer: Explorer,
    config: GrpoConfig,
    train: TrainConfig,
    run_dir: str | Path,
    facts: Mapping[str, Any] | None = None,
) -> SftResult:
    """Train the policy for ``train.steps`` and save model and processor under ``run_dir/final``; resumes by itself.

    Raises:
        NonFiniteLossError: the loss became NaN or infinite.
        ValueError: a checkpoint of another number of ranks, or settings that GRPO does not run with.
    """
    run_dir = Path(run_dir)
    check_settings(train, config)
    if train.threads:
        torch.set_num_threads(train.threads)
    if train.report_to == "wandb":
        prepare_wandb(run_dir)
    if config.disable_dropout:
        without_dropout(policy)
    policy.model.encoder.draws_look_ahead = False
    stop = GracefulStop(every=config.num_iterations)
    trainer = GrpoTrainer(
        policy=policy,
        explorer=explorer,
        config=config,
        args=training_arguments(train, run_dir),
        processing_class=processor,
        callbacks=[stop, OwnIntervals(), MarkCheckpoints()],
    )
    checkpoint = resume_point(trainer, run_dir)
    if checkpoint is not None:
        trainer.start_step = int(checkpoint.name.rpartition("-")[2])
        trainer.restore_place(checkpoint)
    with stop:
        output = trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    apart = ranks_with_other_weights(policy)
    assert not apart, f"ranks {apart} ended with other weights than rank 0"
    if stop.stopped_by is None:
        save_final(trainer, run_dir / FINAL, {"steps": train.steps, **(facts or {})})
    return SftResult(
        steps=trainer.state.global_step, loss=output.training_loss, stopped_by=stop.stopped_by,
        model_dir=run_dir / FINAL,
    )  # fmt: skip
