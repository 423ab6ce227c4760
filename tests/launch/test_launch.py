"""The launchers' shared front: what people mistype is answered in one line; ranks share one run folder."""

import errno
import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest
import yaml
from torch.utils.data import DataLoader

from wearllama_launch import LaunchError, compose_config, existing_path, launch

SCRIPT = '''
"""A script for the test."""
from dataclasses import dataclass
from pathlib import Path
from wearllama_launch import launch

@dataclass(kw_only=True)
class Config:
    steps: int = 3
    run_dir: str | None = None

@launch("job", Config, config_dir=Path(__file__).parent / "conf")
def main(config):
    if config.steps < 0:
        raise ValueError("steps is negative")
    print("ran", config.steps, config.run_dir, flush=True)

if __name__ == "__main__":
    main()
'''


@dataclass(kw_only=True)
class Optim:
    learning_rate: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.95)
    schedule: Literal["cosine", "linear"] = "cosine"
    rates: dict[str, float] = field(default_factory=dict)


@dataclass(kw_only=True)
class Job:
    data: str
    optim: Optim = field(default_factory=Optim)
    limit: int | None = None

    def __post_init__(self) -> None:
        if self.limit is not None and self.limit < 1:
            raise ValueError(f"limit is {self.limit}, wanted at least 1")


@dataclass(kw_only=True)
class LinearJob:
    """Its part's defaults are not those of the part's own class."""

    data: str
    optim: Optim = field(default_factory=lambda: Optim(schedule="linear", betas=(0.5, 0.6)))


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    folder = tmp_path / "conf"
    (folder / "optim").mkdir(parents=True)
    (folder / "job.yaml").write_text("defaults:\n  - schema\n  - optim: slow\n  - _self_\n")
    (folder / "optim" / "slow.yaml").write_text("learning_rate: 1e-5\n")
    (folder / "optim" / "fast.yaml").write_text("learning_rate: 0.1\nschedule: linear\n")
    return folder


def test_groups_and_values_become_a_typed_dataclass(conf: Path) -> None:
    config, plain = compose_config("job", Job, ["optim=fast", "data=x", "optim.betas=[0.8,0.9]"], conf)
    assert config == Job(data="x", optim=Optim(learning_rate=0.1, betas=(0.8, 0.9), schedule="linear"))
    assert plain["optim"]["schedule"] == "linear"
    assert compose_config("job", Job, ["data=x"], conf)[0].optim.learning_rate == 1e-5


def test_a_default_of_the_whole_wins_over_that_of_its_part(conf: Path) -> None:
    (conf / "linear_job.yaml").write_text("defaults: [schema]\n")
    config, plain = compose_config("linear_job", LinearJob, ["data=x", "optim.learning_rate=0.5"], conf)
    assert config == LinearJob(data="x", optim=Optim(learning_rate=0.5, schedule="linear", betas=(0.5, 0.6)))
    assert plain["optim"]["schedule"] == "linear"


@pytest.mark.parametrize(
    ("overrides", "parts"),
    [
        (["data=x", "optim.learning_rat=1"], ["unknown key 'optim.learning_rat'", "'optim.learning_rate'"]),
        (["data=x", "learning_rate=1"], ["unknown key 'learning_rate'", "'optim.learning_rate'"]),
        (["data=x", "+optim.fresh=1"], ["unknown key 'optim.fresh'"]),
        (["data=x", "optim=fasst"], ["no optim 'fasst'", "'fast'"]),
        (["data=x", "optin=fast"], ["unknown key 'optin'", "'optim'"]),
        (["data=x", "optim.schedule=cosin"], ["optim.schedule is 'cosin'", "cosine"]),
        (["data=x", "limit=many"], ["limit is 'many'", "whole number"]),
        (["data=x", "limit=true"], ["limit is True", "whole number"]),
        ([], ["data is required"]),
        (["data=a=b"], ["cannot read 'data=a=b'"]),
    ],
)
def test_a_wrong_override_is_one_line_that_names_the_right_one(
    conf: Path, overrides: list[str], parts: list[str]
) -> None:
    with pytest.raises(LaunchError) as caught:
        compose_config("job", Job, overrides, conf)
    assert "\n" not in str(caught.value)
    for part in parts:
        assert part in str(caught.value)


def test_a_mapping_takes_new_keys_and_checks_their_values(conf: Path) -> None:
    for text in ("optim.rates={encoder: 0.1}", "optim.rates.encoder=0.1", "++optim.rates.encoder=0.1"):
        assert compose_config("job", Job, ["data=x", text], conf)[0].optim.rates == {"encoder": 0.1}
    with pytest.raises(LaunchError, match=r"optim\.rates\.encoder is 'fast', wanted a number"):
        compose_config("job", Job, ["data=x", "optim.rates.encoder=fast"], conf)


def test_a_plain_field_may_share_its_name_with_a_folder(conf: Path) -> None:
    (conf / "data").mkdir()
    (conf / "data" / "demo.yaml").write_text("rows: 1\n")
    for value in ("demo", "/a/b.jsonl", "runs/x y"):
        config, plain = compose_config("job", Job, [f"data={value}", "optim=fast"], conf)
        assert config.data == plain["data"] == value
    with pytest.raises(LaunchError, match=r"unknown key 'dta'.*'data'"):
        compose_config("job", Job, ["dta=x"], conf)


def test_an_unknown_key_in_a_yaml_file_is_refused(conf: Path) -> None:
    (conf / "optim" / "slow.yaml").write_text("learning_rte: 1e-5\n")
    with pytest.raises(LaunchError, match=r"optim.learning_rte.*did you mean 'learning_rate'"):
        compose_config("job", Job, ["data=x"], conf)


def test_a_wrong_path_names_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "runs" / "demo" / "checkpoint-200").mkdir(parents=True)
    right = tmp_path / "runs" / "demo" / "checkpoint-200"
    assert existing_path(right, "ckpt") == right
    with pytest.raises(LaunchError, match=r"ckpt=.*did you mean .*runs/demo/checkpoint-200"):
        existing_path(tmp_path / "runs" / "dmo" / "checkpont-200", "ckpt")
    with pytest.raises(LaunchError, match="it holds runs"):
        existing_path(tmp_path / "zzz", "ckpt")


def _script(tmp_path: Path) -> Path:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "job.yaml").write_text("defaults: [schema]\n")
    path = tmp_path / "job.py"
    path.write_text(SCRIPT)
    return path


def test_the_command_exits_with_2_without_a_traceback(tmp_path: Path) -> None:
    script = _script(tmp_path)
    for override, message in [("stps=1", "did you mean 'steps'"), ("steps=-1", "steps is negative")]:
        done = subprocess.run([sys.executable, script, override], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 2
        assert message in done.stderr and "Traceback" not in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize("script", ["recipes/grpo.py", "eval/wearvox.py"])
def test_help_needs_no_required_value(script: str) -> None:
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run([sys.executable, root / script, "--help"], capture_output=True, text=True, cwd=root)
    assert done.returncode == 0, done.stderr
    assert "Run as:" in done.stdout and "ckpt: " in done.stdout


def test_help_says_what_every_key_means_and_may_be_cut_short() -> None:
    root = Path(__file__).resolve().parents[2]
    script = [sys.executable, str(root / "recipes/best_rq.py")]
    quiet = {name: value for name, value in os.environ.items() if name != "WANDB_MODE"}  # transformers prints it
    helped, plain = (
        subprocess.run([*script, flag, "max_steps=9"], capture_output=True, text=True, cwd=root, env=quiet).stdout
        for flag in ("--help", "--cfg")
    )
    shown = helped.partition("config (key=value):")[2]
    assert yaml.safe_load(shown) == yaml.safe_load(plain)
    assert "  # Audio seconds of a batch, padding and both views included.\n  batch_seconds: 110.0\n" in shown
    reader = subprocess.Popen([*script, "--help"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=root, env=quiet)
    assert reader.stdout is not None and reader.stderr is not None
    reader.stdout.close()
    assert reader.stderr.read() == b"" and reader.wait() == 0


def test_two_ranks_share_one_run_folder_that_records_the_launch(tmp_path: Path) -> None:
    script = _script(tmp_path)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2", "--standalone"]
    done = subprocess.run(
        [*torchrun, str(script), "steps=5"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    folders = list((tmp_path / "runs").iterdir())
    assert len(folders) == 1
    assert done.stdout.count(f"ran 5 runs/{folders[0].name}") == 2
    assert yaml.safe_load((folders[0] / "config.yaml").read_text())["steps"] == 5
    [state] = folders[0].glob("launches/*/command.json")
    assert json.loads(state.read_text())["overrides"] == ["steps=5"]


class Unreadable:
    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> str:
        try:
            raise ValueError("3.wav: no such file")
        except ValueError as error:
            raise ValueError(f"example 'row-3': {error}\nwanted a file") from error


def test_an_error_of_a_loader_s_worker_is_its_own_words(
    conf: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @launch("job", Job, config_dir=conf)
    def job(config: Job) -> None:
        list(DataLoader(Unreadable(), num_workers=1))  # type: ignore[arg-type]

    monkeypatch.setattr("sys.argv", ["job", "data=x"])
    with pytest.raises(SystemExit):
        job()
    told = capsys.readouterr().err
    assert told == "error: example 'row-3': 3.wav: no such file wanted a file (WEARLLAMA_TRACEBACK=1 shows where)\n"


def test_a_full_disk_is_one_line(
    conf: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @launch("job", Job, config_dir=conf)
    def job(config: Job) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "run/checkpoint-4/model.safetensors")

    monkeypatch.setattr("sys.argv", ["job", "data=x"])
    with pytest.raises(SystemExit) as stopped:
        job()
    told = capsys.readouterr().err
    assert stopped.value.code == 2 and told.startswith("error: the disk is full") and "checkpoint-4" in told
