"""What a frame of a streaming encoder may attend to: its own chunk and a limited past.

A context ``[left, ahead]`` cuts time into chunks of ``ahead + 1`` encoder frames (80 ms).  Every frame of a chunk sees
the whole chunk and ``left`` frames before it, so that a chunk can be encoded as soon as it is complete, from the keys
and values of ``left`` frames.  One model learns several contexts, one drawn for each batch (Noroozi et al. 2024,
Stateful Conformer with Cache-based Inference): the look-ahead is then chosen when the model is used.

Shape suffixes: B batch, Q query frames, L key frames.
"""

from collections.abc import Sequence

import torch
from torch import Tensor


def check_contexts(contexts: Sequence[Sequence[int]], *, causal: bool) -> None:
    """ValueError where a context is no pair of counts, a look-ahead comes twice, or convolutions would look ahead."""
    for pair in contexts:
        if len(pair) != 2 or not all(isinstance(count, int) and count >= 0 for count in pair):
            raise ValueError(f"encoder.contexts holds {pair}, wanted [left, ahead] in frames of 80 ms, 0 or more each")
    ahead = [pair[1] for pair in contexts]
    if len(set(ahead)) != len(ahead):
        raise ValueError(f"encoder.contexts has look-aheads {ahead}, wanted each once: they name the context")
    if contexts and not causal:
        raise ValueError("encoder.contexts limits what attention sees; it needs encoder.causal=true as well, because "
                         "centred convolutions see past the end of a chunk")  # fmt: skip


def find_context(contexts: Sequence[Sequence[int]], look_ahead: int | None) -> tuple[int, int] | None:
    """The context of a look-ahead (None: the first), or None for an encoder that attends to whole clips."""
    if not contexts:
        if look_ahead is not None:
            raise ValueError(f"look_ahead is {look_ahead}, but this encoder attends to whole clips: it has no contexts")
        return None
    for left, ahead in contexts:
        if look_ahead in (None, ahead):
            return left, ahead
    raise ValueError(f"look_ahead is {look_ahead}, wanted one that was trained: {[ahead for _, ahead in contexts]}")


def draw_look_ahead(contexts: Sequence[Sequence[int]]) -> int | None:
    """One of the look-aheads by torch's global generator; None where there are none, and then nothing is drawn."""
    if not contexts:
        return None
    return int(contexts[int(torch.randint(len(contexts), ()))][1])


def context_mask(queries_Q: Tensor, keys_L: Tensor, context: tuple[int, int]) -> Tensor:
    """Boolean (Q, L): which key frames a query frame sees, by their places in the clip."""
    left, ahead = context
    start_Q1 = (queries_Q - queries_Q % (ahead + 1))[:, None]
    return (keys_L >= start_Q1 - left) & (keys_L <= start_Q1 + ahead)


def attention_mask(valid_BL: Tensor, context: tuple[int, int] | None) -> Tensor:
    """Boolean mask for attention over padded clips: (B, 1, 1, L) without a context, (B, 1, L, L) with one."""
    if context is None:
        return valid_BL[:, None, None, :]
    places_L = torch.arange(valid_BL.shape[1], device=valid_BL.device)
    mask_BLL = context_mask(places_L, places_L, context) & valid_BL[:, None, :]
    # A padded frame far behind its clip would see nothing at all, and attention would give NaN.
    return (mask_BLL | torch.eye(len(places_L), dtype=torch.bool, device=valid_BL.device))[:, None]
