"""Ranks whose weights have drifted apart are named: one bit, and values that only changed places."""

from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from torch import nn

from wearllama.training.parallel import ranks_with_other_weights


def compare(rank: int, folder: str) -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(5, 3), nn.Linear(3, 2)).bfloat16()
    assert ranks_with_other_weights(module) == []
    if rank == 1:
        module[0].weight.data[1, 2] = torch.nextafter(module[0].weight.data[1, 2], torch.tensor(9.0).bfloat16())
    assert ranks_with_other_weights(module) == [1]
    if rank == 1:
        torch.manual_seed(0)
        module = nn.Sequential(nn.Linear(5, 3), nn.Linear(3, 2)).bfloat16()
        module[1].weight.data = module[1].weight.data.flip(1)
    assert ranks_with_other_weights(module) == [1]
    dist.destroy_process_group()


def test_one_bit_and_one_exchange_are_seen(tmp_path: Path) -> None:
    assert ranks_with_other_weights(nn.Linear(2, 2)) == []
    multiprocessing.spawn(compare, args=(str(tmp_path),), nprocs=2)
