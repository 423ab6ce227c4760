"""tools/listen.py plays a file to a streaming checkpoint; tools/benchmark.py ttft ends in its line of JSON."""

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch

from wearllama.audio.io import write_audio
from wearllama.modeling.factory import ModelConfig, build_model, build_processor

ENCODER = {
    "subsampling_width": 16, "width": 32, "layers": 1, "heads": 2, "ff_mult": 2, "kernel": 3, "causal": True,
    "contexts": [[70, 6], [70, 0]],
}  # fmt: skip
DECODER = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2,
           "num_key_value_heads": 2, "max_position_embeddings": 2048}  # fmt: skip


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoint")
    torch.manual_seed(0)
    config = ModelConfig(name="test", encoder_config=ENCODER, decoder_config=DECODER, freeze={})
    processor = build_processor(config)
    build_model(config, processor).save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("it's here") / "clip.wav"
    write_audio(file, 0.05 * torch.randn(5, 12_345, generator=torch.Generator().manual_seed(0)))
    return file


def test_listening_shows_the_gate_and_the_reply(
    load_script: Callable[[str, str], ModuleType],
    checkpoint: Path,
    recording: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    listen = load_script("tools", "listen")
    arguments = [f"ckpt={checkpoint}", str(recording), "pace=0", "look_ahead=0", "max_new_tokens=3"]
    monkeypatch.setattr("sys.argv", ["listen.py", *listen.with_file_first(arguments)])
    with pytest.raises(SystemExit) as left:
        listen.main()
    out = capsys.readouterr().out
    assert left.value.code == 0, out
    lines = out.replace("\r", "\n").splitlines()
    heard = [line for line in lines if "dBFS" in line]
    assert len(heard) == 10 and "P([Mute])    -" in heard[0] and "%" in heard[-1]
    for title in ("said", "action", "P([Mute])", "time"):
        assert any(line.startswith(title) for line in lines)


def test_benchmark_reports_both_ratios(
    load_script: Callable[[str, str], ModuleType], checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ttft = load_script("tools", "benchmarks.ttft")
    model, processor = ttft.checkpoint(str(checkpoint))
    config = ttft.TtftBenchmark(ckpt=str(checkpoint), look_ahead=6, rounds=1, fast=True)
    times, gap = ttft.measure(config, model, processor)
    found = ttft.ratios(times)
    ttft.report(config, "test", model, times, found, gap)
    assert set(found) == {"stream_over_whole_10s", "with_last_piece_10s", "t30_over_t3"}
    assert 0 < found["stream_over_whole_10s"] < 1
    assert "stream_over_whole_10s" in capsys.readouterr().out
    with pytest.raises(ValueError, match="3, 10 and 30"):
        ttft.TtftBenchmark(seconds=[3.0])


def test_checkpoints_keep_the_contexts(checkpoint: Path) -> None:
    assert json.loads((checkpoint / "config.json").read_text())["encoder"]["contexts"] == [[70, 6], [70, 0]]
