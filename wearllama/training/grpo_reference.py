"""The reference policy of the KL term: LoRA switched off, or a frozen copy of the starting weights."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from peft.tuners.lora import LoraLayer
from torch import Tensor, nn

from wearllama.modeling.lora import is_lora
from wearllama.training.grpo_config import Reference
from wearllama.training.policy import Policy, Prompts


class ReferencePolicy:
    """Log-probabilities of the policy as it was when training began.  Build it before a checkpoint is resumed."""

    def __init__(self, policy: Policy, kind: Reference) -> None:
        """ValueError where ``lora_off`` would not give the starting policy back."""
        reason = _why_not_lora_off(policy)
        if kind == "lora_off" and reason:
            raise ValueError(f"grpo.reference=lora_off: {reason}; give lora={{r: 32, alpha: 64}} and freeze the rest, "
                             "or grpo.reference=frozen_copy")  # fmt: skip
        self.policy = policy
        self.kind = "frozen_copy" if kind == "frozen_copy" or reason else "lora_off"
        self._copy = [copy.deepcopy(policy).requires_grad_(False).eval()] if self.kind == "frozen_copy" else []

    @torch.no_grad()
    def logps(self, prompts: Prompts, tokens_NT: Tensor, mask_NT: Tensor, prompt_N: Tensor) -> Tensor:
        """(N, T), as ``Policy.forward`` gives them."""
        if self._copy:
            return self._copy[0](prompts, tokens_NT, mask_NT, prompt_N)
        with lora_off(self.policy):
            return self.policy(prompts, tokens_NT, mask_NT, prompt_N)


@contextmanager
def lora_off(module: nn.Module) -> Iterator[None]:
    """All LoRA layers pass their base layer through; what is trained is the same afterwards."""
    layers = [layer for layer in module.modules() if isinstance(layer, LoraLayer)]
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    for layer in layers:
        layer.enable_adapters(False)
    try:
        yield
    finally:
        for layer in layers:
            layer.enable_adapters(True)
        for parameter in module.parameters():
            parameter.requires_grad_(False)
        for parameter in trained:
            parameter.requires_grad_(True)


def _why_not_lora_off(policy: Policy) -> str:
    """Why LoRA off is not the starting policy; empty where it is."""
    named = dict(policy.named_parameters())
    if not any(is_lora(name) for name in named):
        return "the policy has no LoRA"
    if any(bool(value.any()) for name, value in named.items() if ".lora_B." in name):
        return "its LoRA is trained already, and would be missing from the reference"
    other = [name for name, value in named.items() if value.requires_grad and not is_lora(name)]
    return f"{len(other)} weights outside LoRA are trained, first {other[0]}" if other else ""
