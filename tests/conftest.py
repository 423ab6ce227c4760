"""Shared test settings: one thread a process, so that tests run side by side without fighting for cores."""

import importlib
import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported; subprocesses inherit it
os.environ.setdefault("WANDB_MODE", "offline")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import pytest
import torch

torch.set_num_threads(1)
ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def load_script() -> Callable[[str, str], ModuleType]:
    """A script of the project as a module, with its neighbours in reach as when it is run: ("tools", "demo")."""

    def load(folder: str, name: str) -> ModuleType:
        with pytest.MonkeyPatch.context() as patch:
            patch.syspath_prepend(str(ROOT / folder))
            return importlib.import_module(name)

    return load
