"""LoRA inside the decoder through peft (Hu et al. 2021): part of the model, so part of every checkpoint."""

import re
from collections.abc import Sequence
from typing import Any

from torch import nn
from transformers.modeling_utils import PreTrainedModel
from transformers.utils import is_peft_available

if is_peft_available():  # a model without LoRA does not need it
    from peft import LoraConfig, inject_adapter_in_model
    from peft.tuners.lora import LoraLayer

FIELDS = ("r", "alpha", "dropout", "target_modules")
PREFIX = "decoder."
"""What stands before the decoder's names in the model's state dict."""
DEFAULT_TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj")


def inject_lora(decoder: nn.Module, fields: dict[str, Any]) -> None:
    """Add LoRA to the decoder's linear layers and freeze everything else in it.

    Args:
        decoder: causal LM, changed in place.
        fields: ``r``, ``alpha`` (2 r), ``dropout`` (0), ``target_modules`` (the attention projections): a list of last
            parts of names, or a regular expression that fits a layer's whole name, as in the model's state dict
            (``decoder\\.model\\.layers\\.[0-7]\\..*_proj``) or as the decoder alone has it.

    Raises:
        ValueError: an unknown field, a rank below 1, or targets that name no linear layer of the decoder.
        ImportError: peft is not installed.
    """
    if not is_peft_available():
        raise ImportError("lora needs peft: pip install peft")
    unknown = sorted(set(fields) - set(FIELDS))
    if unknown:
        raise ValueError(f"lora has unknown field {unknown}, wanted some of {list(FIELDS)}")
    rank = int(fields.get("r", 32))
    if rank < 1:
        raise ValueError(f"lora.r must be at least 1, found {rank}")
    targets = _target_names(decoder, fields.get("target_modules") or DEFAULT_TARGETS)
    config = LoraConfig(
        r=rank,
        lora_alpha=fields.get("alpha", 2 * rank),
        lora_dropout=fields.get("dropout", 0.0),
        target_modules=targets,
        bias="none",
    )
    inject_adapter_in_model(config, decoder)
    # peft notes the adapter here, and transformers would then save it alone; the whole model is saved instead.
    if hasattr(decoder, "peft_config"):
        del decoder.peft_config


def _target_names(decoder: nn.Module, targets: str | Sequence[str]) -> list[str]:
    """Names within the decoder of the linear layers that ``targets`` means.

    A head that shares its weight with the embeddings is none of them: merged, it would change what the model reads.
    """
    table = decoder.get_input_embeddings().weight if isinstance(decoder, PreTrainedModel) else None
    layers = [(name, module) for name, module in decoder.named_modules() if isinstance(module, nn.Linear)]
    linear = [name for name, module in layers if module.weight is not table]
    if isinstance(targets, str):
        try:
            pattern = re.compile(targets)
        except re.error as error:
            raise ValueError(f"lora.target_modules={targets!r} is no regular expression: {error}") from None
        hit = [name for name in linear if pattern.fullmatch(PREFIX + name) or pattern.fullmatch(name)]
        missing = [] if hit else [targets]
    else:
        fits = {target: [name for name in linear if f".{name}".endswith(f".{target}")] for target in targets}
        hit = [name for name in linear if any(name in names for names in fits.values())]
        missing = [target for target, names in fits.items() if not names]
    if missing:
        raise ValueError(
            f"lora.target_modules: no linear layer of the decoder is named {missing}; "
            f"its layers are {PREFIX}{linear[0]}, ..., {PREFIX}{linear[-1]}"
        )
    return hit


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
