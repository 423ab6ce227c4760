"""Other channels at test time: what is heard, other keys and folders, and errors that name the channel."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from wearllama.audio.array import load_array
from wearllama.audio.beamforming import apply_beam
from wearllama.data.manifest import Clip
from wearllama.evaluation.adapters import CheckpointAdapter
from wearllama.evaluation.commands import RunCommand, run_benchmark, run_folder
from wearllama.evaluation.harness import HarnessConfig
from wearllama.evaluation.pairs import ChannelPair, parse_pairs
from wearllama.evaluation.report import read_run
from wearllama.evaluation.wearvox import WearVoxConfig, load_wearvox


@pytest.fixture(scope="module")
def model(ckpt: Path) -> CheckpointAdapter:
    return CheckpointAdapter(ckpt, max_new_tokens=3, device="cpu")


def pair(text: str) -> ChannelPair:
    (found,) = parse_pairs(text)
    assert found is not None
    return found


def test_first_name_takes_the_beams_place(model: CheckpointAdapter) -> None:
    audio_MN, beam_N = torch.randn(5, 3200), torch.randn(3200)
    clip = Clip(audio_MN, beam_N)
    c0_N, cx_N = model.with_pair(pair("c_x-c_1")).waveforms(clip)
    assert torch.equal(c0_N, audio_MN[1]) and torch.equal(cx_N, beam_N)
    c0_N, cx_N = model.with_pair(pair("c_0-c_1")).waveforms(clip)
    assert torch.equal(c0_N, audio_MN[1]) and torch.equal(cx_N, audio_MN[0])
    _, designed_N = model.with_pair(pair("c_x-c_3")).waveforms(Clip(audio_MN, None))
    assert torch.equal(designed_N, apply_beam(audio_MN, model.processor.beam))


def test_c0_is_the_reference_wherever_the_array_has_it() -> None:
    array = load_array("aria7")
    assert array.reference == 1
    clip = Clip(torch.randn(7, 100), torch.randn(100))
    wanted = {"c_0": 1, "c_1": 0, "c_2": 2, "c_6": 6}
    for name, index in wanted.items():
        heard, _ = ChannelPair(("c_x", name)).waveforms(clip, array, beam=None)  # type: ignore[arg-type]
        assert torch.equal(heard, clip.audio_MN[index]), name


def test_a_pair_is_another_system_but_the_own_one_is_not(model: CheckpointAdapter) -> None:
    assert model.with_pair(None) is model and model.with_pair(pair("c_x-c_0")) is model
    other = model.with_pair(pair("c_0-c_1"))
    assert other.identity == {**model.identity, "pair": "c_0-c_1"} and "pair" not in model.identity
    assert other.with_input("silence").pair == other.pair


def test_table_of_pairs(ckpt: Path, wearvox_data: Path, tmp_path: Path) -> None:
    names = ("c_x-c_0", "c_x-c_1", "c_0-c_1")
    command = RunCommand(
        ckpt=str(ckpt), out=str(tmp_path), controls=(), max_new_tokens=2, device="cpu", clips=1, pair=names,
        harness=HarnessConfig(progress=False),
    )  # fmt: skip
    examples = load_wearvox(wearvox_data, WearVoxConfig())
    pages = run_benchmark("wearvox", command, examples, root=wearvox_data, channels=5)
    folder = run_folder(tmp_path, "wearvox", CheckpointAdapter(ckpt))
    assert [page.parent for page in pages] == [folder, folder / "pairs" / "c_x-c_1", folder / "pairs" / "c_0-c_1"]
    results, _ = read_run(folder / "pairs" / "c_0-c_1")
    assert results["systems"][0]["identity"]["pair"] == "c_0-c_1"
    table = (folder / "pairs" / "pairs.md").read_text()
    assert "other channels" in table and [name for name in names if f"| {name} clean |" in table] == list(names)


def test_adaptations_under_pairs_and_conditions(ckpt: Path, wearvox_data: Path, tmp_path: Path) -> None:
    """Each lies in a folder of its own under the model's; pieces of a recording refuse conditions."""
    command = RunCommand(
        ckpt=str(ckpt), out=str(tmp_path), controls=("silence",), max_new_tokens=2, device="cpu", clips=1,
        pair=("own", "c_0-c_1"), condition=("clean", "tempo:2"), adaptation="measured",
        harness=HarnessConfig(progress=False),
    )  # fmt: skip
    examples = load_wearvox(wearvox_data, WearVoxConfig())
    pages = run_benchmark("wearvox", command, examples, root=wearvox_data, channels=5)
    main = run_folder(tmp_path, "wearvox", CheckpointAdapter(ckpt)) / "adaptations" / "measured"
    folders = [folder / at for folder in (main, main / "pairs" / "c_0-c_1") for at in ("", "conditions/tempo_2")]
    assert [page.parent for page in pages] == folders and (main / "pairs" / "pairs.md").is_file()
    identity = read_run(folders[3])[0]["systems"][1]["identity"]
    assert identity["adaptation"] == "measured" and identity["input"] == "silence"
    assert identity["pair"] == "c_0-c_1" and identity["condition"] == "tempo:2"
    with pytest.raises(ValueError, match="drawn anew for each piece"):
        run_benchmark("wearvox", replace(command, adaptation="chunked"), examples, root=wearvox_data, channels=5)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("c_x,c_1", "cannot be read"),
        ("c_x", "hears 2"),
        ("c_x-c_5", "no c_5 in an array of 5"),
        ("beam-c_0", "wanted own"),
    ],
)
def test_errors_name_the_channel(model: CheckpointAdapter, text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        model.with_pair(pair(text))
