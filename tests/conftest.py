"""Shared test settings: one thread a process, so that tests run side by side without fighting for cores."""

import os

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported; subprocesses inherit it
os.environ.setdefault("WANDB_MODE", "offline")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch

torch.set_num_threads(1)
