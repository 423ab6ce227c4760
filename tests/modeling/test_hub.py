"""Folders that load where wearllama is not there."""

import json

import pytest
import torch
from tiny_wearllama import HEARD, READ, build, clip
from transformers import dynamic_module_utils
from transformers.dynamic_module_utils import get_class_from_dynamic_module

from wearllama.modeling import hub
from wearllama.modeling.factory import load_checkpoint
from wearllama.modeling.hub import export_folder, generate_in_bare_process
from wearllama.modeling.hub_code import AUTO_MAP, ENTRY, flat_sources, packages

LORA = {"r": 4, "alpha": 8, "target_modules": ["q_proj", "v_proj", "down_proj"]}


def with_working_lora():
    processor, model = build(lora=LORA)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.1)
    return processor, model


def reply(model, processor, messages, audio):
    batch = processor(messages, audio)
    with torch.no_grad():
        ids = model.generate(**batch, max_new_tokens=12, do_sample=False)
    return ids[:, batch["input_ids"].shape[1] :].tolist()


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    processor, model = with_working_lora()
    out = tmp_path_factory.mktemp("hub") / "wear.llama-1"  # a name that is no Python identifier
    texts = {"README.md": "card", "LICENSE": "terms"}
    export_folder(model, processor, out, texts=texts, max_shard_size="150KB", check=False)
    return out, model, processor


def test_bare_folder_says_the_same(exported):
    out, model, processor = exported
    messages, clips = [HEARD, READ, HEARD], [clip(0.6, 1), None, clip(1.1, 2)]
    found = generate_in_bare_process(out, messages, clips, max_new_tokens=12)
    assert found["model_type"] == "wearllama"
    assert found["ids"] == reply(model, processor, messages, clips)
    assert found["texts"] == processor.batch_decode(found["ids"])
    assert found["ids"][0] != found["ids"][2]


def test_folder_is_whole_and_in_shards(exported):
    out, model, processor = exported
    names = {path.name for path in out.iterdir()}
    wanted = {
        "config.json",
        "processor_config.json",
        "tokenizer.json",
        "generation_config.json",
        "README.md",
        "LICENSE",
    }
    assert wanted | {f"{ENTRY}.py", "model.safetensors.index.json"} <= names
    assert len([name for name in names if name.endswith(".safetensors")]) > 2
    assert not [path for path in out.parent.iterdir() if path != out]  # nothing temporary stays
    for name in hub.CONFIGS:
        assert json.loads((out / name).read_text())["auto_map"] == AUTO_MAP
    again, its_processor = load_checkpoint(out)  # the library itself reads it as any checkpoint
    assert reply(again, its_processor, [HEARD], [clip(0.6)]) == reply(model, processor, [HEARD], [clip(0.6)])


def test_code_imports_nothing_of_the_library():
    sources = flat_sources()
    for name, source in sources.items():
        assert "from wearllama" not in source and "import wearllama" not in source, name
        compile(source, name, "exec")
    assert packages(sources) == ["numpy", "pyyaml", "scipy", "tokenizers", "torch", "transformers"]


def auto_map_of(folder):
    model, processor = (json.loads((folder / name).read_text())["auto_map"] for name in hub.CONFIGS)
    return {auto: model[auto] for auto in ("AutoConfig", "AutoModelForCausalLM")} | {
        "AutoProcessor": processor["AutoProcessor"]
    }


def load_by_its_own_code(folder):
    """Config class, model and processor by the folder's code, as the Auto classes do it in a bare process."""
    kinds = {auto: get_class_from_dynamic_module(name, folder) for auto, name in auto_map_of(folder).items()}
    for auto, kind in kinds.items():
        assert kind.__module__.startswith("transformers_modules.")
        kind.register_for_auto_class(auto)
    loaders = (kinds["AutoModelForCausalLM"], kinds["AutoProcessor"])
    return kinds["AutoConfig"], *(kind.from_pretrained(folder) for kind in loaders)


def test_saved_again_by_its_own_code_it_is_whole_again(exported, tmp_path, monkeypatch):
    out, model, processor = exported
    monkeypatch.setattr(dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.syspath_prepend(str(tmp_path / "modules"))
    wanted = reply(model, processor, [HEARD], [clip(0.6)])
    config_class, loaded, its_processor = load_by_its_own_code(out)
    assert type(loaded.config) is config_class and type(loaded) is not type(model)
    assert reply(loaded, its_processor, [HEARD], [clip(0.6)]) == wanted
    loaded.save_pretrained(tmp_path / "again")
    its_processor.save_pretrained(tmp_path / "again")
    _, again, its_processor = load_by_its_own_code(tmp_path / "again")
    assert reply(again, its_processor, [HEARD], [clip(0.6)]) == wanted


def test_merged_lora_gives_the_same_logits_to_1e_5():
    processor, model = with_working_lora()
    batch = processor([HEARD, READ], [clip(0.7), None])
    with torch.no_grad():
        before = model(**batch, logits_to_keep=4).logits
        model.decoder.model.layers[0].mlp.down_proj.set_adapter([])  # so that the adapters matter
    assert (model(**batch, logits_to_keep=4).logits - before).abs().max() > 0.01
    model.decoder.model.layers[0].mlp.down_proj.set_adapter(["default"])
    model.merge_lora()
    with torch.no_grad():
        torch.testing.assert_close(model(**batch, logits_to_keep=4).logits, before, atol=1e-5, rtol=0)
    assert not any("lora_" in name or "base_layer" in name for name in model.state_dict())


def test_a_folder_in_the_way_is_kept(exported, tiny, tmp_path):
    out = exported[0]
    processor, model = tiny
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match="is there and is no exported checkpoint"):
        export_folder(model, processor, tmp_path, texts={}, overwrite=True, check=False)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
    with pytest.raises(ValueError, match="holds an exported checkpoint already; overwrite=true"):
        export_folder(model, processor, out, texts={}, check=False)


def test_a_model_that_says_something_else_is_not_exported(tiny, tmp_path, monkeypatch):
    processor, model = tiny
    monkeypatch.setattr(hub, "generate_in_bare_process", lambda *_: {"ids": [[1], [2]]})
    with pytest.raises(ValueError, match="without wearllama the model says"):
        export_folder(model, processor, tmp_path / "out", texts={})
    assert not list(tmp_path.iterdir())


def test_an_earlier_export_is_replaced_whole(tiny, tmp_path):
    processor, model = tiny
    out = export_folder(model, processor, tmp_path / "out", texts={"old.md": ""}, max_shard_size="100KB", check=False)
    export_folder(model, processor, out, texts={"new.md": ""}, overwrite=True, check=False)
    names = {path.name for path in out.iterdir()}
    assert "new.md" in names and "old.md" not in names and "model.safetensors.index.json" not in names
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
