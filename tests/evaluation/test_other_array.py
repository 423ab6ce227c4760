"""A checkpoint on recordings of another array: its reference and beam, its own results, and what is refused."""

import json
from pathlib import Path

import pytest
import torch

from wearllama.audio.array import load_array
from wearllama.audio.beamforming import apply_beam, design_beam
from wearllama.audio.io import read_audio, write_audio
from wearllama.data.manifest import Clip
from wearllama.evaluation.adapters import CheckpointAdapter
from wearllama.evaluation.commands import RunCommand, run_benchmark, run_folder
from wearllama.evaluation.harness import HarnessConfig
from wearllama.evaluation.report import read_run
from wearllama.evaluation.wearvox import WearVoxConfig, load_wearvox


@pytest.fixture(scope="module")
def aria(ckpt: Path) -> CheckpointAdapter:
    return CheckpointAdapter(ckpt, max_new_tokens=3, device="cpu", array="aria7")


def test_reference_and_beam_are_the_arrays(aria: CheckpointAdapter) -> None:
    array = load_array("aria7")
    audio_MN = torch.randn(7, 3200)
    c0_N, cx_N = aria.processor.select(audio_MN)
    assert torch.equal(c0_N, audio_MN[array.reference]) and array.reference == 1
    assert torch.allclose(cx_N, apply_beam(audio_MN, design_beam(array)), atol=1e-6)
    recorded_N = torch.randn(3200)
    kept = aria.waveforms(Clip(audio_MN, recorded_N))
    assert torch.equal(kept[0], audio_MN[1]) and torch.equal(kept[1], recorded_N)
    with pytest.raises(ValueError, match="5"):
        aria.processor.select(torch.randn(5, 3200))


def test_another_system_with_a_folder_of_its_own(aria: CheckpointAdapter, ckpt: Path) -> None:
    own = CheckpointAdapter(ckpt, max_new_tokens=3, device="cpu")
    assert aria.identity == {**own.identity, "array": "aria7"}
    assert run_folder("out", "wearvox", aria).name == run_folder("out", "wearvox", own).name + "-aria7"
    assert own.processor.array.name == "glasses5"


def test_a_run_on_seven_channels(ckpt: Path, wearvox_data: Path, tmp_path: Path) -> None:
    data = tmp_path / "seven"
    rows = [row for row in json.loads((wearvox_data / "data_public.json").read_text()) if row["task"] == "tool_call"]
    (data / "wav").mkdir(parents=True)
    (data / "wav_mc").mkdir()
    for row in rows:
        audio_MN = read_audio(wearvox_data / row["audio_query_mc"])
        write_audio(data / row["audio_query_mc"], torch.cat([audio_MN, audio_MN[:2]]))
        write_audio(data / row["audio_query"], audio_MN[:1])
    (data / "data_public.json").write_text(json.dumps(rows))
    examples = load_wearvox(data, WearVoxConfig(channels=7))
    command = RunCommand(
        ckpt=str(ckpt), array="aria7", out=str(tmp_path / "out"), max_new_tokens=3, controls=(), clips=1, device="cpu",
        harness=HarnessConfig(progress=False, ttft_items=0),
    )  # fmt: skip
    pages = run_benchmark("wearvox", command, examples, root=data, channels=7)
    assert read_run(pages[0].parent)[0]["systems"][0]["identity"]["array"] == "aria7"


def test_an_unknown_array_is_refused(ckpt: Path) -> None:
    with pytest.raises(ValueError, match="aria9"):
        CheckpointAdapter(ckpt, array="aria9")
