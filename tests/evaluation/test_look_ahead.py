"""A checkpoint whose encoder streams, evaluated with one of the look-aheads that it learnt."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from wearllama.data.manifest import Clip
from wearllama.evaluation.adapters import CheckpointAdapter
from wearllama.evaluation.commands import RunCommand, run_benchmark, run_folder
from wearllama.evaluation.harness import HarnessConfig
from wearllama.evaluation.models import ModelSettings, open_model
from wearllama.evaluation.report import read_run
from wearllama.evaluation.wearvox import WearVoxConfig, load_wearvox

ENCODER = {"subsampling_width": 32, "width": 32, "layers": 2, "heads": 2, "ff_mult": 2, "kernel": 5, "dropout": 0.0}


@pytest.fixture(scope="module")
def streaming(make_checkpoint: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    encoder = {**ENCODER, "causal": True, "contexts": [[70, 6], [70, 0]]}
    return make_checkpoint(tmp_path_factory.mktemp("streaming") / "tiny", encoder_config=encoder)


def hidden(model: CheckpointAdapter, audio_MN: torch.Tensor) -> torch.Tensor:
    """Embeddings of a clip as the adapter's model gives them."""
    features, lengths = model.processor.features([model.waveforms(Clip(audio_MN, None))])
    with torch.no_grad():
        return model.model.embed_audio(features, lengths)[0]


def test_the_chosen_look_ahead_is_heard_and_named(streaming: Path) -> None:
    audio_MN = 0.1 * torch.randn(5, 24_000, generator=torch.Generator().manual_seed(0))
    own, same, other = (CheckpointAdapter(streaming, device="cpu", look_ahead=ahead) for ahead in (None, 6, 0))
    assert torch.equal(hidden(own, audio_MN), hidden(same, audio_MN))
    assert not torch.allclose(hidden(own, audio_MN), hidden(other, audio_MN), atol=1e-3)
    assert own.identity == {name: value for name, value in other.identity.items() if name != "look_ahead"}
    assert other.identity["look_ahead"] == "0"
    folders = {run_folder("out", "wearvox", model).name for model in (own, same, other)}
    assert len(folders) == 3 and any(name.endswith("-ahead0") for name in folders)
    assert other.with_input("silence").model.encoder.look_ahead == 0


@pytest.mark.parametrize("command", [ModelSettings, RunCommand])
def test_what_was_not_trained_is_refused_before_the_run(streaming: Path, ckpt: Path, command: type) -> None:
    with pytest.raises(ValueError, match=r"tiny: look_ahead is 3, wanted one that was trained: \[6, 0\]"):
        open_model(command(ckpt=str(streaming), look_ahead=3))
    with pytest.raises(ValueError, match="look_ahead is 6, but this encoder attends to whole clips"):
        open_model(command(ckpt=str(ckpt), look_ahead=6))
    with pytest.raises(ValueError, match="look_ahead=6 is not read by cascade models"):
        command(model="cascade", look_ahead=6)


def test_a_run_of_the_command(streaming: Path, wearvox_data: Path, tmp_path: Path) -> None:
    command = RunCommand(
        ckpt=str(streaming), look_ahead=0, out=str(tmp_path), max_new_tokens=3, controls=(), clips=1, device="cpu",
        harness=HarnessConfig(progress=False, ttft_items=0),
    )  # fmt: skip
    examples = load_wearvox(wearvox_data, WearVoxConfig())[:2]
    pages = run_benchmark("wearvox", command, examples, root=wearvox_data, channels=5)
    assert read_run(pages[0].parent)[0]["systems"][0]["identity"]["look_ahead"] == "0"
