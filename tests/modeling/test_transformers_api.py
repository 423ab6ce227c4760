"""What users of transformers and peft call: loading options, activation checkpointing, embeddings, adapters."""

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from tiny_wearllama import HEARD, READ, build, clip
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, AutoProcessor

from wearllama.modeling.configuration import WearLlamaConfig
from wearllama.modeling.modeling_wearllama import WearLlamaForConditionalGeneration
from wearllama.modeling.processing import WearLlamaProcessor

LORA = {"r": 4, "target_modules": r".*\.(q|v)_proj"}
ROWS = ([HEARD, READ], [clip(0.5), None])


def last_logits(model, batch):
    with torch.no_grad():
        return model(**batch, logits_to_keep=1).logits[:, 0]


@pytest.fixture(scope="module", params=["float32", "bfloat16"])
def saved(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    processor, model = build(lora=LORA, dtype=request.param)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder, model, processor


def test_auto_classes(saved):
    folder, model, processor = saved
    assert isinstance(AutoConfig.from_pretrained(folder), WearLlamaConfig)
    assert AutoConfig.from_pretrained(folder).dtype == model.dtype
    again = AutoProcessor.from_pretrained(folder)
    assert isinstance(again, WearLlamaProcessor)
    batch = again(*ROWS)
    for auto in (AutoModel, AutoModelForCausalLM):
        loaded = auto.from_pretrained(folder, dtype="auto")
        assert type(loaded) is WearLlamaForConditionalGeneration and not loaded.training
        assert {parameter.dtype for parameter in loaded.parameters()} == {model.dtype}
        assert torch.equal(last_logits(loaded, batch), last_logits(model, processor(*ROWS)))


@pytest.mark.parametrize(
    "options",
    [{"device_map": "cpu"}, {"device_map": "auto"}, {"low_cpu_mem_usage": True}, {"attn_implementation": "eager"}],
)
def test_loading_options(saved, options):
    folder, model, processor = saved
    loaded = AutoModelForCausalLM.from_pretrained(folder, dtype="auto", **options)
    assert not any(parameter.is_meta for parameter in loaded.parameters())
    near = {"atol": 1e-4, "rtol": 1e-4} if model.dtype == torch.float32 else {"atol": 0.3, "rtol": 0.1}
    torch.testing.assert_close(last_logits(loaded, processor(*ROWS)), last_logits(model, processor(*ROWS)), **near)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", torch.bfloat16])
def test_dtype(saved, dtype):
    loaded = AutoModelForCausalLM.from_pretrained(saved[0], dtype=dtype)
    wanted = getattr(torch, dtype) if isinstance(dtype, str) else dtype
    assert {parameter.dtype for parameter in loaded.parameters()} == {wanted} and loaded.config.dtype == wanted


@pytest.mark.parametrize("lora", [None, LORA])
def test_activation_checkpointing(lora):
    processor, model = build(lora=lora)
    batch = processor(*ROWS, targets=["yes", "[Mute]"])
    layer = model.decoder.model.layers[0]
    passes = []
    layer.mlp.register_forward_pre_hook(lambda *_: passes.append(1))
    found = []
    for on in (False, True, False):
        (model.gradient_checkpointing_enable if on else model.gradient_checkpointing_disable)()
        assert model.is_gradient_checkpointing is on
        model.train()
        model.zero_grad()
        passes.clear()
        torch.manual_seed(0)  # dropout
        loss = model(**batch).loss
        loss.backward()
        assert len(passes) == 1 + on  # once more in the backward pass
        found.append((loss.detach(), {name: p.grad for name, p in model.named_parameters() if p.grad is not None}))
    assert any("lora_A" in name for name in found[0][1]) is (lora is not None)
    for loss, gradients in found[1:]:
        torch.testing.assert_close(loss, found[0][0])
        torch.testing.assert_close(gradients, found[0][1])


def test_resizing_is_refused_before_anything_changes(tiny):
    processor, model = tiny
    names = set(model.state_dict())
    with pytest.raises(ValueError, match=r"resize_token_embeddings\(2000\): this model has 1024 tokens"):
        model.resize_token_embeddings(2000)
    same = model.resize_token_embeddings(len(processor.tokenizer))
    assert same is model.resize_token_embeddings() is model.get_input_embeddings()
    assert same.weight.shape[0] == 1024 and set(model.state_dict()) == names


def test_embeddings_can_be_exchanged():
    processor, model = build()
    names = set(model.state_dict())
    table, head = torch.nn.Embedding(1024, 32), torch.nn.Linear(32, 1024, bias=False)
    model.set_input_embeddings(table)
    model.set_output_embeddings(head)
    assert model.get_input_embeddings() is table and model.get_output_embeddings() is head
    assert set(model.state_dict()) == names
    assert torch.isfinite(last_logits(model, processor(*ROWS))).all()


def test_peft_from_outside(tmp_path):
    processor, model = build()
    batch, learnt = processor(*ROWS), processor(*ROWS, targets=["yes", "[Mute]"])
    before = last_logits(model, batch)
    pattern = r"(decoder\.model\.layers\.\d+\.self_attn\.(q|v)_proj|encoder\.blocks\.\d+\.attention\.qkv)"
    tuned = get_peft_model(model, LoraConfig(r=4, target_modules=pattern, task_type="CAUSAL_LM"))
    tuned(**learnt).loss.backward()
    trained = {name for name, p in tuned.named_parameters() if p.grad is not None}
    assert trained and all("lora_" in name for name in trained)
    assert any("encoder.blocks.1" in name for name in trained) and any(
        "layers.1.self_attn.v" in name for name in trained
    )
    with torch.no_grad():
        for name, parameter in tuned.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.1)
    tuned.eval()
    after = last_logits(tuned, batch)
    assert (after - before).abs().max() > 0.01
    tuned.save_pretrained(tmp_path)
    again = PeftModel.from_pretrained(build()[1], tmp_path).eval()
    torch.testing.assert_close(last_logits(again, batch), after)
    ids = again.generate(**batch, max_new_tokens=4, do_sample=False)
    merged = again.merge_and_unload()
    torch.testing.assert_close(last_logits(merged, batch), after, atol=1e-5, rtol=1e-5)
    assert torch.equal(merged.generate(**batch, max_new_tokens=4, do_sample=False), ids)
