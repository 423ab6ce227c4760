"""Learning rates by part of the model."""

import re
from collections.abc import Mapping

import torch
from torch import nn


def set_rates(optimizer: torch.optim.Optimizer, model: nn.Module, rates: Mapping[str, float]) -> None:
    """Give parameters that an expression of ``rates`` matches groups of their own, at so much of the rate.

    Raises:
        ValueError: an expression matches no trained parameter.
    """
    factors, unused = {}, set(rates)
    for name, parameter in model.named_parameters():
        matching = [pattern for pattern in rates if parameter.requires_grad and re.match(pattern, name)]
        unused -= set(matching)
        factors[parameter] = rates[matching[-1]] if matching else 1.0
    if unused:
        raise ValueError(f"train.rates: no trained parameter starts with {sorted(unused)}")
    groups = []
    for group in optimizer.param_groups:
        for factor in sorted({factors[parameter] for parameter in group["params"]}, reverse=True):
            chosen = [parameter for parameter in group["params"] if factors[parameter] == factor]
            groups.append({**group, "params": chosen, "lr": group["lr"] * factor})
    optimizer.param_groups[:] = groups
