import json

import pytest
import yaml

from wearllama.evaluation.adapters import weights_hash
from wearllama.evaluation.model_card import CardFacts, model_card, read_results, run_config, short
from wearllama.modeling.factory import load_checkpoint

RATE = {"hits": 38, "total": 40}


def results_of(weights, data="/secret/home/data/demo/vgbench"):
    system = {
        "label": "model", "identity": {"model": "sft/final", "weights": weights, "input": "audio"}, "errors": 0,
        "generation": {"max_new_tokens": 96}, "ttft_ms": {}, "rates": {"speaker_switch/switch": RATE},
        "by_tool": {}, "self_talk_by_discourse": {}, "side_talk_by_order": {}, "side_talk_by_target": {},
        "side_talk_labels": {}, "actions": {},
    }  # fmt: skip
    return {"benchmark": "vgbench", "data": data, "items": 40, "prompts": "p", "systems": [system], "paired_tests": []}


@pytest.fixture(scope="module")
def loaded(ckpt):
    return load_checkpoint(ckpt)


def facts(**changes):
    fields = {"name": "wearllama-tiny", "licence": "apache-2.0", "requirements": ["torch", "transformers"]}
    return CardFacts(**(fields | changes))


def test_header_is_what_the_hub_reads(loaded):
    card = model_card(facts(), *loaded)
    header = yaml.safe_load(card.split("---\n")[1])
    assert header["license"] == "apache-2.0" and header["library_name"] == "transformers"
    assert "pip install torch transformers soundfile`" in card and "glasses5" in card
    assert card.count("Not recorded.") == 2 and "None were given at export." in card


def test_usage_is_python_and_names_the_array(loaded):
    card = model_card(facts(), *loaded)
    code = card.split("```python\n")[1].split("```")[0]
    compile(code, "usage", "exec")
    assert "trust_remote_code=True" in code and "(samples, 5)" in code and "16000" in code


def test_run_and_data_are_told_without_the_machines_paths(loaded, tmp_path):
    manifest = tmp_path / "train.jsonl"
    row = {"task": "tool_call", "split": "train", "messages": [{"role": "user", "content": "hi"}], "target": "[Mute]"}
    manifest.write_text("".join(json.dumps({"id": f"r{n}", **row}) + "\n" for n in range(3)))
    run = {
        "model": {"decoder": "scratch"}, "init": "/secret/home/runs/text", "run_dir": "/secret/home/runs/x",
        "data": {"manifest": str(manifest), "train_split": "train"}, "train": {"steps": 620},
    }  # fmt: skip
    card = model_card(facts(run=run, data_note="Synthetic voices."), *loaded)
    assert "Synthetic voices." in card and "3 training rows" in card and "tool_call 3" in card
    assert "steps: 620" in card and "init: runs/text" in card and "secret" not in card
    assert short("a/b/c") == "a/b/c" and short("/a/b/c") == "b/c"


def test_results_are_shown_and_must_be_of_these_weights(loaded, ckpt, tmp_path):
    weights = weights_hash(ckpt)
    path = tmp_path / "results.json"
    path.write_text(json.dumps({"vgbench": results_of(weights)}))
    card = model_card(facts(results=read_results(path, weights)), *loaded)
    assert "### VGBench" in card and "(38/40)" in card and "secret" not in card
    assert "published" not in card.lower()
    path.write_text(json.dumps(results_of("f" * 16)))
    with pytest.raises(ValueError, match="found results of weights ffffffffffffffff, wanted those of this model"):
        read_results(path, weights)
    path.write_text(json.dumps({"rows": []}))
    with pytest.raises(ValueError, match="no results of an evaluation"):
        read_results(path, weights)


def test_configuration_lies_beside_or_above_the_checkpoint(tmp_path):
    assert run_config(tmp_path) is None
    (tmp_path / "config.yaml").write_text("train: {steps: 3}")
    (tmp_path / "final").mkdir()
    assert run_config(tmp_path / "final") == run_config(tmp_path) == {"train": {"steps": 3}}
