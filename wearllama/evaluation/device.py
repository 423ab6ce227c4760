"""Where a process of an evaluation puts its model."""

import os

import torch


def default_device() -> str:
    """This rank's own GPU, or the CPU."""
    return f"cuda:{os.environ.get('LOCAL_RANK', 0)}" if torch.cuda.is_available() else "cpu"
