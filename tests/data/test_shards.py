"""Shards: the samples of training on the fly, in any worker, after a kill, and only for the recipes rendered."""

import importlib.util
import json
import pickle
import subprocess
import sys
import tarfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from wearllama.audio.array import load_array
from wearllama.audio.beamforming import Beam
from wearllama.audio.io import write_audio
from wearllama.data.dataset import ExampleDataset, MixtureRenderer
from wearllama.data.manifest import Example, example_seed, write_manifest
from wearllama.data.prompts import build_messages
from wearllama.data.sampling import Draw
from wearllama.data.shards import ShardConfig, ShardReader, begin, fingerprint, is_done, shard_items, write_shard
from wearllama.simulation.bank import RirBank, RirEntry, write_bank
from wearllama.simulation.device import IDEAL_DEVICE
from wearllama.simulation.mixing import MixtureRecipe, Segment
from wearllama.simulation.noise import NoiseBank
from wearllama.training.config import TrainConfig
from wearllama.training.data import SftData, load_sets

ROOT = Path(__file__).resolve().parents[2]
CONFIG = ShardConfig(epochs=2, repeats=2, per_shard=7, seed=5)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("shards")
    rng = np.random.default_rng(0)
    fields = dict(azimuth_deg=0.0, elevation_deg=0.0, distance_m=1.0, rt60_s=0.2, drr_db=0.0, room="r", split="train")
    entries = [RirEntry(id=role, role=role, array="glasses5", **fields) for role in ("wearer", "bystander", "noise")]
    rirs = [rng.standard_normal((5, 600)).astype(np.float32) * np.exp(-np.arange(600) / 100) for _ in entries]
    write_bank(path / "bank", entries, rirs, num_channels=5, num_taps=600, pre_samples=16)
    write_audio(path / "a.wav", 0.1 * torch.randn(1, 6000, generator=torch.Generator().manual_seed(1)))
    write_manifest(path / "train.jsonl", examples())
    return path


def examples() -> list[Example]:
    heard = build_messages(system="call a tool")
    rows = [
        Example(
            id=f"mix-{number}", task="tool_call", split="train", messages=heard, target="[Mute]",
            audio={"mixture": MixtureRecipe(
                segments=(Segment(file="a.wav", role=("wearer", "bystander")[number % 2]),), noise_type="Music",
                device=IDEAL_DEVICE if number == 3 else MixtureRecipe().device,
            ).to_dict()},
            metadata={"seconds": 0.8},
        )
        for number in range(5)
    ]  # fmt: skip
    text = build_messages(system="call a tool", user="set an alarm")
    return [*rows, Example(id="text", task="text", split="train", messages=text, target="[Mute]")]


def renderer(data: Path) -> MixtureRenderer:
    return MixtureRenderer(bank=RirBank.open(data / "bank"), noise=NoiseBank(), audio_root=data)


def render_all(data: Path, folder: Path, config: ShardConfig = CONFIG) -> list[list]:
    shards = shard_items(examples(), config)
    begin(folder, fingerprint(examples(), config, renderer(data)), config, len(shards))
    for number, items in enumerate(shards):
        if not is_done(folder, number):
            write_shard(folder, number, items, renderer(data))
    return shards


def dataset(data: Path, render) -> ExampleDataset:
    beam = Beam(fir_MK=np.full((5, 9), 0.05, np.float32), delay_samples=4, array="glasses5")
    return ExampleDataset(
        examples(), root=data, array=load_array("glasses5"), beam=beam, renderer=render, seed=CONFIG.seed
    )


@pytest.mark.parametrize("workers", [0, 2])
def test_samples_are_those_of_rendering_on_the_fly(data: Path, tmp_path: Path, workers: int) -> None:
    render_all(data, tmp_path)
    reader = pickle.loads(pickle.dumps(ShardReader(tmp_path)))
    assert len(reader) == 20
    draws = [[Draw(index, epoch, repeat)] for epoch in range(2) for repeat in range(2) for index in range(6)]
    fly, kept = dataset(data, renderer(data)), dataset(data, reader)
    rendered = DataLoader(fly, batch_sampler=draws, collate_fn=list)
    read = DataLoader(kept, batch_sampler=draws, collate_fn=list, num_workers=workers)
    heard = 0
    for (first,), (second,) in zip(rendered, read, strict=True):
        if first.audio is None:
            assert second.audio is None
            continue
        heard += 1
        assert torch.equal(first.audio[0], second.audio[0]) and torch.equal(first.audio[1], second.audio[1])
    assert heard == 20


def test_tars_are_webdatasets_and_the_same_bytes_wherever_rendered(data: Path, tmp_path: Path) -> None:
    shards = render_all(data, tmp_path / "one")
    render_all(data, tmp_path / "two")
    for path in sorted((tmp_path / "one").iterdir()):
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes(), path.name
    with tarfile.open(tmp_path / "one" / "shard-00000.tar") as tar:
        names = tar.getnames()
        assert [name.rsplit(".", 1)[0] for name in names[::2]] == [name.rsplit(".", 1)[0] for name in names[1::2]]
        first = json.loads(tar.extractfile(names[0]).read())
    assert first["id"] == "mix-0" and first["seed"] == shards[0][0].seed == example_seed("mix-0", seed=5)
    suffixes = {name.split(".")[-1] for name in names}
    assert suffixes == {"json", "flac", "npy"}  # the ideal device's samples are no 16-bit numbers


def test_a_torn_shard_is_rendered_again_and_a_whole_one_is_not(data: Path, tmp_path: Path) -> None:
    render_all(data, tmp_path)
    whole = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    (tmp_path / "shard-00001.index").unlink()
    (tmp_path / "shard-00001.tar").write_bytes(b"torn")
    (tmp_path / "shard-00000.tar").touch()
    with pytest.raises(ValueError, match="1 of 3 shards are missing"):
        ShardReader(tmp_path)
    stamp = (tmp_path / "shard-00000.tar").stat().st_mtime_ns
    render_all(data, tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == whole
    assert (tmp_path / "shard-00000.tar").stat().st_mtime_ns == stamp


def test_both_sides_of_a_pair_are_read(data: Path, tmp_path: Path) -> None:
    """They share a seed and differ in their recipes."""
    pair = examples()[:2]
    for side in pair:
        side.metadata["seed_id"] = "pair-7"
    shards = shard_items(pair, CONFIG)
    begin(tmp_path, fingerprint(pair, CONFIG, renderer(data)), CONFIG, len(shards))
    for number, items in enumerate(shards):
        write_shard(tmp_path, number, items, renderer(data))
    render, reader = renderer(data), ShardReader(tmp_path)
    seed = example_seed("pair-7", epoch=1, repeat=1, seed=5)
    one, other = (side.audio["mixture"] for side in pair)
    assert torch.equal(reader(one, seed), render(one, seed)) and torch.equal(reader(other, seed), render(other, seed))
    assert not torch.equal(reader(one, seed), reader(other, seed))


def test_shards_of_another_seed_are_refused(data: Path, tmp_path: Path) -> None:
    render_all(data, tmp_path / "kept")
    write_manifest(data / "rows.jsonl", examples())
    rows = SftData(manifest=str(data / "rows.jsonl"), bank=str(data / "bank"), shards=str(tmp_path / "kept"))
    processor = SimpleNamespace(array=load_array("glasses5"), beam=None)
    assert load_sets(rows, processor, seed=5).train.seed == 5
    with pytest.raises(ValueError, match=r"rendered for seed 5, train.seed is 1"):
        load_sets(rows, processor, seed=1)
    assert ShardConfig().seed == TrainConfig(warmup_steps=1).seed


def test_what_was_not_rendered_is_refused_or_rendered(data: Path, tmp_path: Path) -> None:
    render_all(data, tmp_path)
    recipe = examples()[0].audio["mixture"]
    later = example_seed("mix-0", epoch=2, seed=5)
    with pytest.raises(ValueError, match="'epochs': 2"):
        ShardReader(tmp_path)(recipe, later)
    assert torch.equal(ShardReader(tmp_path, renderer(data))(recipe, later), renderer(data)(recipe, later))
    with pytest.raises(ValueError, match="another recipe"):
        ShardReader(tmp_path)({**recipe, "snr_db": 3.0}, example_seed("mix-0", seed=5))


def test_a_folder_holds_one_set(data: Path, tmp_path: Path) -> None:
    render_all(data, tmp_path)
    key = fingerprint(examples(), CONFIG, renderer(data))
    changed = examples()
    changed[0] = replace(changed[0], audio={"mixture": {**changed[0].audio["mixture"], "snr_db": 3.0}})
    assert fingerprint(changed, CONFIG, renderer(data)) != key
    with pytest.raises(ValueError, match="holds other shards"):
        begin(tmp_path, fingerprint(changed, CONFIG, renderer(data)), CONFIG, 3)
    with pytest.raises(ValueError, match=r"no .*shards\.json"):
        ShardReader(tmp_path / "nowhere")


def test_the_tool_shares_work_between_machines_and_resumes(data: Path, tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("render_shards", ROOT / "tools" / "render_shards.py")
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    settings = [f"manifest={data}/train.jsonl", f"bank={data}/bank", f"out_dir={tmp_path}", "workers=1"]
    settings += ["shards.epochs=2", "shards.repeats=2", "shards.per_shard=7", "shards.seed=5", "parts=2"]

    def run(part: int) -> int:
        before, sys.argv = sys.argv, ["render_shards", *settings, f"part={part}"]
        try:
            with pytest.raises(SystemExit) as ended:
                tool.main()
        finally:
            sys.argv = before
        return ended.value.code

    assert run(0) == 0
    assert sorted(path.name for path in tmp_path.glob("*.tar")) == ["shard-00000.tar", "shard-00002.tar"]
    assert run(1) == 0 and run(1) == 0
    render_all(data, tmp_path / "direct")
    for path in tmp_path.glob("shard-*"):
        assert path.read_bytes() == (tmp_path / "direct" / path.name).read_bytes()


@pytest.mark.slow
def test_killed_with_workers_and_resumed(data: Path, tmp_path: Path) -> None:
    command = [
        sys.executable, "tools/render_shards.py", f"manifest={data}/train.jsonl", f"bank={data}/bank",
        f"out_dir={tmp_path}", "workers=2", "shards.epochs=2", "shards.repeats=2", "shards.per_shard=1",
        "shards.seed=5",
    ]  # fmt: skip
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None and not list(tmp_path.glob("*.index")):
        pass
    process.kill()
    process.wait()
    assert subprocess.run(command, cwd=ROOT, capture_output=True).returncode == 0
    render_all(data, tmp_path / "direct", replace(CONFIG, per_shard=1))
    for path in (tmp_path / "direct").glob("shard-*"):
        assert path.read_bytes() == (tmp_path / path.name).read_bytes()


def test_a_truncated_shard_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "shards"
    (row, *_) = examples()
    items = shard_items([row], ShardConfig())[0]

    def renderer(recipe: object, seed: int) -> torch.Tensor:
        return torch.full((2, 400), 0.25)

    begin(folder, "key", ShardConfig(), 1)
    write_shard(folder, 0, items, renderer)
    reader = ShardReader(folder)
    assert row.audio is not None
    recipe = row.audio["mixture"]
    assert torch.equal(reader(recipe, items[0].seed), renderer(recipe, 0))
    tar = folder / "shard-00000.tar"
    whole = tar.read_bytes()
    tar.write_bytes(whole[: int(reader._place[0][1]) + 8])
    with pytest.raises(ValueError, match=r"shard-00000.tar, bytes \d+ to \d+: truncated, found 8 of \d+ bytes"):
        reader(recipe, items[0].seed)
    spoilt = bytearray(whole)
    spoilt[int(reader._place[0][1]) : int(reader._place[0][1]) + 8] = b"nonsense"
    tar.write_bytes(bytes(spoilt))
    with pytest.raises(ValueError, match=r"shard-00000.tar, bytes .*: broken"):
        reader(recipe, items[0].seed)
