"""The preparation's settings and stamps: what is valid is skipped, what was made from something else is made again."""

import json

import pytest

from wearllama.audio.array import load_array
from wearllama.simulation.bank_config import BankConfig
from wearllama.simulation.build import build_bank
from wearllama.simulation.scenes import SceneConfig
from wearllama_launch import compose_config


@pytest.fixture(scope="module")
def tool(load_script):
    return load_script("tools", "prepare_demo")


@pytest.fixture
def bank(tmp_path):
    (tmp_path / "bank").mkdir()
    (tmp_path / "bank" / "meta.json").write_text(json.dumps({"config_hash": "a"}))
    return tmp_path / "bank"


def compose(tool, *overrides):
    config, _ = compose_config("prepare_demo", tool.PrepareDemo, list(overrides))
    return config


def test_defaults_are_the_demo(tool):
    config = compose(tool)
    assert (config.out_dir, config.bank) == ("data/demo", "data/demo/rir_bank")
    assert config.benchmarks.switch_pairs == 40 and config.reading.kokoro_seconds == 300.0


def test_bad_sizes_are_refused(tool):
    with pytest.raises(Exception, match="self_talk"):
        compose(tool, "benchmarks.self_talk=-1")


def test_key_follows_settings_bank_and_engines(tool, bank):
    engines = ("pico", "kokoro")
    keys = {
        tool.data_key(compose(tool, f"bank={bank}", *overrides), engines, [])
        for overrides in ([], ["seed=1"], ["rows.asr=3"], ["reading.kokoro_seconds=10"])
    }
    assert len(keys) == 4
    base = compose(tool, f"bank={bank}")
    assert tool.data_key(compose(tool, f"bank={bank}", "workers=7"), engines, []) in keys
    assert tool.data_key(base, ("pico",), []) not in keys
    assert tool.data_key(base, engines, ["chatter/a.flac"]) not in keys
    (bank / "meta.json").write_text(json.dumps({"config_hash": "b"}))
    assert tool.data_key(base, engines, []) not in keys


def test_stages_are_due_until_their_output_stands(tool, tmp_path):
    assert tool.stage_due(tmp_path, "train", "k")
    tool.stage_done(tmp_path, "train", "k")
    assert tool.stage_due(tmp_path, "train", "k"), "a stamp without output is worth nothing"
    (tmp_path / "train.jsonl").write_text("")
    assert not tool.stage_due(tmp_path, "train", "k")
    assert tool.stage_due(tmp_path, "train", "other")


def test_missing_bank_is_a_clear_error(tool, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["prepare_demo.py", f"out_dir={tmp_path}/d", f"bank={tmp_path}/nowhere"])
    with pytest.raises(SystemExit) as ended:
        tool.main()
    assert ended.value.code == 2 and "bank" in capsys.readouterr().err


def test_a_bank_of_another_array_is_refused(tool, tmp_path):
    scene = SceneConfig(wearer_poses=1, partners=1, bystanders=1, noises=1)
    config = BankConfig(train_rooms=0, eval_rooms=1, taps=1600, scene=scene)
    bank = build_bank(config, load_array("glasses5"), tmp_path / "bank", progress=False).path
    settings = tool.PrepareDemo(out_dir=str(tmp_path / "d"), bank=str(bank), array="easycom4")
    with pytest.raises(ValueError, match="is of array 'glasses5', wanted 'easycom4'"):
        tool.main.__wrapped__(settings)
