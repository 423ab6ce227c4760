"""GRPO on counterfactual pairs: what a trained WearLlama says of both sides of a pair is compared in one group.

Run as: python recipes/grpo.py experiment=demo_grpo ckpt=runs/demo/sft run_dir=runs/demo/grpo
        torchrun --nproc_per_node=2 recipes/grpo.py experiment=demo_grpo ckpt=runs/demo/sft
        python recipes/grpo.py experiment=demo_grpo grpo=unpaired grpo.num_generations=16

Groups are explicit: rows that share metadata.group are the sides of one pair. A run that was stopped goes on when it
is started again with the same run_dir and number of ranks; the trained model is run_dir/final.
"""

import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from sft import claim, is_trained  # beside this script
from transformers import set_seed
from transformers.utils import logging as transformers_logging

from wearllama.data.augment import Augmentation
from wearllama.modeling.encoder_io import weight_files
from wearllama.modeling.factory import load_checkpoint
from wearllama.modeling.modeling_wearllama import WearLlamaForConditionalGeneration
from wearllama.modeling.processing import WearLlamaProcessor
from wearllama.training.checkpoint import FINAL, weights_file
from wearllama.training.config import TrainConfig, use_bf16
from wearllama.training.data import SftData, load_sets
from wearllama.training.grpo import check_settings, run_grpo
from wearllama.training.grpo_config import GrpoConfig
from wearllama.training.grpo_data import GroupStream, make_groups
from wearllama.training.grpo_explore import Explorer
from wearllama.training.policy import Policy
from wearllama.training.provenance import Origin
from wearllama.training.rewards import Judge, RewardConfig
from wearllama.training.rollout import LocalEngine, RolloutEngine
from wearllama.training.rollout_openai import OpenAIEngine
from wearllama_launch import existing_path, launch, rank, world_size


@dataclass(kw_only=True)
class GrpoCommand:
    """The whole of conf/grpo.yaml."""

    ckpt: str
    """WearLlama checkpoint (or run folder) that the policy starts from."""
    data: SftData
    grpo: GrpoConfig = field(default_factory=GrpoConfig)
    rewards: RewardConfig = field(default_factory=RewardConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    lora: dict[str, Any] | None = None
    """A fresh LoRA in the decoder (the checkpoint's own is folded in first); None trains what the checkpoint trains."""
    freeze: dict[str, bool] | None = None
    """Other frozen parts than the checkpoint's: beginning of parameter names -> frozen."""
    attn_implementation: str = "sdpa"
    """Of the decoder."""
    run_dir: str | None = None
    changed: Literal["refuse", "restart"] = "refuse"
    """What to do when run_dir holds a run of other settings or data: refuse it, or set it aside and begin anew."""

    def __post_init__(self) -> None:
        check_settings(self.train, self.grpo)
        if self.data.tolerance:
            raise ValueError(f"data.tolerance is {self.data.tolerance}, wanted 0: both sides of a pair must be heard")
        if self.grpo.rollout.engine == "openai" and self.data.augment != Augmentation():
            raise ValueError(
                f"data.augment is {self.data.augment} with grpo.rollout.engine=openai: wanted none, since a server "
                "hears the clip itself and would sample from other conditions than are trained"
            )


@launch("grpo", GrpoCommand)
def main(config: GrpoCommand) -> None:
    run_dir = Path(config.run_dir)
    folder = weights_file(existing_path(config.ckpt, "ckpt")).parent
    existing_path(config.data.manifest, "data.manifest")
    made_from = origin(config, folder)
    if is_trained(run_dir, made_from, config.changed):
        print(f"{run_dir / FINAL} is trained already with these settings and data")
        return
    if rank() == 0:
        claim(run_dir, made_from)

    transformers_logging.disable_progress_bar()
    set_seed(config.train.seed)
    on_cpu = config.train.use_cpu or not torch.cuda.is_available()
    device = "cpu" if on_cpu else f"cuda:{rank() % torch.cuda.device_count()}"
    model, processor = load_checkpoint(folder, device=device)
    prepare_model(model, config)
    dataset = load_sets(config.data, processor, seed=config.train.seed).train
    groups = make_groups(dataset.examples, config.grpo.pairing)
    stream = GroupStream(groups, config.grpo.weights, seed=config.grpo.seed, rank=rank(), world_size=world_size())
    autocast = torch.bfloat16 if use_bf16(config.train.bf16, on_cpu=on_cpu) else None
    explorer = Explorer(
        dataset=dataset,
        stream=stream,
        engine=make_engine(config, model, processor, run_dir, autocast),
        judge=Judge(config.grpo.reward_weights, config.rewards),
        processor=processor,
        config=config.grpo,
    )
    describe(model, groups, config)
    result = run_grpo(
        policy=Policy(model, temperature=config.grpo.temperature, share_prefix=config.grpo.share_prefix),
        processor=processor,
        explorer=explorer,
        config=config.grpo,
        train=config.train,
        run_dir=run_dir,
        facts={"fingerprint": made_from.fingerprint},
    )
    if result.stopped_by is not None:
        print(f"stopped after step {result.steps}; the same command with run_dir={run_dir} goes on from there")
        sys.exit(128 + result.stopped_by)
    print(f"trained model: {result.model_dir}")


def prepare_model(model: WearLlamaForConditionalGeneration, config: GrpoCommand) -> None:
    """Fresh LoRA, frozen parts, attention: what the settings change of the checkpoint's model."""
    model.decoder.set_attn_implementation(config.attn_implementation)
    if config.lora is not None:
        if model.config.lora is not None:
            model.merge_lora()
        model.add_lora(config.lora)
    if config.freeze is not None:
        model.config.freeze = dict(config.freeze)
    model.apply_freeze()


def make_engine(
    config: GrpoCommand,
    model: WearLlamaForConditionalGeneration,
    processor: WearLlamaProcessor,
    run_dir: Path,
    autocast: torch.dtype | None,
) -> RolloutEngine:
    """What samples: this process, or a server."""
    rollout, grpo = config.grpo.rollout, config.grpo
    if rollout.engine == "openai":
        return OpenAIEngine(model, processor, rollout, sync_dir=Path(rollout.sync_dir or run_dir / "sync"),
                            temperature=grpo.temperature, max_completion_length=grpo.max_completion_length)  # fmt: skip
    return LocalEngine(
        model, processor, temperature=grpo.temperature, max_completion_length=grpo.max_completion_length,
        max_rows=rollout.max_rows, autocast=autocast,
    )  # fmt: skip


def origin(config: GrpoCommand, folder: Path) -> Origin:
    """What decides the weights: settings, rows, simulation and the checkpoint; not the folder or the log."""
    settings = asdict(config)
    for name in ("run_dir", "changed", "ckpt"):
        settings.pop(name)
    for name in ("workers", "prefetch", "threads", "report_to", "log_every", "save_every", "keep_checkpoints"):
        settings["train"].pop(name)
    if not config.data.other_banks:  # runs from before there was a choice keep their fingerprint
        settings["data"].pop("other_banks")
    files = [config.data.manifest, *map(str, weight_files(weights_file(folder)))]
    files += [str(existing_path(bank, "data.bank") / "meta.json") for bank in config.data.banks]
    return Origin(settings, files)


def describe(model: torch.nn.Module, groups: list[Any], config: GrpoCommand) -> None:
    """What is about to be trained."""
    if rank() != 0:
        return
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    pairs = sum(len(group.rows) > 1 for group in groups)
    print(f"trained: {trained / 1e6:.2f} M parameters; {len(groups)} groups, {pairs} of them pairs; K = "
          f"{config.grpo.num_generations} a side; loss {config.grpo.loss_type}; rewards "
          f"{config.grpo.reward_weights}; rollouts: {config.grpo.rollout.engine}")  # fmt: skip


if __name__ == "__main__":
    main()
