"""A plan against torch's own counts, and against the memory of a real small run."""

import subprocess
import sys
from collections.abc import Callable
from types import ModuleType

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoModelForCausalLM

from wearllama.modeling.factory import ModelConfig
from wearllama.modeling.modeling_wearllama import decoder_body
from wearllama.training.plan import (
    STRATEGIES,
    Activations,
    Batch,
    activations,
    forward_flops,
    parts_of,
    planned_model,
    rank_bytes,
    saved_bytes,
)
from wearllama.training.plan_check import MODEL

BATCH = Batch(rows=2, audio_seconds=4.0, text_tokens=100, target_tokens=20)


def test_flops_are_torchs_own() -> None:
    model = planned_model(MODEL, train_encoder=False).eval()
    planned = forward_flops(model, parts_of(model), BATCH)
    features = torch.empty(4, BATCH.mel_frames, 80, device="meta")
    lengths = torch.full((4,), BATCH.mel_frames, device="meta")
    with torch.no_grad(), FlopCounterMode(display=False) as counted:
        encoded = model.encoder(features, lengths).embeddings_BLD
    assert counted.get_total_flops() == pytest.approx(planned["encoder"], rel=0.05)
    mask_BL = torch.ones(2, encoded.shape[1], dtype=torch.bool, device="meta")
    with torch.no_grad(), FlopCounterMode(display=False) as counted:
        model.projector(encoded.unflatten(0, (2, 2)), mask_BL)
    assert counted.get_total_flops() == pytest.approx(planned["projector"], rel=0.02)
    positions = BATCH.positions(2)
    with FakeTensorMode(), torch.no_grad():  # its masks ask for values, which meta tensors do not have
        decoder = AutoModelForCausalLM.from_config(model.config.decoder_config())
        embeds = torch.empty(2, positions, 512)
        with FlopCounterMode(display=False) as counted:
            decoder_body(decoder)(inputs_embeds=embeds, use_cache=False)
    assert counted.get_total_flops() == pytest.approx(planned["decoder"], rel=0.05)


def test_only_what_is_trained_has_gradients_and_moments() -> None:
    lora = planned_model(ModelConfig(**{**vars(MODEL), "lora": {"r": 4}}), train_encoder=False)
    parts = {part.name: part for part in parts_of(lora)}
    assert parts["encoder"].trained == 0 and 0 < parts["decoder"].trained < 0.02 * parts["decoder"].total
    empty = Activations(0, 0, 0)
    whole = rank_bytes("DDP", lora, list(parts.values()), empty, world_size=1, checkpointing=False)
    total, trained = (sum(getattr(part, name) for part in parts.values()) for name in ("total", "trained"))
    assert whole == 4 * total + (8 + 4) * trained


def test_sharding_more_takes_less() -> None:
    model = planned_model(MODEL, train_encoder=True)
    parts, kept = parts_of(model), activations(MODEL, model, BATCH)
    assert 0 < kept.checkpointed < kept.layers
    sizes = [rank_bytes(s, model, parts, kept, world_size=8, checkpointing=True) for s in STRATEGIES]
    assert sizes[0] > sizes[1] > sizes[2]
    assert sizes[3] == pytest.approx(sizes[2], rel=0.2)


def test_saved_bytes_of_a_known_layer() -> None:
    layer = torch.nn.Linear(8, 4)
    x = torch.randn(3, 8, requires_grad=True)
    assert saved_bytes(layer, lambda: layer(x).sigmoid()) == 4 * (3 * 8 + 3 * 4)


def test_peak_memory_is_the_programs_own() -> None:
    """Not that of a large process which started it."""
    held = bytearray(600 << 20)
    command = "from wearllama.training.plan_check import _peak, _resident; print(_peak() - _resident())"
    done = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=True)
    assert len(held) > 0 and int(done.stdout) < 200 << 20


@pytest.mark.slow
@pytest.mark.parametrize("checkpointing", [False, True])
def test_memory_of_a_real_run(checkpointing: bool, load_script: Callable[[str, str], ModuleType]) -> None:
    planned, measured = load_script("tools", "plan").check(checkpointing)
    assert planned == pytest.approx(measured, rel=0.1)
