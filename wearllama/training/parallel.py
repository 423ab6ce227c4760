"""How ranks share a model, by one word: ``train.parallel`` into what transformers' Trainer hands to accelerate.

ddp: every rank holds all weights. fsdp2: weights, gradients and optimiser are cut over ranks, gathered block by block
(``fully_shard`` of torch). zero2, zero3: DeepSpeed's cut of gradients and optimiser, or of everything.
"""

import dataclasses
import os
from typing import TYPE_CHECKING, Any

from transformers import TrainingArguments

from wearllama.paths import CONF_DIR
from wearllama.training.deepspeed_cpu import require_deepspeed, stay_on_cpu

if TYPE_CHECKING:
    from wearllama.training.config import TrainConfig

ZERO_JSON = CONF_DIR / "train"
WRAPPED = ["ConformerBlock", "LlamaDecoderLayer"]
"""Blocks that FSDP gathers one at a time; a decoder of another family adds its own (``_no_split_modules``)."""


def parallel_arguments(config: "TrainConfig", *, on_cpu: bool) -> dict[str, Any]:
    """Keyword arguments of ``TrainingArguments`` for `config`; DeepSpeed is told to stay on the CPU where it must.

    Raises:
        ValueError: the choice needs several processes, torchrun or a package, and there is none.
    """
    if config.parallel == "ddp":
        return _activation_checkpointing(config)
    if "RANK" not in os.environ:
        raise ValueError(
            f"train.parallel={config.parallel} needs torchrun, also for one process: "
            "torchrun --nproc_per_node=1 recipes/sft.py"
        )
    if config.parallel == "fsdp2":
        return {"fsdp": True, "fsdp_config": _fsdp(config)}
    require_deepspeed()
    if on_cpu:
        stay_on_cpu()
    settings = config.deepspeed or str(ZERO_JSON / f"{config.parallel}.json")
    return {"deepspeed": settings, **_activation_checkpointing(config)}


def _fsdp(config: "TrainConfig") -> dict[str, Any]:
    return {
        "version": 2,
        "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        "transformer_layer_cls_to_wrap": list(WRAPPED),
        "reshard_after_forward": True,
        "state_dict_type": "FULL_STATE_DICT",
        "activation_checkpointing": config.activation_checkpointing,
    }


def _activation_checkpointing(config: "TrainConfig") -> dict[str, Any]:
    """transformers 5.24 renamed gradient checkpointing; both names are served."""
    known = {item.name for item in dataclasses.fields(TrainingArguments)}
    name = "activation_checkpointing" if "activation_checkpointing" in known else "gradient_checkpointing"
    return {name: config.activation_checkpointing}
