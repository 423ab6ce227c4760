"""How ranks share a model, by one word: ``train.parallel`` into what transformers' Trainer hands to accelerate.

ddp: every rank holds all weights. fsdp2: weights, gradients and optimiser are cut over ranks, gathered block by block
(``fully_shard`` of torch). zero2, zero3: DeepSpeed's cut of gradients and optimiser, or of everything.
"""

import dataclasses
import os
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
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


def ranks_with_other_weights(module: nn.Module) -> list[int]:
    """Ranks whose weights are not bit for bit those of rank 0 (all take part; whole copies, as under DDP)."""
    if not (dist.is_available() and dist.is_initialized()):
        return []
    mine_2 = _weights_sums(module)
    found = [torch.zeros_like(mine_2) for _ in range(dist.get_world_size())]
    dist.all_gather(found, mine_2)
    return [rank for rank, sums_2 in enumerate(found) if not torch.equal(sums_2, found[0])]


def _weights_sums(module: nn.Module) -> Tensor:
    """Two sums over the bits of all weights, plain and by place, so that exchanged weights show as well."""
    sums_2 = torch.zeros(2, dtype=torch.int64, device=next(module.parameters()).device)
    for number, parameter in enumerate(module.parameters(), start=1):
        bits_N = parameter.detach().float().flatten().view(torch.int32).long()
        places_N = torch.arange(1, len(bits_N) + 1, device=bits_N.device)
        sums_2 += torch.stack((bits_N.sum(), (bits_N * places_N).sum() * number))
    return sums_2
