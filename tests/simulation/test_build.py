import json
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from wearllama.audio.array import load_array
from wearllama.simulation.bank import BankError, RirBank
from wearllama.simulation.bank_config import BankConfig, Shard, config_hash, with_count
from wearllama.simulation.build import bank_is_built, build_bank, rooms_to_build
from wearllama.simulation.scenes import SceneConfig, draw_scene, scene_rng

ARRAY = load_array("glasses5")
SCENE = SceneConfig(wearer_poses=1, partners=1, bystanders=0, noises=0, diffuse=0, rt60_s=(0.15, 0.2))
TINY = BankConfig(train_rooms=2, eval_rooms=1, taps=1600, scene=SCENE)

SCRIPT = """
import sys
from wearllama.audio.array import load_array
from wearllama.simulation.build import BankConfig, build_bank
from wearllama.simulation.scenes import SceneConfig
if __name__ == "__main__":
    scene = SceneConfig(wearer_poses=1, partners=1, bystanders=0, noises=0, diffuse=0, rt60_s=(0.15, 0.2))
    config = BankConfig(train_rooms=2, eval_rooms=1, taps=1600, scene=scene)
    build_bank(config, load_array("glasses5"), sys.argv[1], workers=int(sys.argv[2]), progress=False)
"""


@pytest.fixture(scope="module")
def reference_bank(tmp_path_factory: pytest.TempPathFactory) -> RirBank:
    return build_bank(TINY, ARRAY, tmp_path_factory.mktemp("reference"), progress=False)


def same(first: RirBank, second: RirBank) -> bool:
    equal = all(np.array_equal(first.rir(i), second.rir(i)) for i in range(len(first)))
    return equal and first.entries == second.entries


def kill_when(ready: Callable[[], object], command: list[str]) -> list[int]:
    """Start a build, kill -9 it as soon as ``ready``; returns the ids of its workers."""
    build = subprocess.Popen(command)
    children = Path(f"/proc/{build.pid}/task/{build.pid}/children")
    deadline = time.monotonic() + 120
    while not ready() and build.poll() is None and time.monotonic() < deadline:
        time.sleep(0.002)
    workers = [int(pid) for pid in children.read_text().split()] if children.exists() else []
    os.kill(build.pid, signal.SIGKILL)
    if build.wait() != -signal.SIGKILL:
        pytest.skip("the build was faster than the kill")
    return workers


def test_a_killed_build_goes_on_and_two_workers_give_the_same_bits(tmp_path: Path, reference_bank: RirBank) -> None:
    command = [sys.executable, str(tmp_path / "build.py"), str(tmp_path / "bank")]
    (tmp_path / "build.py").write_text(SCRIPT)
    parts = tmp_path / "bank" / "parts" / config_hash(TINY, ARRAY)
    kill_when(lambda: list(parts.glob("*.npz")), [*command, "1"])
    assert not bank_is_built(TINY, ARRAY, tmp_path / "bank")
    kept = {path: path.stat().st_mtime_ns for path in parts.glob("*.npz")}
    assert kept and len(rooms_to_build(TINY, ARRAY, tmp_path / "bank")) == 3 - len(kept)
    (parts / "train_00001.99999.tmp").write_bytes(b"torn")
    subprocess.run([*command, "2"], check=True)
    assert same(RirBank.open(tmp_path / "bank"), reference_bank)
    assert not (tmp_path / "bank" / "parts").exists()


def test_four_workers_give_the_same_bits(tmp_path: Path, reference_bank: RirBank) -> None:
    (tmp_path / "build.py").write_text(SCRIPT)
    subprocess.run([sys.executable, str(tmp_path / "build.py"), str(tmp_path / "bank"), "4"], check=True)
    assert same(RirBank.open(tmp_path / "bank"), reference_bank)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_workers_of_a_killed_build_end_and_what_they_wrote_is_whole(tmp_path: Path, reference_bank: RirBank) -> None:
    command = [sys.executable, str(tmp_path / "build.py"), str(tmp_path / "bank"), "2"]
    (tmp_path / "build.py").write_text(SCRIPT)
    parts = tmp_path / "bank" / "parts" / config_hash(TINY, ARRAY)
    workers = kill_when(lambda: list(parts.glob("*")), command)
    deadline = time.monotonic() + 60
    while any(Path(f"/proc/{pid}").exists() for pid in workers) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert len(workers) >= 2 and not any(Path(f"/proc/{pid}").exists() for pid in workers)
    for path in parts.glob("*.npz"):
        with np.load(path) as part:
            assert part["rirs"].shape == (2, 5, 1600)
    subprocess.run([*command[:-1], "4"], check=True)
    assert same(RirBank.open(tmp_path / "bank"), reference_bank)


def test_a_build_killed_while_it_joins_its_rooms_leaves_no_bank(tmp_path: Path, reference_bank: RirBank) -> None:
    command = [sys.executable, str(tmp_path / "build.py"), str(tmp_path / "bank"), "1"]
    (tmp_path / "build.py").write_text(SCRIPT)
    bank = tmp_path / "bank"
    kill_when(lambda: list(bank.glob(".rirs.npy.*")) or (bank / "rirs.npy").exists(), command)
    if not (bank / "meta.json").exists():
        with pytest.raises(BankError):
            RirBank.open(bank)
    subprocess.run(command, check=True)
    assert same(RirBank.open(bank), reference_bank)
    assert sorted(path.name for path in bank.iterdir()) == ["index.jsonl", "meta.json", "rirs.npy"]


def test_shards_together_are_the_whole_bank(tmp_path: Path, reference_bank: RirBank) -> None:
    for text in ("1/2", "2/2"):
        shard = Shard.parse(text)
        build_bank(TINY, ARRAY, tmp_path, progress=False, shard=shard)
        assert bank_is_built(TINY, ARRAY, tmp_path, shard)
        if text == "1/2":
            with pytest.raises(BankError, match="shard-002-of-002"):
                RirBank.open(tmp_path)
    bank = RirBank.open(tmp_path)
    assert same(bank, reference_bank) and bank.select(role="partner") == reference_bank.select(role="partner")
    assert bank_is_built(TINY, ARRAY, tmp_path) and bank.num_taps == 1600
    copied = pickle.loads(pickle.dumps(bank))
    np.testing.assert_array_equal(copied.rir(len(bank) - 1), reference_bank.rir(len(bank) - 1))
    with pytest.raises(IndexError):
        bank.rir(len(bank))


def test_shards_of_different_settings_do_not_mix(tmp_path: Path) -> None:
    one = BankConfig(train_rooms=2, eval_rooms=0, taps=800, scene=SCENE)
    build_bank(one, ARRAY, tmp_path, progress=False, shard=Shard(number=1, count=2))
    other = BankConfig(train_rooms=2, eval_rooms=0, taps=800, seed=1, scene=SCENE)
    build_bank(other, ARRAY, tmp_path, progress=False, shard=Shard(number=2, count=2))
    with pytest.raises(BankError, match="different config_hash"):
        RirBank.open(tmp_path)


@pytest.mark.parametrize("text", ["3/2", "0/2", "two", "1-2", "1/"])
def test_shards_are_named_as_they_should_be(text: str) -> None:
    with pytest.raises(ValueError, match="shard"):
        Shard.parse(text)


def test_shards_cover_all_rooms_in_order() -> None:
    config = with_count(BankConfig(), 1000)
    assert len(config.rooms()) * config.scene.sources >= 1000 and config.eval_rooms == len(config.rooms()) // 20
    for count in (1, 3, 7, 84):
        parts = [Shard(number=number, count=count).of(config.rooms()) for number in range(1, count + 1)]
        assert [room for part in parts for room in part] == config.rooms()
    with pytest.raises(ValueError, match="only 84 rooms"):
        Shard(number=1, count=85).of(config.rooms())


def test_settings_that_came_later_leave_the_stamp_of_older_banks() -> None:
    assert config_hash(BankConfig(), ARRAY) == "f813a72cd9b0f9b4"
    moving = BankConfig(scene=SceneConfig(kinds={"car": 1.0}))
    assert config_hash(moving, ARRAY) != config_hash(BankConfig(), ARRAY)


def test_a_built_bank_is_kept_and_other_settings_rebuild_it(tmp_path: Path) -> None:
    one = BankConfig(train_rooms=1, eval_rooms=0, taps=800, scene=SCENE)
    build_bank(one, ARRAY, tmp_path, progress=False)
    before = (tmp_path / "rirs.npy").stat().st_mtime_ns
    build_bank(one, ARRAY, tmp_path, progress=False)
    assert (tmp_path / "rirs.npy").stat().st_mtime_ns == before
    assert not bank_is_built(BankConfig(train_rooms=1, eval_rooms=0, taps=800, seed=1, scene=SCENE), ARRAY, tmp_path)
    meta = json.loads((tmp_path / "meta.json").read_text())
    assert meta["array"]["name"] == "glasses5" and meta["config"]["taps"] == 800


def test_more_rooms_do_not_change_those_there_are() -> None:
    config = SceneConfig()
    first = draw_scene(config, ARRAY, "eval", 0, scene_rng(0, "eval", 0))
    again = draw_scene(config, ARRAY, "eval", 0, scene_rng(0, "eval", 0))
    other = draw_scene(config, ARRAY, "train", 0, scene_rng(0, "train", 0))
    assert first.space == again.space != other.space


def test_scenes_keep_people_where_they_may_be() -> None:
    for index in range(40):
        scene = draw_scene(SceneConfig(), ARRAY, "train", index, scene_rng(5, "train", index))
        for source in scene.sources:
            position_3 = source.emitter.position_3
            if position_3 is None or source.role == "wearer":
                continue
            assert scene.space.holds(np.array(scene.space.head_m) + scene.space.to_room(position_3), 0.0)
            distance = np.linalg.norm(position_3)
            azimuth = abs(np.rad2deg(np.arctan2(position_3[0], position_3[2])))
            if source.role == "partner" and distance > 0.6:
                assert azimuth <= 60.01 and distance <= 2.01
            if source.role == "bystander":
                assert 0.3 < distance <= 4.01


def test_configs_refuse_nonsense() -> None:
    with pytest.raises(ValueError, match="taps 10"):
        BankConfig(taps=10)
    with pytest.raises(ValueError, match="partner_distance_m"):
        SceneConfig(partner_distance_m=(2.0, 1.0))
    with pytest.raises(ValueError, match="split"):
        scene_rng(0, "test", 0)
