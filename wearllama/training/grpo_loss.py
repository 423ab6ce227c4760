"""GRPO's arithmetic, free of models: advantages inside explicit groups, and the loss types.

Shapes: N completions, T completion tokens (right-padded), G groups.  Nothing here depends on the order of the rows.
Sources: GRPO, Shao et al. 2024 (arXiv 2402.03300), eq. 3 and 4; DAPO, Yu et al. 2025 (2503.14476), eq. 8 to 10;
Dr. GRPO, Liu et al. 2025 (2503.20783).  Names and formulas are those of TRL's ``GRPOConfig``.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

LossType = Literal["grpo", "dapo", "dr_grpo", "sum"]
ScaleRewards = Literal["group", "batch", "none"]
STD_FLOOR = 1e-4
"""Added to a standard deviation, as in TRL."""


class Advantages(NamedTuple):
    """What rewards say about each completion."""

    values_N: Tensor
    """Zero in groups that are not live."""
    live_N: Tensor
    """True where the completion's group has rewards that differ."""


def group_advantages(rewards_N: Tensor, groups_N: Tensor, scale: ScaleRewards = "group") -> Advantages:
    """Rewards minus their group's mean, over its standard deviation (``group``), that of all (``batch``), or neither.

    A group is live when its largest reward differs from its smallest: a standard deviation of equal numbers is 1e-8 in
    floating point, not 0.  Under ``batch`` the deviation is that of all completions, dead groups included.
    """
    if rewards_N.shape != groups_N.shape or rewards_N.ndim != 1:
        raise ValueError(f"rewards {tuple(rewards_N.shape)} and groups {tuple(groups_N.shape)}: wanted (N,) alike")
    rewards_N = rewards_N.double()
    _, of_N = groups_N.unique(return_inverse=True)
    count_G = torch.bincount(of_N).to(rewards_N)
    zeros_G = torch.zeros_like(count_G)
    largest_G = zeros_G.scatter_reduce(0, of_N, rewards_N, "amax", include_self=False)
    smallest_G = zeros_G.scatter_reduce(0, of_N, rewards_N, "amin", include_self=False)
    live_N = (largest_G != smallest_G)[of_N]
    mean_G = zeros_G.index_add(0, of_N, rewards_N) / count_G
    centred_N = rewards_N - mean_G[of_N]
    if scale == "group":
        variance_G = zeros_G.index_add(0, of_N, centred_N.square()) / (count_G - 1).clamp_min(1)
        centred_N = centred_N / (variance_G.sqrt()[of_N] + STD_FLOOR)
    elif scale == "batch":
        centred_N = centred_N / (rewards_N.std() + STD_FLOOR)
    return Advantages(torch.where(live_N, centred_N, 0.0).float(), live_N)


@dataclass(frozen=True, kw_only=True)
class LossSettings:
    """The part of the configuration that the loss reads."""

    loss_type: LossType = "sum"
    epsilon: float = 0.2
    epsilon_high: float | None = None
    beta: float = 0.0
    max_completion_length: int = 96
    loss_constant: float = 1.0
    use_bias_correction_kl: bool = True


class LossParts(NamedTuple):
    """Sums over the completions at hand: they add up over batches and ranks before anything is divided."""

    total: Tensor
    """Scalar with gradient; divide by :func:`denominator` of all completions of the step."""
    kl_sum: Tensor
    clipped: Tensor
    """Tokens whose ratio was clipped."""


def policy_loss(
    logps_NT: Tensor,
    mask_NT: Tensor,
    advantages_N: Tensor,
    settings: LossSettings,
    *,
    old_logps_NT: Tensor | None = None,
    ref_logps_NT: Tensor | None = None,
) -> LossParts:
    """The clipped objective with its KL term, summed with the loss type's own weights.

    Args:
        logps_NT: log-probabilities under the policy being trained, with gradient.
        mask_NT: True on completion tokens, their end included.
        advantages_N: one a completion.
        old_logps_NT: of the policy that sampled; None where it is this one (ratio 1, gradient kept).
        ref_logps_NT: of the reference; needed with ``beta``.
    """
    mask = mask_NT.to(logps_NT.dtype)
    old = logps_NT.detach() if old_logps_NT is None else old_logps_NT
    ratio_NT = torch.exp((logps_NT - old) * mask)
    high = settings.epsilon if settings.epsilon_high is None else settings.epsilon_high
    clipped_NT = ratio_NT.clamp(1 - settings.epsilon, 1 + high)
    advantage_N1 = advantages_N[:, None].to(logps_NT.dtype)
    loss_NT = -torch.minimum(ratio_NT * advantage_N1, clipped_NT * advantage_N1)
    kl_NT = torch.zeros_like(loss_NT)
    if settings.beta:
        assert ref_logps_NT is not None, "beta needs the reference's log-probabilities"
        gap_NT = (ref_logps_NT - logps_NT) * mask
        kl_NT = gap_NT.exp() - gap_NT - 1
        if settings.use_bias_correction_kl:
            kl_NT = kl_NT * ratio_NT
        loss_NT = loss_NT + settings.beta * kl_NT
    sums_N = (loss_NT * mask).sum(1)
    if settings.loss_type == "grpo":
        sums_N = sums_N / mask.sum(1).clamp_min(1)
    changed_NT = (ratio_NT * advantage_N1 > clipped_NT * advantage_N1) & mask_NT.bool()
    return LossParts(sums_N.sum(), (kl_NT * mask).sum().detach(), changed_NT.sum())


def denominator(settings: LossSettings, completions: float, tokens: float) -> float:
    """What the summed loss of a whole step is divided by.

    Args:
        completions: live completions of the step, over all ranks: dropped groups do not count.
        tokens: their tokens.

    ``grpo`` is the mean over completions of their mean over tokens; ``dapo`` the mean over tokens; ``dr_grpo`` the sum
    over tokens for each completion, over ``max_completion_length``; ``sum`` the same over ``loss_constant``.
    """
    if settings.loss_type == "dapo":
        return max(tokens, 1.0)
    per_completion = {
        "grpo": 1.0, "dr_grpo": float(settings.max_completion_length), "sum": settings.loss_constant,
    }[settings.loss_type]  # fmt: skip
    return max(completions, 1.0) * per_completion
