import json
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_wearllama import DECODER, ENCODER, HEARD, READ, build, clip, tiny_config
from transformers import AutoModel, LlamaConfig, LlamaForCausalLM
from transformers.trainer_utils import align_special_tokens

from wearllama.modeling.configuration import WearLlamaConfig
from wearllama.modeling.encoder_io import load_encoder
from wearllama.modeling.factory import ModelConfig, build_model, build_processor, load_checkpoint
from wearllama.modeling.modeling_wearllama import WearLlamaForConditionalGeneration
from wearllama.modeling.projector import ProjectorConfig

LORA = {"r": 4, "alpha": 8, "target_modules": ["q_proj", "v_proj"]}


def logits(model, batch):
    with torch.no_grad():
        return model(**batch).logits


@pytest.fixture()
def with_lora():
    """A model whose adapter does something: it starts at zero."""
    processor, model = build(lora=LORA)
    assert sum("lora_B" in name for name, _ in model.named_parameters()) == 4
    return processor, model


def save(processor, model, folder):
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("lora", [None, LORA])
def test_save_load_equal_logits(lora, tmp_path):
    processor, model = build(lora=lora, freeze={"encoder": True})
    model.config.freeze = {"encoder": True}
    model.apply_freeze()
    batch = processor([HEARD, READ], [clip(0.7), None])
    again, its_processor = load_checkpoint(save(processor, model, tmp_path))
    assert torch.equal(logits(again, its_processor([HEARD, READ], [clip(0.7), None])), logits(model, batch))
    trained = [{n for n, p in m.named_parameters() if p.requires_grad} for m in (model, again)]
    assert trained[0] == trained[1]
    assert not any(name.startswith("encoder.") for name in trained[0])
    assert isinstance(AutoModel.from_pretrained(tmp_path), WearLlamaForConditionalGeneration)
    assert again.generation_config.eos_token_id == processor.ids.eos


def test_lora_trains_adapter_and_projector_only(with_lora):
    processor, model = with_lora
    model.train()
    model(**processor([HEARD], [clip(0.4)], targets=["yes"])).loss.backward()
    trained = {name for name, p in model.named_parameters() if p.grad is not None}
    assert any("lora_A" in name for name in trained) and any(name.startswith("projector.") for name in trained)
    assert not any(name.startswith("decoder.") and "lora_" not in name for name in trained)


def test_merged_lora_gives_the_same_logits(with_lora, tmp_path):
    processor, model = with_lora
    batch = processor([HEARD], [clip(0.4)])
    before = logits(model, batch)
    model.merge_lora()
    torch.testing.assert_close(logits(model, batch), before, atol=1e-4, rtol=1e-4)
    again, _ = load_checkpoint(save(processor, model, tmp_path))
    assert again.config.lora is None
    assert torch.equal(logits(again, batch), logits(model, batch))


@pytest.mark.parametrize("part", ["projector", "lora"])
def test_checkpoint_without_a_part_is_refused(with_lora, part, tmp_path):
    save(*with_lora, tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    kept = {name: value for name, value in weights.items() if part not in name}
    assert len(kept) < len(weights)
    save_file(kept, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match=f"the checkpoint lacks (projector|decoder) weights: .*{part}"):
        load_checkpoint(tmp_path)


def test_adapter_that_the_config_does_not_name_is_refused(with_lora, tmp_path):
    save(*with_lora, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"lora": None}))
    with pytest.raises(ValueError, match=r"checkpoint (lacks|has unknown) decoder weights"):
        load_checkpoint(tmp_path)


def test_folders_that_are_no_checkpoint_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"no WearLlama checkpoint: it has no config.json"):
        load_checkpoint(tmp_path)


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory):
    """A Llama folder with its own tokenizer, which knows none of this project's tokens."""
    folder = tmp_path_factory.mktemp("llama")
    tokenizer = build_processor(tiny_config()).tokenizer.__class__.from_pretrained(
        build_own_tokenizer(folder), eos_token="<|end|>"
    )
    torch.manual_seed(1)
    LlamaForCausalLM(LlamaConfig(**DECODER, vocab_size=len(tokenizer))).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def build_own_tokenizer(folder):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend.train_from_iterator(
        ["hello"], trainers.BpeTrainer(vocab_size=260, special_tokens=["<|end|>"], initial_alphabet=alphabet)
    )
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|end|>", pad_token="<|end|>")
    tokenizer.chat_template = (
        "{% for m in messages %}{{ m['role'] + ': ' + m['content'] + '\\n' }}{% endfor %}{{ 'assistant: ' }}"
    )
    tokenizer.save_pretrained(folder)
    return folder


def test_pretrained_decoder_keeps_its_vocabulary(pretrained, tmp_path):
    processor, model = build(decoder=str(pretrained), tokenizer="decoder", lora=LORA)
    base = LlamaForCausalLM.from_pretrained(pretrained)
    assert model.config.num_added_tokens == 7 == len(processor.tokenizer) - base.config.vocab_size
    assert model.decoder.get_input_embeddings().weight.shape == base.get_input_embeddings().weight.shape
    batch = processor([HEARD, READ], [clip(0.4), None], targets=["[Mute]", "hello"])
    model(**batch).loss.backward()
    mute = processor.ids.mute - base.config.vocab_size
    assert model.added.output_KE.grad[mute].abs().max() > 0
    assert model.decoder.get_input_embeddings().weight.grad is None
    again, _ = load_checkpoint(save(processor, model, tmp_path))
    prompt = processor([HEARD, READ], [clip(0.4), None])
    assert logits(again, prompt).shape[-1] == len(processor.tokenizer)
    assert torch.equal(logits(again, prompt), logits(model, prompt))
    with torch.no_grad():
        model.added.output_KE[mute] += 100 * logits_direction(model, prompt)
    assert model.generate(**prompt, max_new_tokens=1, do_sample=False)[0, -1] == processor.ids.mute


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("start", ["pretrained", "scratch"])
def test_the_decoder_attends_as_the_config_says(pretrained, attention, start):
    given = {"decoder": str(pretrained), "tokenizer": "decoder"} if start == "pretrained" else {}
    _, model = build(attn_implementation=attention, **given)
    assert model.decoder.config._attn_implementation == attention


def logits_direction(model, prompt):
    embeds = model.embed_inputs(prompt["input_ids"], prompt["input_features"], prompt["feature_lengths"])
    hidden = model.decoder.get_decoder()(inputs_embeds=embeds, attention_mask=prompt["attention_mask"])[0]
    return hidden[0, -1]


def test_pretrained_decoder_says_what_it_said_before(pretrained):
    config = tiny_config(decoder=str(pretrained), tokenizer="decoder")
    processor = build_processor(config)
    model = build_model(config, processor).eval()
    batch = processor([[{"role": "user", "content": "hello"}]], None)
    base = LlamaForCausalLM.from_pretrained(pretrained).eval()
    with torch.no_grad():
        expected = base(**batch).logits
    torch.testing.assert_close(logits(model, batch)[..., : expected.shape[-1]], expected)
    rms = base.get_input_embeddings().weight.detach().square().mean().sqrt().item()
    assert model.config.projector["init_rms"] == pytest.approx(rms, rel=1e-3)


def test_encoder_comes_from_a_folder_and_starts_frozen(tmp_path):
    processor, model = build()
    save(processor, model, tmp_path)  # a whole checkpoint serves as an encoder folder
    config = tiny_config(encoder=str(tmp_path), encoder_config={}, freeze={"encoder": True})
    other = build_model(config, build_processor(config))
    for name, value in model.encoder.state_dict().items():
        assert torch.equal(other.encoder.state_dict()[name], value)
    assert other.encoder_frozen and not model.encoder_frozen
    assert torch.equal(load_encoder(tmp_path).blocks[0].norm.weight, model.encoder.blocks[0].norm.weight)


def test_bad_encoder_folders_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"encoder=.*nowhere: no .*encoder.safetensors"):
        build_processor(tiny_config(encoder=str(tmp_path / "nowhere"), encoder_config={}))
    save_file({"encoder.wrong": torch.zeros(2)}, tmp_path / "encoder.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"encoder": ENCODER}))
    with pytest.raises(ValueError, match=r"encoder tensors differ, first encoder."):
        load_encoder(tmp_path)
    with pytest.raises(ValueError, match=r"width is 64, but .* has 32"):
        config = tiny_config(encoder=str(tmp_path), encoder_config={"width": 64})
        build_model(config, build_processor(config))


def test_freeze_that_matches_nothing_is_refused():
    with pytest.raises(ValueError, match=r"no parameter starts with .'encodr'"):
        build(freeze={"encodr": True})


def test_a_mistyped_field_of_the_decoder_is_refused():
    with pytest.raises(ValueError, match=r"num_hidden_layer is no setting of llama: num_hidden_layers\?"):
        ModelConfig(decoder_config={"model_type": "llama", "num_hidden_layer": 2})


def test_fields_that_the_library_keeps_elsewhere_are_known():
    config = ModelConfig(decoder_config={**DECODER, "rope_theta": 5e5})
    model = build_model(config, build_processor(config))
    assert model.config.decoder_config().rope_parameters["rope_theta"] == 5e5


def test_a_pretrained_decoder_needs_its_own_tokenizer(pretrained):
    config = replace(tiny_config(), decoder=str(pretrained), tokenizer="packaged")
    with pytest.raises(ValueError, match=r"wanted model\.tokenizer=decoder"):
        build_processor(config)


@pytest.mark.parametrize(("given", "said"), [
    ({"adapter_width": 24, "adapter_heads": 2, "causal": True}, "causal is True, which a projector with adapter_width"),
    ({"adapter_heads": 2}, "adapter_heads is 2, which a projector without adapter_width"),
])  # fmt: skip
def test_settings_of_the_other_projector_are_refused(given, said):
    with pytest.raises(ValueError, match=said):
        ProjectorConfig(**given)


def test_an_adapter_hears_whole_clips():
    encoder = {"subsampling": "stacking", "causal": True, "contexts": [[70, 0]]}
    with pytest.raises(ValueError, match=r"encoder\.contexts is \[\[70, 0\]\] with projector\.adapter_width=24"):
        WearLlamaConfig(encoder=encoder, projector={"adapter_width": 24, "adapter_heads": 2})


def test_unknown_fields_are_refused():
    with pytest.raises(ValueError, match=r"lora has unknown field .'rank'"):
        build(lora={"rank": 4})
    with pytest.raises(ValueError, match="projector has unknown field"):
        build(projector={"depth": 2})
    with pytest.raises(ValueError, match="channels is 'stereo'"):
        build(channels="stereo")
    with pytest.raises(ValueError, match="neither a folder with a causal LM"):
        build(decoder="/no/such/folder", tokenizer="packaged")


def test_pad_among_the_added_tokens_as_the_trainer_writes_it(pretrained, tmp_path):
    processor, model = build(decoder=str(pretrained), decoder_config={}, tokenizer="decoder", lora=LORA)
    assert processor.ids.pad >= model.config.text_config.vocab_size
    align_special_tokens(model, processor.tokenizer)
    assert model.config.text_config.pad_token_id == processor.ids.pad
    batch = processor([HEARD, READ], [clip(0.4), None])
    again, its_processor = load_checkpoint(save(processor, model, tmp_path))
    assert torch.equal(logits(again, batch), logits(model, batch))
    assert again.generation_config.pad_token_id == its_processor.ids.pad == processor.ids.pad
