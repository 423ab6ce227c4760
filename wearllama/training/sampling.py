"""K completions of each condition, whose sound is encoded and whose prompt is read once.

Completions of a condition are branches of one row: a step passes all their tokens through the decoder together, each
seeing the prompt and its own tokens only, so that the prompt's keys and values are neither copied nor read K times.

Shape suffixes: as in ``policy.py``; R completions that are running, Q tokens of a row in one step, X columns of the
cache behind the prompt.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional
from transformers.cache_utils import DynamicLayer

from wearllama.modeling.kv_cache import make_room
from wearllama.modeling.modeling_wearllama import WearLlamaForConditionalGeneration
from wearllama.training.policy import Prefix, Prompts, extend, read_prompts

COMPACT_AT = 0.8
"""Rows whose completions have all ended leave the batch once at most this share of the rows is still running."""
BRANCHING = ("eager", "sdpa")
"""Attention that takes a mask of any shape; with others every completion is a row of its own."""


@dataclass
class Rollouts:
    """N completions of P conditions."""

    tokens_NT: Tensor
    """Padded on the right; the end token is part of a completion."""
    mask_NT: Tensor
    logps_NT: Tensor
    """Of the engine that sampled, at its temperature; NaN where it did not tell."""
    prompt_N: Tensor
    """Condition of each completion."""
    ended_N: Tensor
    """False where ``max_completion_length`` cut it."""

    @property
    def ids(self) -> list[list[int]]:
        """Tokens of each completion, without padding."""
        return [row[kept].tolist() for row, kept in zip(self.tokens_NT, self.mask_NT, strict=True)]

    def select(self, rows: Tensor, conditions: Tensor) -> "Rollouts":
        """These completions, their conditions renumbered as places in ``conditions``."""
        places = torch.full((int(conditions.max()) + 1,), -1)
        places[conditions] = torch.arange(len(conditions))
        longest = max(1, int(self.mask_NT[rows].sum(1).max()))
        tokens_NT, mask_NT, logps_NT = (part[rows, :longest] for part in (self.tokens_NT, self.mask_NT, self.logps_NT))
        return Rollouts(tokens_NT, mask_NT, logps_NT, places[self.prompt_N[rows]], self.ended_N[rows])


def join_rollouts(parts: Sequence[Rollouts], *, pad: int) -> Rollouts:
    """Rollouts of different lengths as one; conditions are already numbered through."""
    longest = max(part.tokens_NT.shape[1] for part in parts)

    def joined(name: str, value: float) -> Tensor:
        padded = [
            functional.pad(getattr(part, name), (0, longest - part.tokens_NT.shape[1]), value=value) for part in parts
        ]
        return torch.cat(padded)

    return Rollouts(
        joined("tokens_NT", pad), joined("mask_NT", False), joined("logps_NT", 0.0),
        torch.cat([part.prompt_N for part in parts]), torch.cat([part.ended_N for part in parts]),
    )  # fmt: skip


class Branches:
    """Running completions behind their prompts: which row of the cache each continues, and what it may see there."""

    def __init__(self, model: WearLlamaForConditionalGeneration, prefix: Prefix, count: int, room: int) -> None:
        conditions = len(prefix.mask_PS)
        self.model = model
        rows_N = torch.arange(conditions, device=prefix.mask_PS.device).repeat_interleave(count)
        plain = all(type(layer) is DynamicLayer for layer in prefix.cache.layers)
        self.branching = plain and model.decoder.config._attn_implementation in BRANCHING
        self.hidden_RE = prefix.last_PE[rows_N]
        self.prefix = prefix if self.branching else prefix.expand(rows_N)
        self.row_R = rows_N if self.branching else torch.arange(len(rows_N), device=rows_N.device)
        self.seen_RX = torch.zeros(len(rows_N), 0, dtype=torch.bool, device=rows_N.device)
        make_room(self.prefix.cache, room * (count if self.branching else 1))
        self.length = 0

    def drop_ended(self, running_R: Tensor) -> None:
        """Go on with these completions only."""
        self.row_R, self.seen_RX = self.row_R[running_R], self.seen_RX[running_R]
        kept = self.row_R.unique()
        if len(kept) <= COMPACT_AT * len(self.prefix.mask_PS):
            self.prefix = self.prefix.expand(kept)
            self.row_R = torch.searchsorted(kept, self.row_R)

    def advance(self, token_R: Tensor) -> None:
        """One token more for each: ``hidden_RE`` is what predicts the next."""
        rows, running = len(self.prefix.mask_PS), torch.arange(len(token_R), device=token_R.device)
        count_P = torch.bincount(self.row_R, minlength=rows)
        place_R = running - (count_P.cumsum(0) - count_P)[self.row_R]
        width = int(count_P.max())
        tokens_PQ = token_R.new_zeros(rows, width)
        tokens_PQ[self.row_R, place_R] = token_R
        own_RQ = torch.zeros(len(token_R), width, dtype=torch.bool, device=token_R.device)
        own_RQ[running, place_R] = True
        self.seen_RX = torch.cat((self.seen_RX, own_RQ), dim=1)
        steps_PQ = (self.prefix.length_P + self.length)[:, None].expand(rows, width)
        hidden_PQE = extend(self.model, self.prefix, tokens_PQ, self._mask(place_R, width), steps_PQ)
        self.hidden_RE = hidden_PQE[self.row_R, place_R]
        self.length += 1

    def _mask(self, place_R: Tensor, width: int) -> Tensor:
        """(P, 1, Q, S + X), added to the scores; (P, S + X) of what counts where every completion has its own row."""
        prompt_PS = self.prefix.mask_PS.bool()
        see_PQX = prompt_PS.new_zeros(len(prompt_PS), width, self.seen_RX.shape[1])
        see_PQX[self.row_R, place_R] = self.seen_RX
        see_PQX = torch.cat((prompt_PS[:, None].expand(-1, width, -1), see_PQX), dim=2)
        if not self.branching:
            return see_PQX[:, 0].to(self.prefix.mask_PS)
        added_PQX = torch.zeros(see_PQX.shape, dtype=self.hidden_RE.dtype, device=see_PQX.device)
        return added_PQX.masked_fill_(~see_PQX, torch.finfo(added_PQX.dtype).min)[:, None]


@torch.no_grad()
def sample_completions(
    model: WearLlamaForConditionalGeneration,
    prompts: Prompts,
    count: int,
    *,
    temperature: float,
    max_completion_length: int,
    eos: int,
    pad: int,
    generator: torch.Generator | None = None,
) -> Rollouts:
    """``count`` completions of each of P conditions, sampled from the whole distribution at ``temperature``.

    Completions that have ended are left out of later steps: a mute costs two steps, whatever its neighbours say.
    """
    device = prompts["input_ids"].device
    prompt_N = torch.arange(len(prompts["input_ids"]), device=device).repeat_interleave(count)
    total = len(prompt_N)
    tokens_NT = torch.full((total, max_completion_length), pad, device=device)
    mask_NT = torch.zeros_like(tokens_NT, dtype=torch.bool)
    logps_NT = torch.zeros(tokens_NT.shape, device=device)
    branches = Branches(model, read_prompts(model, prompts), count, max_completion_length)
    running = torch.arange(total, device=device)
    for step in range(max_completion_length):
        logps_RV = (model.logits(branches.hidden_RE).float() / temperature).log_softmax(-1)
        token_R = draw(logps_RV, generator)
        tokens_NT[running, step] = token_R
        logps_NT[running, step] = logps_RV.gather(1, token_R[:, None])[:, 0]
        mask_NT[running, step] = True
        going_R = token_R != eos
        if step + 1 == max_completion_length or not going_R.any():
            break
        running, token_R = running[going_R], token_R[going_R]
        branches.drop_ended(going_R)
        branches.advance(token_R)
    longest = int(mask_NT.sum(1).max())
    last_N = tokens_NT.gather(1, mask_NT.sum(1, keepdim=True) - 1)[:, 0]
    return Rollouts(
        tokens_NT[:, :longest].cpu(), mask_NT[:, :longest].cpu(), logps_NT[:, :longest].cpu(), prompt_N.cpu(),
        (last_N == eos).cpu(),
    )  # fmt: skip


def draw(logps_RV: Tensor, generator: torch.Generator | None) -> Tensor:
    """A token of each row: where a uniform number falls in the cumulative distribution (one draw a row, not V)."""
    below_RV = logps_RV.double().exp().cumsum(-1)
    level_R1 = torch.rand(len(below_RV), 1, dtype=torch.float64, device=below_RV.device, generator=generator)
    found_R = torch.searchsorted(below_RV, level_R1 * below_RV[:, -1:], right=True)[:, 0]
    return found_R.clamp_max(below_RV.shape[1] - 1)
