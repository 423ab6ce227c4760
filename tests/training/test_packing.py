"""Packed rows are the padded rows: the same losses, target by target, and the same gradients."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import set_seed

from wearllama.data.collate import Collator
from wearllama.data.packing import document_lengths, pack
from wearllama.modeling.factory import ModelConfig, build_model, build_processor
from wearllama.training.config import TrainConfig
from wearllama.training.data import SftData, load_sets
from wearllama.training.probe import find_budget


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_packed_equals_padded(manifest: Path, tiny: ModelConfig, attention: str) -> None:
    set_seed(3)
    processor = build_processor(tiny)
    model = build_model(tiny, processor).train()
    model.decoder.set_attn_implementation(attention)
    with torch.no_grad():  # outputs that depend on what stands before
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.normal_(std=0.2)
    data = load_sets(SftData(manifest=str(manifest)), processor, seed=3).train
    padded = Collator(processor)([data[index] for index in (0, 3, 5, 9)])
    packed = pack(padded)
    assert packed["input_ids"].shape == (1, int(padded["attention_mask"].sum()))
    assert document_lengths(packed["position_ids"]).tolist() == padded["attention_mask"].sum(1).tolist()
    grads = []
    for batch in (padded, packed):
        model.zero_grad()
        outputs = model(**batch)
        outputs.loss.backward()
        grads.append(
            (outputs.token_losses, {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None})
        )
    torch.testing.assert_close(grads[0][0], grads[1][0], rtol=1e-5, atol=1e-5)
    for name, grad in grads[0][1].items():
        torch.testing.assert_close(
            grads[1][1][name], grad, rtol=1e-4, atol=1e-5, msg=lambda text, n=name: f"{n}: {text}"
        )
    alone = model(**{**packed, "position_ids": torch.arange(packed["input_ids"].shape[1])[None]}).token_losses
    assert not torch.allclose(alone, grads[0][0], atol=1e-3)  # without the mask rows would see each other


def test_a_packed_run_is_the_padded_run(
    tmp_path: Path, train: Callable[..., Any], quick: Callable[..., TrainConfig]
) -> None:
    train(tmp_path / "padded", quick(steps=3))
    train(tmp_path / "packed", quick(steps=3, packed=True))
    padded, packed = (
        [line for line in map(json.loads, (tmp_path / name / "log.jsonl").read_text().splitlines()) if "loss" in line]
        for name in ("padded", "packed")
    )
    assert [line["loss"] for line in packed] == pytest.approx([line["loss"] for line in padded], abs=1e-5)
    assert all(line["position_padding"] == 0 for line in packed)
    assert all(line["loss/tool_call"] == pytest.approx(line["loss"], abs=1e-3) for line in packed)


def test_the_budget_is_found_and_its_start_must_fit() -> None:
    tried: list[int] = []

    def fits(budget: int) -> bool:
        tried.append(budget)
        return budget <= 10_000

    assert 9_500 <= find_budget(fits, 300) <= 10_000
    assert len(tried) < 14
    with pytest.raises(ValueError, match="20000 positions does not fit"):
        find_budget(fits, 20_000)
    assert find_budget(lambda budget: True, 8, most=64) == 64


def test_a_process_under_a_limit_runs_out_and_goes_on() -> None:
    """In a process of its own: the limit stays with a process."""
    code = (
        "import torch; from wearllama.training.probe import fits_in_memory, limit_memory; limit_memory(2.0);"
        "print([fits_in_memory(lambda: torch.zeros(n << 18)) for n in (100, 4000, 100)])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert done.stdout.strip() == "[True, False, True]", done.stderr
