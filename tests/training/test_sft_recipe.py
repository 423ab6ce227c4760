"""recipes/sft.py: its configs, what it refuses, and when it has nothing to do."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from wearllama.training.checkpoint import (
    completed_facts,
    last_complete_checkpoint,
    mark_complete,
    remove_incomplete_checkpoints,
)
from wearllama.training.config import TrainConfig, one_device, training_arguments
from wearllama.training.provenance import Origin
from wearllama_launch import LaunchError, compose_config

ROOT = Path(__file__).resolve().parents[2]


EXPERIMENTS = sorted(path.stem for path in (ROOT / "conf" / "experiment").glob("*.yaml"))
SIZES = ("tiny", "demo", "smollm2")


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_composes(
    recipe: ModuleType, load_script: Callable[[str, str], ModuleType], name: str
) -> None:
    if name.endswith("_grpo"):
        command = load_script("recipes", "grpo").GrpoCommand
        config, _ = compose_config("grpo", command, [f"experiment={name}", "data.manifest=x", "ckpt=x"])
    else:
        config, _ = compose_config("sft", recipe.SftCommand, [f"experiment={name}", "data.manifest=x"])
        assert config.model.name in SIZES
        assert name.startswith("voxgate") or name in (
            config.model.name,
            *(f"{config.model.name}_{stage}" for stage in ("text", "asr")),
        )
    assert config.train.warmup_steps < config.train.steps


def test_encoder_is_short_for_model_encoder(recipe: ModuleType) -> None:
    config, _ = compose_config("sft", recipe.SftCommand, ["experiment=demo", "encoder=scratch"])
    assert config.model.encoder == "scratch"
    assert not config.model.frozen_parts["encoder"]  # random features are never frozen


def test_a_stored_encoder_in_a_random_ones_place_is_frozen_when_asked(recipe: ModuleType) -> None:
    """experiment=tiny has encoder=scratch: the choice of the folder must not come after the freeze was let go."""
    overrides = ["experiment=tiny", "data.manifest=x", "model.freeze.encoder=true"]
    random, _ = compose_config("sft", recipe.SftCommand, overrides)
    stored, _ = compose_config("sft", recipe.SftCommand, [*overrides, "encoder=packaged"])
    assert random.model.encoder == "scratch" and not random.model.frozen_parts["encoder"]
    assert stored.model.frozen_parts["encoder"]


@pytest.mark.parametrize(
    ("override", "right"),
    [
        ("experiment=dmeo", "'demo'"),
        ("model=smollm", "'smollm2'"),
        ("train.learning_rat=1", "'train.learning_rate'"),
        ("model.chanels=mc", "'model.channels'"),
        ("train.schedule=cosin", "'cosine'"),
    ],
)
def test_a_mistyped_override_names_the_right_one(recipe: ModuleType, override: str, right: str) -> None:
    with pytest.raises(LaunchError, match=right):
        compose_config("sft", recipe.SftCommand, ["data.manifest=x", override])


def test_bad_training_settings_are_refused() -> None:
    for changes, word in [
        ({"steps": 0}, "train.steps"),
        ({"warmup_steps": 1000}, "train.warmup_steps"),
        ({"keep_checkpoints": 1}, "train.keep_checkpoints"),
        ({"learning_rate": 3.0}, "train.learning_rate"),
        ({"deepspeed": "conf/nothing.json"}, "no such file"),
        ({"decay_steps": 10}, "train.schedule=wsd"),
    ]:
        with pytest.raises(ValueError, match=word):
            TrainConfig(**changes)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"zero_optimization": {"stage": 3}}, "stage is 3, train.parallel is zero2"),
        ({"zero_optimization": {"stage": 2}, "optimizer": {"type": "AdamW"}}, "has its own optimizer"),
        ({"zero_optimization": {"stage": 2}, "scheduler": {"type": "WarmupLR"}}, "has its own scheduler"),
    ],
)
def test_a_deepspeed_file_that_says_otherwise_is_refused(tmp_path: Path, settings: dict[str, Any], said: str) -> None:
    own = tmp_path / "own.json"
    own.write_text(json.dumps(settings))
    with pytest.raises(ValueError, match=said):
        TrainConfig(parallel="zero2", deepspeed=str(own))


def test_resume_never_sets_a_run_of_other_settings_aside(manifest: Path, tmp_path: Path) -> None:
    def run(*overrides: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "recipes/sft.py", "experiment=tiny", f"data.manifest={manifest}",
                   f"run_dir={tmp_path}", *overrides]  # fmt: skip
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300,
                              env={**os.environ, "OMP_NUM_THREADS": "1"})  # fmt: skip

    assert run("train.steps=2").returncode == 0
    again = run("train.steps=3", "resume=never")
    assert again.returncode == 0, again.stderr
    assert completed_facts(tmp_path / "final")["steps"] == 3
    [old] = tmp_path.glob("before-*/final")
    assert completed_facts(old)["steps"] == 2


def test_the_fingerprint_follows_a_pretrained_decoders_files(recipe: ModuleType, tmp_path: Path) -> None:
    rows, decoder = tmp_path / "rows.jsonl", tmp_path / "decoder"
    rows.write_text("{}\n")
    decoder.mkdir()

    def mark() -> str:
        overrides = ["experiment=tiny", f"data.manifest={rows}", f"model.decoder={decoder}", "model.tokenizer=decoder"]
        return recipe.origin(compose_config("sft", recipe.SftCommand, overrides)[0]).fingerprint

    found = [mark()]
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (decoder / name).write_text("{}")
        found.append(mark())
    assert len(set(found)) == 4


def test_the_fingerprint_follows_what_decides_the_weights(recipe: ModuleType, tmp_path: Path) -> None:
    manifest = tmp_path / "rows.jsonl"
    manifest.write_text("{}\n")

    def mark(*overrides: str) -> str:
        base = ["experiment=tiny", f"data.manifest={manifest}"]
        return recipe.origin(compose_config("sft", recipe.SftCommand, [*base, *overrides])[0]).fingerprint

    first = mark()
    assert mark("run_dir=elsewhere", "train.workers=3", "train.log_every=5", "changed=restart") == first
    assert mark("train.steps=9") != first
    manifest.write_text('{"more": 1}\n')
    assert mark() != first


def test_a_changed_run_is_refused_or_set_aside(
    recipe: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text("{}\n")
    first, other = (Origin({"train": {"steps": steps}, "align": True}, [rows]) for steps in (3, 4))
    assert not recipe.is_trained(tmp_path, first, "refuse")
    recipe.claim(tmp_path, first)
    (tmp_path / "final").mkdir()
    mark_complete(tmp_path / "final", {"fingerprint": first.fingerprint})
    assert recipe.is_trained(tmp_path, first, "refuse")
    assert first.differences(tmp_path) == []
    with pytest.raises(LaunchError, match=r"\(train.steps 3 -> 4\).*changed=restart"):
        recipe.is_trained(tmp_path, other, "refuse")
    rows.write_text("{}\n{}\n")
    more = Origin({"train": {"steps": 3}}, [rows, manifest_of(tmp_path)])
    assert not recipe.is_trained(tmp_path, more, "restart")
    said = capsys.readouterr().out
    assert f"align true -> null; {tmp_path}/more.jsonl is new; {rows} has another content\n" in said
    assert not (tmp_path / "final").exists() and len(list(tmp_path.glob("before-*/final"))) == 1


def manifest_of(folder: Path) -> Path:
    """Another file of rows."""
    (folder / "more.jsonl").write_text("{}\n")
    return folder / "more.jsonl"


def test_only_whole_checkpoints_are_resumed_from(tmp_path: Path) -> None:
    for step, whole in [(2, True), (10, True), (12, False)]:
        folder = tmp_path / f"checkpoint-{step}"
        folder.mkdir()
        if whole:
            mark_complete(folder, {"step": step})
    assert last_complete_checkpoint(tmp_path) == tmp_path / "checkpoint-10"
    assert remove_incomplete_checkpoints(tmp_path) == [tmp_path / "checkpoint-12"]
    assert completed_facts(tmp_path / "checkpoint-12") is None
    assert last_complete_checkpoint(tmp_path / "nowhere") is None


def test_sigterm_to_every_process_of_a_job_leaves_a_checkpoint(manifest: Path, tmp_path: Path) -> None:
    """As schedulers send it before they take a machine away: workers get it too."""
    run_dir = tmp_path / "run"
    command = [
        sys.executable, "recipes/sft.py", "experiment=tiny", f"data.manifest={manifest}", f"run_dir={run_dir}",
        "train.steps=2000", "train.save_every=2000", "train.log_every=1", "train.workers=2", "train.use_cpu=true",
    ]  # fmt: skip
    settings = {**os.environ, "OMP_NUM_THREADS": "1"}
    with (tmp_path / "log").open("wb") as log:
        job = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, env=settings, start_new_session=True)
    log_file, deadline = run_dir / "log.jsonl", time.monotonic() + 300
    while job.poll() is None and not (log_file.is_file() and log_file.read_bytes().count(b"\n") > 2):
        assert time.monotonic() < deadline, (tmp_path / "log").read_text()[-2000:]
        time.sleep(0.05)
    os.killpg(job.pid, signal.SIGTERM)
    assert job.wait(timeout=120) == 128 + signal.SIGTERM, (tmp_path / "log").read_text()[-2000:]
    assert last_complete_checkpoint(run_dir) is not None


def test_a_process_trains_on_one_device(tmp_path: Path) -> None:
    arguments = training_arguments(TrainConfig(), tmp_path)
    arguments._n_gpu = 8  # as on a machine with eight that were not divided among processes
    assert one_device(arguments).n_gpu == 1


def test_a_row_that_cannot_be_read_ends_the_command(manifest: Path, tmp_path: Path) -> None:
    """With one line, and with its workers: they ignore what would end them while a step is to be finished."""
    row = json.loads(manifest.read_text().splitlines()[0])
    row["audio"]["mc"] = "absent.wav"
    rows = tmp_path / "rows.jsonl"
    rows.write_text(json.dumps(row) + "\n")
    done = subprocess.run(
        [sys.executable, "recipes/sft.py", "experiment=tiny", f"data.manifest={rows}", f"run_dir={tmp_path / 'run'}",
         "train.workers=2", "train.use_cpu=true", "train.report_to=none"],
        cwd=ROOT, capture_output=True, text=True, timeout=300, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    [told] = [line for line in done.stderr.splitlines() if "error: " in line]
    assert "error: example 'row-00': " in told and "absent.wav: no such file" in told
