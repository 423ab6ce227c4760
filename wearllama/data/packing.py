"""Rows of a batch behind each other in one: no padding, and a document mask keeps them apart.

The mask follows from ``position_ids`` that begin anew at 0: without an ``attention_mask``, transformers' decoders read
documents off them, in every attention implementation.

Shapes: B rows, S padded positions, P = sum of the rows' lengths.
"""

from typing import Any

import torch

IGNORE = -100


def pack(batch: dict[str, Any]) -> dict[str, Any]:
    """A right-padded batch as one row: ``input_ids``, ``labels`` and ``position_ids`` (1, P), clips as they are.

    Rows that are padded on the left cannot be packed; that is the caller's bug.
    """
    mask_BS = batch["attention_mask"].bool()
    assert bool((mask_BS[:, 1:] <= mask_BS[:, :-1]).all()) and bool(mask_BS[:, 0].all()), "wanted right-padded rows"
    assert bool((batch["labels"][:, 0] == IGNORE).all()), "a row's first position would be learnt from the row before"
    positions_BS = torch.arange(mask_BS.shape[1]).expand_as(mask_BS)
    packed = {name: value for name, value in batch.items() if name != "attention_mask"}
    for name in ("input_ids", "labels"):
        packed[name] = batch[name][mask_BS][None]
    packed["position_ids"] = positions_BS[mask_BS][None]
    return packed


def document_lengths(position_ids_1P: torch.Tensor) -> torch.Tensor:
    """Lengths (B,) of the rows of a packed batch."""
    starts_B = (position_ids_1P[0] == 0).nonzero().flatten()
    ends_B = torch.cat((starts_B[1:], starts_B.new_tensor([position_ids_1P.shape[1]])))
    return ends_B - starts_B
