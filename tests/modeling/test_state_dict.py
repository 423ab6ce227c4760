"""docs/state_dict.md says the names; models must have exactly those."""

import itertools
import re
from pathlib import Path

import pytest
import torch

from wearllama.modeling.configuration import WearLlamaConfig
from wearllama.modeling.modeling_wearllama import WearLlamaForConditionalGeneration

PAGE = (Path(__file__).resolve().parents[2] / "docs/state_dict.md").read_text(encoding="utf-8")
DECODER = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 300, "tie_word_embeddings": True,
}  # fmt: skip
LORA = {"r": 4, "target_modules": ["q_proj"]}


def documented(*titles):
    names = set()
    for title in titles:
        section = PAGE.split(f"## {title}\n", 1)[1]
        for line in section.split("```")[1].split():
            parts = [part.split(",") for part in re.split(r"[{}]", line)]
            names |= {"".join(choice) for choice in itertools.product(*parts)}
    return names


def names_of(**fields):
    with torch.device("meta"):
        model = WearLlamaForConditionalGeneration(WearLlamaConfig(text_config=dict(DECODER), **fields))
    return {re.sub(r"\.\d+\.", ".N.", name) for name in model.state_dict()}


def test_plain_model():
    assert names_of() == documented("Every model")
    assert names_of(channels="sc_c0") == documented("Every model")


def test_model_of_the_demos_kind():
    assert names_of(projector={"pieces": 10}) == documented("Every model", "With `projector.pieces`")


def test_model_of_smollm2s_kind():
    found = names_of(projector={"pieces": 10}, num_added_tokens=7, lora=LORA)
    base = documented("Every model") - {"decoder.model.layers.N.self_attn.q_proj.weight"}
    assert found == base | documented("With `projector.pieces`", "With added tokens", "With LoRA")


@pytest.mark.parametrize(
    "pattern, layers",
    [
        (r"decoder\.model\.layers\.1\.self_attn\.(q|v)_proj", ["1.self_attn.q_proj", "1.self_attn.v_proj"]),
        (r"model\.layers\.\d\.mlp\.down_proj", ["0.mlp.down_proj", "1.mlp.down_proj"]),
        (["layers.0.mlp.up_proj", "k_proj"], ["0.mlp.up_proj", "0.self_attn.k_proj", "1.self_attn.k_proj"]),
    ],
)
def test_lora_by_name(pattern, layers):
    with torch.device("meta"):
        config = WearLlamaConfig(text_config=dict(DECODER), lora={"r": 4, "target_modules": pattern})
        model = WearLlamaForConditionalGeneration(config)
    hit = sorted(name.removesuffix(".lora_A.default.weight") for name in model.state_dict() if "lora_A" in name)
    assert hit == [f"decoder.model.layers.{name}" for name in layers]


def test_a_tied_head_carries_no_lora():
    with torch.device("meta"):
        model = WearLlamaForConditionalGeneration(WearLlamaConfig(text_config=dict(DECODER)))
        model.add_lora({"r": 4, "target_modules": r".*"})
    assert "decoder.lm_head.weight" in model.state_dict()


@pytest.mark.parametrize("pattern", [r"encoder\.blocks\..*\.qkv", r".*q_porj", ["q_proj", "query"], r"(q_proj"])
def test_lora_that_fits_no_layer_is_refused(pattern):
    with torch.device("meta"), pytest.raises(ValueError, match=r"lora.target_modules"):
        config = WearLlamaConfig(text_config=dict(DECODER), lora={"r": 4, "target_modules": pattern})
        WearLlamaForConditionalGeneration(config)
