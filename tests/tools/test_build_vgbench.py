"""The builder of VGBench: what stands and is valid is taken over, two builds agree, training rows alone on demand."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from wearllama.audio.array import load_array
from wearllama.data.demo_speakers import Line
from wearllama.data.manifest import read_manifest
from wearllama.simulation.bank_config import BankConfig
from wearllama.simulation.build import build_bank
from wearllama.simulation.scenes import SceneConfig


@pytest.fixture(scope="module")
def bank(tmp_path_factory) -> Path:
    scene = SceneConfig(wearer_poses=1, partners=1, bystanders=2, noises=1)
    config = BankConfig(train_rooms=1, eval_rooms=1, taps=1600, scene=scene)
    return build_bank(config, load_array("glasses5"), tmp_path_factory.mktemp("bank"), progress=False).path


@pytest.fixture
def build(load_script, monkeypatch, bank):
    tool = load_script("tools", "build_vgbench")

    def speak(lines: Sequence[Line], root: Path, *, workers: int) -> int:
        missing = [line for line in lines if not (root / line.file).is_file()]
        for line in missing:
            (root / line.file).parent.mkdir(parents=True, exist_ok=True)
            rng = np.random.default_rng(len(line.utterance.text))
            soundfile.write(root / line.file, 0.1 * rng.standard_normal(6000), 16000, format="FLAC")
        return len(missing)

    monkeypatch.setattr(tool, "speak_lines", speak)

    def run(out_dir: Path, **settings: Any) -> dict[str, Any]:
        plan = tool.VgBenchPlan(switch_pairs=10, self_talk=2, side_talk=2, voices=("flite/rms", "flite/slt"),
                                held_out_voices=("pico/en-US", "pico/en-GB"))  # fmt: skip
        tool.main.__wrapped__(tool.BuildVgBench(out_dir=str(out_dir), bank=str(bank), plan=plan, **settings))
        return json.loads((out_dir / "lock.json").read_text())

    return run


def test_two_builds_are_the_same_and_a_third_has_nothing_to_do(build, tmp_path: Path, capsys) -> None:
    first, second = build(tmp_path / "a"), build(tmp_path / "b")
    assert first["files"] == second["files"] and first["sha256"] == second["sha256"] and len(first["files"]) > 50
    capsys.readouterr()
    assert build(tmp_path / "a", workers=1) == first and "built already" in capsys.readouterr().out
    build(tmp_path / "a", prompts="full")
    assert "built already" not in capsys.readouterr().out


def test_training_rows_alone_are_those_of_the_whole(build, tmp_path: Path) -> None:
    build(tmp_path / "whole")
    lock = build(tmp_path / "part", benchmark=False)
    whole, part = (list(read_manifest(tmp_path / name / "train.jsonl")) for name in ("whole", "part"))
    assert [row.id for row in part] == [row.id for row in whole] and part
    files = {name for row in part if row.audio for name in row.audio.values()}
    assert {name for name in lock["files"] if name.startswith("audio/")} == files


def test_a_bank_of_another_array_is_refused(build, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is of array 'glasses5', wanted 'easycom4'"):
        build(tmp_path, array="easycom4")


def test_the_demos_plan_is_its_own(load_script) -> None:
    tool = load_script("tools", "build_vgbench")
    with pytest.raises(ValueError, match=r"plan\.switch_pairs=10 is not read with preset=demo"):
        tool.BuildVgBench(preset="demo", plan=tool.VgBenchPlan(switch_pairs=10))
    demo = tool.BuildVgBench(preset="demo")
    assert demo.plan == tool.DEMO == replace(demo, workers=1).plan
