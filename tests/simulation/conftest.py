"""A small real bank and two real source files, built once a session."""

from pathlib import Path

import numpy as np
import pytest
import torch

from wearllama.audio.array import load_array
from wearllama.audio.io import write_audio
from wearllama.simulation.bank import RirBank
from wearllama.simulation.build import BankConfig, build_bank
from wearllama.simulation.scenes import SceneConfig

SMALL_BANK = BankConfig(
    train_rooms=1, eval_rooms=1, taps=2400, scene=SceneConfig(wearer_poses=1, partners=1, bystanders=2, noises=1)
)


@pytest.fixture(scope="session")
def small_bank_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bank")
    build_bank(SMALL_BANK, load_array("glasses5"), path, progress=False)
    return path


@pytest.fixture
def small_bank(small_bank_dir: Path) -> RirBank:
    return RirBank.open(small_bank_dir)


@pytest.fixture(scope="session")
def voices_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two talkers as bursts of noise with pauses between."""
    path = tmp_path_factory.mktemp("voices")
    rng = np.random.default_rng(3)
    for name, seconds in (("a.wav", 1.3), ("b.wav", 0.9)):
        signal_N = rng.standard_normal(int(seconds * 16000)) * 0.05
        signal_N[4000:7000] = 0.0
        write_audio(path / name, torch.from_numpy(signal_N[None]).float())
    return path
