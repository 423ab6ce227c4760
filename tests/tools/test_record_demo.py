"""The demo's scenes heard by another array: same rows and scenes, the array's channels, and errors that say why."""

from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import soundfile
import yaml

from wearllama.audio.array import load_array
from wearllama.data import demo_chatter
from wearllama.data.assets import AssetUnavailable
from wearllama.data.demo_benchmarks import BenchmarkSizes, vgbench_items, wearvox_scenes
from wearllama.data.demo_layout import PLACES
from wearllama.evaluation.vgbench import VGBenchConfig, load_vgbench
from wearllama.evaluation.wearvox import WearVoxConfig, load_wearvox
from wearllama.simulation.bank_config import BankConfig
from wearllama.simulation.build import build_bank
from wearllama.simulation.noise import NoiseBank
from wearllama.simulation.scenes import SceneConfig

FEW = dict(tool_call=2, side_talk=2, closed_book=1, grounding=1, switch_pairs=10, self_talk=1, consecutive=1)
"""Ten pairs are the fewest: one a tool."""


@pytest.fixture(scope="module")
def tool(load_script):
    return load_script("tools", "record_demo")


@pytest.fixture(scope="module")
def speech(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("speech")
    sizes = BenchmarkSizes(**FEW)
    scenes = wearvox_scenes(sizes, list(PLACES)) + [item.scene for item in vgbench_items(sizes)]
    rng = np.random.default_rng(0)
    for line in {line.file: line for scene in scenes for line in scene.lines}.values():
        (folder / line.file).parent.mkdir(parents=True, exist_ok=True)
        soundfile.write(folder / line.file, 0.1 * rng.standard_normal(6000), 16000)
    return folder


@pytest.fixture(scope="module")
def banks(tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("banks")
    scene = SceneConfig(wearer_poses=1, partners=1, bystanders=2, noises=1)
    config = BankConfig(train_rooms=0, eval_rooms=1, taps=1600, scene=scene)
    return {
        name: build_bank(config, load_array(name), folder / name, progress=False).path for name in ("glasses5", "aria7")
    }


@pytest.fixture(autouse=True)
def no_music(monkeypatch):
    """As where the registry cannot be reached: music is synthesised."""

    def fetch(name: str) -> Path:
        raise AssetUnavailable(f"no {name} here")

    monkeypatch.setattr(demo_chatter, "fetch", fetch)


def record(tool, speech: Path, out_dir: Path, bank: Path, array: str) -> Path:
    tool.main.__wrapped__(tool.RecordDemo(
        out_dir=str(out_dir), bank=str(bank), array=array, speech=str(speech), benchmarks=BenchmarkSizes(**FEW)
    ))  # fmt: skip
    return out_dir


def test_noise_folders_hold_music_in_any_case(tmp_path: Path) -> None:
    folders, said = demo_chatter.noise_folders(tmp_path)
    banks = [NoiseBank(folder) for folder in folders.values()]
    drawn = [bank.draw("Music", 8000, np.random.default_rng(0)) for bank in banks]
    assert all("synthesised.flac" in str(draw.source) for draw in drawn) and "no music here" in said[0]


def test_recorded_music_takes_the_place_of_the_synthesised(tmp_path: Path, monkeypatch) -> None:
    demo_chatter.noise_folders(tmp_path / "demo")
    for number in range(2):
        soundfile.write(tmp_path / f"{number}.wav", 0.1 * np.ones(16000), 16000)
    monkeypatch.setattr(demo_chatter, "fetch", lambda _: tmp_path)
    folders, said = demo_chatter.noise_folders(tmp_path / "demo")
    names = {name: sorted(path.name for path in (folder / "music").iterdir()) for name, folder in folders.items()}
    assert names["train"] == ["0.flac"] and names["eval"] == ["1.flac"] and not said


def test_same_rows_and_scenes_with_the_arrays_channels(tool, speech, banks, tmp_path: Path) -> None:
    folders = {name: record(tool, speech, tmp_path / name, banks[name], name) for name in banks}
    for name, microphones in (("glasses5", 5), ("aria7", 7)):
        rows = load_wearvox(folders[name] / "wearvox", WearVoxConfig(channels=microphones))
        pairs = load_vgbench(folders[name] / "vgbench" / "manifest.jsonl", VGBenchConfig(audio_channels=microphones))
        assert len(rows) == 6 and len(pairs) > 30
    texts = [(folder / "wearvox" / "data_public.json").read_text() for folder in folders.values()]
    assert texts[0] == texts[1]
    with pytest.raises(ValueError, match="channels"):
        load_wearvox(folders["aria7"] / "wearvox", WearVoxConfig())


def mirrored(folder: Path) -> Path:
    """An array of as many microphones in other places."""
    array = load_array("glasses5")
    (folder / "mirrored.yaml").write_text(yaml.safe_dump({
        **asdict(array), "name": "mirrored", "mouth": list(array.mouth),
        "positions": [[-x, y, z] for x, y, z in array.positions],
    }))  # fmt: skip
    return folder / "mirrored.yaml"


def test_bank_and_array_must_agree_and_clips_be_there(tool, speech, banks, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is of array 'aria7', wanted 'glasses5'"):
        record(tool, speech, tmp_path, banks["aria7"], "glasses5")
    with pytest.raises(ValueError, match="is of array 'glasses5', wanted 'mirrored'"):
        record(tool, speech, tmp_path, banks["glasses5"], str(mirrored(tmp_path)))
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"clips are not in .*empty.*prepare_demo"):
        record(tool, tmp_path / "empty", tmp_path, banks["glasses5"], "glasses5")
