"""Rates by part: which parameters learn how fast, and what the settings refuse."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from wearllama.modeling.factory import ModelConfig, build_model, build_processor
from wearllama.training.checkpoint import FINAL, weights_file
from wearllama.training.config import TrainConfig
from wearllama.training.optimiser import set_rates


def test_groups_have_the_rate_of_the_last_expression_that_matches(tiny: ModelConfig) -> None:
    model = build_model(tiny, build_processor(tiny))
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.1)
    set_rates(optimizer, model, {"decoder": 0.5, "decoder.*norm": 0.25})
    rate = {p: group["lr"] for group in optimizer.param_groups for p in group["params"]}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            norm, decoder = "norm" in name, name.startswith("decoder.")
            assert rate[parameter] == pytest.approx(0.025 if decoder and norm else 0.05 if decoder else 0.1), name
    with pytest.raises(ValueError, match=r"no trained parameter starts with \['coder'\]"):
        set_rates(optimizer, model, {"coder": 0.5})


def test_a_rate_of_zero_leaves_a_part_as_it_was(
    tmp_path: Path, train: Callable[..., object], quick: Callable[..., TrainConfig]
) -> None:
    before: dict[str, torch.Tensor] = {}

    def remember(model: torch.nn.Module) -> None:
        before.update({name: value.clone() for name, value in model.state_dict().items()})

    train(tmp_path, quick(rates={"projector": 0.0}, steps=2), change=remember)
    after = load_file(weights_file(tmp_path / FINAL))
    moved = {name.split(".")[0] for name, value in after.items() if not torch.equal(value, before[name].float())}
    assert "projector" not in moved and "decoder" in moved


def test_negative_rates_are_refused(quick: Callable[..., TrainConfig]) -> None:
    with pytest.raises(ValueError, match=r"train\.rates has \{'encoder': -1\.0\}"):
        quick(rates={"encoder": -1.0})
