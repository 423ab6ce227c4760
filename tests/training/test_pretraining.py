"""Encoder pre-training: resume, ranks, export into SFT, distillation without transcripts."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import soundfile
import torch
from safetensors.torch import load_file, save_file

from wearllama.audio.array import load_array
from wearllama.data.audio_folder import AudioClip, load_clips
from wearllama.data.best_rq_batches import FolderSource
from wearllama.modeling.encoder_io import load_encoder, look_back
from wearllama.modeling.factory import ModelConfig, build_model, build_processor
from wearllama.modeling.streaming import StreamingSession
from wearllama.simulation.build import BankConfig, build_bank
from wearllama.simulation.scenes import SceneConfig
from wearllama.training.checkpoint import mark_complete
from wearllama.training.encoder import initial_weights
from wearllama.training.pretraining_config import PretrainingSettings
from wearllama.training.resume import LOG, prepare
from wearllama_launch import compose_config

ROOT = Path(__file__).resolve().parents[2]
QUICK = [
    "max_steps=6", "warmup_steps=1", "decay_steps=2", "save_steps=2", "log_every=1", "bf16=false", "workers=0",
]  # fmt: skip
TINY_ENCODER = ["subsampling_width=16", "width=32", "layers=1", "heads=2", "kernel=5", "dropout=0.1"]
TINY = [*(f"best_rq.encoder.{field}" for field in TINY_ENCODER), "best_rq.codebooks=2", "best_rq.codes=32"]


@pytest.fixture(scope="session")
def best_rq(load_script: Callable[[str, str], ModuleType]) -> ModuleType:
    return load_script("recipes", "best_rq")


@pytest.fixture(scope="session")
def pretrain_encoder(load_script: Callable[[str, str], ModuleType]) -> ModuleType:
    return load_script("recipes", "pretrain_encoder")


@pytest.fixture(scope="session")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight mono files of .8 to 2.2 s."""
    folder = tmp_path_factory.mktemp("recordings")
    rng = np.random.default_rng(0)
    for number in range(8):
        slow = np.repeat(rng.uniform(0.1, 1.0, 23), 1600)[: 12800 + 3200 * number]
        soundfile.write(folder / f"{number}.wav", 0.1 * slow * rng.standard_normal(len(slow)), 16000)
    return folder


@pytest.fixture(scope="session")
def bank(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bank")
    scene = SceneConfig(wearer_poses=1, partners=1, bystanders=1, noises=1)
    build_bank(
        BankConfig(train_rooms=1, eval_rooms=1, taps=1600, scene=scene), load_array("glasses5"), path, progress=False
    )
    return path


Run = Callable[..., None]


@pytest.fixture
def run(best_rq: ModuleType, recordings: Path) -> Run:
    """recipes/best_rq.py in this process, on the recordings unless told otherwise."""

    def start(run_dir: Path, *overrides: str, data: Path = recordings) -> None:
        mixed = any(override.startswith("bank=") for override in overrides)
        cut = [] if mixed else ["clips.batch_seconds=5", "clips.buckets=2"]
        common = [f"data={data}", *cut, f"run_dir={run_dir}"]
        config, _ = compose_config("best_rq", best_rq.BestRq, [*common, *QUICK, *TINY, *overrides])
        best_rq.main.__wrapped__(config)

    return start


def log_lines(run_dir: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (run_dir / LOG).read_text().splitlines()]
    for line in lines:
        line.pop("audio_seconds_per_second", None)
    return lines


@pytest.fixture(scope="module")
def whole_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("whole")


@pytest.fixture
def whole(whole_dir: Path, run: Run) -> Path:
    """Six steps in one go."""
    if not (whole_dir / "encoder").exists():
        run(whole_dir)
    return whole_dir


def assert_same_run(one: Path, other: Path) -> None:
    assert log_lines(one) == log_lines(other)
    left, right = (load_file(path / "checkpoint-6" / "model.safetensors") for path in (one, other))
    assert left.keys() == right.keys()
    for name, tensor in left.items():
        assert torch.equal(tensor, right[name]), name


def test_the_log_says_what_the_codebooks_do(whole: Path) -> None:
    lines = log_lines(whole)
    assert [line["step"] for line in lines] == [1, 2, 3, 4, 5, 6]
    for line in lines:
        assert 0.0 <= line["masked_accuracy"] <= 1.0 and 0.2 < line["masked_fraction"] < 0.9
        assert len(line["perplexity_by_book"]) == len(line["unique_by_book"]) == 2
        assert 1.0 <= min(line["perplexity_by_book"]) <= max(line["unique_by_book"]) <= 32
    assert lines[-1]["loss"] < lines[0]["loss"]


def test_crashed_and_resumed_equals_uninterrupted(
    whole: Path, tmp_path: Path, run: Run, best_rq: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = best_rq.BestRqBatches.__getitem__

    def crash_at_four(self: Any, index: int) -> Any:
        if index == 3:
            raise RuntimeError("the power went")
        return original(self, index)

    monkeypatch.setattr(best_rq.BestRqBatches, "__getitem__", crash_at_four)
    with pytest.raises(RuntimeError):
        run(tmp_path)
    monkeypatch.undo()
    (tmp_path / "checkpoint-3").mkdir()  # as if it had been cut short while it was written
    run(tmp_path, "workers=1")
    assert_same_run(whole, tmp_path)


def test_clips_held_out_are_measured_at_every_checkpoint(
    tmp_path: Path, run: Run, best_rq: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    original = FolderSource._read

    def note(self: FolderSource, clip: AudioClip, rng: np.random.Generator) -> torch.Tensor:
        read.append(clip.file)
        return original(self, clip, rng)

    monkeypatch.setattr(FolderSource, "_read", note)
    run(tmp_path, "held_out=0.25", "max_steps=2", "decay_steps=0", "save_steps=2")
    found = [line for line in log_lines(tmp_path) if "held_out_loss" in line]
    assert [line["step"] for line in found] == [2]
    assert 0 < found[0]["held_out_loss"] < 20 and 0 <= found[0]["held_out_masked_accuracy"] <= 1
    clips = [clip.file for clip in load_clips(tmp_path / "clips.json")]
    kept, out = best_rq.split(clips, compose_config("best_rq", best_rq.BestRq, ["data=x", "held_out=0.25"])[0])
    assert len(out) == 2 and sorted(kept + out) == sorted(clips)
    measured = next(index for index, file in enumerate(read) if file in out)
    assert set(read[:measured]) <= set(kept) and set(read[measured:]) == set(out), "training never sees them"


def test_stopped_by_a_signal_and_resumed_equals_uninterrupted(
    whole: Path, tmp_path: Path, run: Run, best_rq: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = best_rq.BestRqBatches.__getitem__

    def stop_at_four(self: Any, index: int) -> Any:
        if index == 3:
            os.kill(os.getpid(), signal.SIGTERM)
        return original(self, index)

    monkeypatch.setattr(best_rq.BestRqBatches, "__getitem__", stop_at_four)
    with pytest.raises(SystemExit) as left:
        run(tmp_path)
    assert left.value.code == 128 + signal.SIGTERM and not (tmp_path / "encoder").exists()
    monkeypatch.undo()
    run(tmp_path)
    assert_same_run(whole, tmp_path)


def test_a_run_keeps_its_settings_and_its_clips(whole: Path, run: Run, recordings: Path) -> None:
    with pytest.raises(ValueError, match="holds a run of other settings"):
        run(whole, "seed=4")
    assert len(json.loads((whole / "clips.json").read_text())["clips"]) == 8


def test_the_encoder_enters_sft_frozen(whole: Path, tiny: ModelConfig) -> None:
    config = replace(tiny, encoder=str(whole / "encoder"), encoder_config={}, freeze={"encoder": True})
    model = build_model(config, build_processor(config))
    trained = load_file(whole / "checkpoint-6" / "model.safetensors")
    for name, parameter in model.encoder.named_parameters():
        assert not parameter.requires_grad
        torch.testing.assert_close(parameter, trained[f"encoder.{name}"], atol=1e-3, rtol=1e-3)
    exported = load_file(whole / "encoder" / "encoder.safetensors")
    assert all(name.startswith("encoder.") for name in exported)


def test_no_steps_export_the_encoder_as_it_starts(tmp_path: Path, run: Run, whole: Path) -> None:
    run(tmp_path, "max_steps=0")
    random = load_encoder(tmp_path / "encoder").state_dict()
    assert any(
        not torch.allclose(random[name], value) for name, value in load_encoder(whole / "encoder").state_dict().items()
    )
    assert not list(tmp_path.glob("checkpoint-*"))


def test_init_takes_everything_or_the_encoder_alone(
    tmp_path: Path, whole: Path, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    run(tmp_path / "all", "max_steps=0", f"init={whole}")
    assert "only the encoder" not in capsys.readouterr().out
    run(tmp_path / "other", "max_steps=0", f"init={whole}", "best_rq.codes=16")
    assert "only the encoder is taken" in capsys.readouterr().out
    for name in ("all", "other"):
        weights = load_file(tmp_path / name / "encoder" / "encoder.safetensors")
        assert all(
            torch.equal(w, v)
            for w, v in zip(
                weights.values(), load_file(whole / "encoder" / "encoder.safetensors").values(), strict=True
            )
        )
    with pytest.raises(ValueError, match=r"encoder weights differ, first encoder\."):
        run(tmp_path / "wider", "max_steps=0", f"init={whole}", "best_rq.encoder.width=16")


def test_two_views_of_mixtures(tmp_path: Path, run: Run, bank: Path, capsys: pytest.CaptureFixture[str]) -> None:
    few = ["max_steps=2", "warmup_steps=0", "decay_steps=0", "scenes.batch_seconds=8", "scenes.max_seconds=6"]
    run(tmp_path, *few, f"bank={bank}", "channels=mc")
    assert log_lines(tmp_path)[-1]["masked_frames"] % 2 == 0
    with pytest.raises(ValueError, match="is of array 'glasses5', wanted 'aria7'"):
        run(tmp_path / "aria7", *few, f"bank={bank}", "channels=mc", "array=aria7")
    with pytest.raises(ValueError, match="channels=mono with a bank"):
        run(tmp_path / "mono", *few, f"bank={bank}")


def test_two_ranks_take_the_step_of_two_accumulated_batches(tmp_path: Path, recordings: Path, run: Run) -> None:
    plain, ranks = tmp_path / "plain", tmp_path / "ranks"
    same = ["best_rq.encoder.dropout=0.0", "max_steps=2", "warmup_steps=0", "decay_steps=0"]
    run(plain, *same, "accumulation=2")
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", "recipes/best_rq.py",
        f"data={recordings}", "clips.batch_seconds=5", "clips.buckets=2", f"run_dir={ranks}", *QUICK, *TINY, *same,
    ]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stderr[-3000:]
    for one, two in zip(log_lines(plain), log_lines(ranks), strict=True):
        assert one["loss"] == pytest.approx(two["loss"], rel=1e-5)
        assert one["masked_frames"] == two["masked_frames"] and one["unique_by_book"] == two["unique_by_book"]
    left, right = (load_file(path / "checkpoint-2" / "model.safetensors") for path in (plain, ranks))
    for name, tensor in left.items():
        torch.testing.assert_close(tensor, right[name], atol=2e-5, rtol=1e-3)


def test_a_teacher_alone_needs_no_transcripts(
    tmp_path: Path, recordings: Path, bank: Path, pretrain_encoder: ModuleType
) -> None:
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for path in recordings.glob("*.wav"):
        (corpus / path.name).symlink_to(path)
    alone = [f"model.{name}_weight=0" for name in ("piece", "char", "band", "role", "drr")]
    encoder = [f"model.encoder.{field}" for field in TINY_ENCODER]
    overrides = [
        f"corpus={corpus}", f"bank={bank}", f"run_dir={tmp_path / 'run'}", "scenes.batch_seconds=8", *alone, *encoder,
        "model.char_layer=1", "model.teacher_width=6", *QUICK, "max_steps=3",
    ]  # fmt: skip
    config, _ = compose_config("pretrain_encoder", pretrain_encoder.PretrainEncoder, overrides)
    with pytest.raises(ValueError, match=r"teacher: no features of these utterances"):
        pretrain_encoder.main.__wrapped__(config)
    (corpus / "teacher").mkdir()
    rng = np.random.default_rng(1)
    for path in recordings.glob("*.wav"):
        np.save(corpus / "teacher" / f"{path.name}.npy", rng.standard_normal((9, 6)).astype(np.float16))
    pretrain_encoder.main.__wrapped__(config)
    with pytest.raises(ValueError, match="holds a run of other settings"):
        pretrain_encoder.main.__wrapped__(replace(config, learning_rate=1e-4))
    with pytest.raises(ValueError, match=r"validation_voices has \['nobody'\]"):
        pretrain_encoder.main.__wrapped__(replace(config, validation_voices=["nobody"]))
    lines = log_lines(tmp_path / "run")
    assert len(lines) == 3 and "piece" not in lines[0] and "char" not in lines[0]
    assert lines[0]["loss"] == pytest.approx(lines[0]["teacher"], abs=1e-3)
    assert load_encoder(tmp_path / "run" / "encoder").config.width == 32
    assert not (tmp_path / "run" / "encoder" / "pieces.json").exists()


def test_a_streaming_encoder_starts_from_one_of_whole_clips(
    tmp_path: Path, recordings: Path, bank: Path, pretrain_encoder: ModuleType, tiny: ModelConfig
) -> None:
    corpus = tmp_path / "corpus"
    (corpus / "teacher").mkdir(parents=True)
    rng = np.random.default_rng(1)
    for path in recordings.glob("*.wav"):
        (corpus / path.name).symlink_to(path)
        np.save(corpus / "teacher" / f"{path.name}.npy", rng.standard_normal((9, 6)).astype(np.float16))

    def train(name: str, *overrides: str) -> Path:
        alone = [f"model.{task}_weight=0" for task in ("piece", "char", "band", "role", "drr")]
        encoder = [f"model.encoder.{field}" for field in TINY_ENCODER]
        settings = [
            f"corpus={corpus}", f"bank={bank}", f"run_dir={tmp_path / name}", "scenes.batch_seconds=8", *alone,
            *encoder, "model.char_layer=1", "model.teacher_width=6", *QUICK, *overrides,
        ]  # fmt: skip
        config, _ = compose_config("pretrain_encoder", pretrain_encoder.PretrainEncoder, settings)
        pretrain_encoder.main.__wrapped__(config)
        return tmp_path / name / "encoder"

    whole = train("whole", "max_steps=3")
    kinds = ["model.encoder.causal=true", "model.encoder.contexts=[[70,6],[70,0]]", f"init={whole}"]
    start = load_encoder(train("start", "max_steps=0", *kinds))
    for name, weight in look_back(load_encoder(whole).state_dict()).items():
        assert torch.equal(start.state_dict()[name], weight), name
    trained = train("streaming", "max_steps=3", *kinds)
    encoder = load_encoder(trained)
    assert encoder.config.causal and encoder.config.contexts == [[70, 6], [70, 0]]
    assert not torch.equal(encoder.subsampling.out.weight, start.subsampling.out.weight)
    further = load_encoder(train("further", "max_steps=0", *kinds[:2], f"init={trained}"))  # looks back already
    assert torch.equal(further.blocks[0].convolution.depthwise.weight, encoder.blocks[0].convolution.depthwise.weight)
    config = replace(tiny, encoder=str(trained), encoder_config={}, freeze={"encoder": True})
    processor = build_processor(config)
    model = build_model(config, processor).eval()
    messages = [{"role": "user", "content": [{"type": "audio"}]}]
    session = StreamingSession(model, processor, messages, look_ahead=0, max_new_tokens=2)
    assert session.push(0.1 * torch.randn(5, 16_000)) > 0


def test_folders_from_before_the_markers_go_on(tmp_path: Path) -> None:
    (tmp_path / "checkpoint-4").mkdir()
    (tmp_path / "checkpoint-4" / "model.safetensors").write_bytes(b"weights")
    prepare(tmp_path, None)
    assert (tmp_path / "checkpoint-4" / "model.safetensors").is_file() and (tmp_path / LOG).is_file()
    (tmp_path / "checkpoint-5").mkdir()
    prepare(tmp_path, None)
    assert not (tmp_path / "checkpoint-5").exists() and (tmp_path / "checkpoint-4").exists()


def test_the_log_is_cut_back_to_the_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "checkpoint-2").mkdir()
    prepare(tmp_path, None)
    (tmp_path / LOG).write_text('{"step": 1}\n{"step": 2}\n{"step": 3}\n{"st')
    prepare(tmp_path, None)
    assert (tmp_path / LOG).read_text() == '{"step": 1}\n{"step": 2}\n'


def test_init_takes_no_checkpoint_that_was_cut_short(tmp_path: Path) -> None:
    for step, whole in (2, True), (4, False):
        folder = tmp_path / f"checkpoint-{step}"
        folder.mkdir()
        save_file({"weight": torch.tensor([float(step)])}, folder / "model.safetensors")
        if whole:
            mark_complete(folder, {})
    (tmp_path / LOG).touch()
    assert initial_weights(tmp_path)["weight"].item() == 2.0
    (tmp_path / "checkpoint-2" / "complete.json").unlink()
    with pytest.raises(ValueError, match="nor a whole checkpoint"):
        initial_weights(tmp_path)
    (tmp_path / LOG).unlink()
    assert initial_weights(tmp_path)["weight"].item() == 4.0, "a run from before checkpoints were marked"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (["noise_folders=[x]"], "is not read without a bank"),
        (["bank=x", "clips.resample=true"], "clips.resample=True is"),
    ],
)
def test_settings_of_the_other_source_are_refused(best_rq: ModuleType, changes: list[str], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        compose_config("best_rq", best_rq.BestRq, ["data=x", *changes])


def test_bad_settings_are_named() -> None:
    for changes, word in [
        ({"max_steps": 10}, "do not fit into max_steps = 10"),
        ({"accumulation": 0}, "accumulation is 0"),
        ({"workers": -1}, "workers is -1"),
    ]:
        with pytest.raises(ValueError, match=word):
            PretrainingSettings(**changes)
