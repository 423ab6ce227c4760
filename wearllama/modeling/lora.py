"""LoRA inside the decoder through peft (Hu et al. 2021): part of the model, so part of every checkpoint."""

from typing import Any

from peft import LoraConfig, inject_adapter_in_model
from peft.tuners.lora import LoraLayer
from torch import nn

FIELDS = ("r", "alpha", "dropout", "target_modules")
DEFAULT_TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj")


def inject_lora(decoder: nn.Module, fields: dict[str, Any]) -> None:
    """Add LoRA to the decoder's linear layers and freeze everything else in it.

    Args:
        decoder: causal LM, changed in place.
        fields: ``r``, ``alpha`` (2 r), ``dropout`` (0), ``target_modules`` (the attention projections).
    """
    unknown = sorted(set(fields) - set(FIELDS))
    if unknown:
        raise ValueError(f"lora has unknown field {unknown}, wanted some of {list(FIELDS)}")
    rank = int(fields.get("r", 32))
    if rank < 1:
        raise ValueError(f"lora.r must be at least 1, found {rank}")
    targets = fields.get("target_modules") or DEFAULT_TARGETS
    config = LoraConfig(
        r=rank,
        lora_alpha=fields.get("alpha", 2 * rank),
        lora_dropout=fields.get("dropout", 0.0),
        target_modules=targets if isinstance(targets, str) else list(targets),
        bias="none",
    )
    inject_adapter_in_model(config, decoder)
    # peft notes the adapter here, and transformers would then save it alone; the whole model is saved instead.
    if hasattr(decoder, "peft_config"):
        del decoder.peft_config


def is_lora(name: str) -> bool:
    """Whether a parameter's name is one of the adapter's."""
    return ".lora_" in name


def merge_lora(decoder: nn.Module) -> None:
    """Fold every LoRA layer into its base layer, in place."""
    for name, module in list(decoder.named_modules()):
        if isinstance(module, LoraLayer):
            module.merge()
            parent = decoder.get_submodule(name.rpartition(".")[0])
            setattr(parent, name.rpartition(".")[2], module.get_base_layer())
