import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from wearllama.audio.array import load_array
from wearllama.simulation.bank import RirBank
from wearllama.simulation.build import BankConfig, bank_is_built, build_bank, config_hash
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


def test_a_killed_build_goes_on_and_two_workers_give_the_same_bits(tmp_path: Path, reference_bank: RirBank) -> None:
    script = tmp_path / "build.py"
    script.write_text(SCRIPT)
    command = [sys.executable, str(script), str(tmp_path / "bank")]
    first = subprocess.Popen([*command, "1"])
    parts = tmp_path / "bank" / "parts" / config_hash(TINY, ARRAY)
    deadline = time.monotonic() + 60
    while not list(parts.glob("*.npz")) and first.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    assert not bank_is_built(TINY, ARRAY, tmp_path / "bank")
    kept = {path: path.stat().st_mtime_ns for path in parts.glob("*.npz")}
    assert kept
    (parts / "train_00001.99999.tmp").write_bytes(b"torn")
    subprocess.run([*command, "2"], check=True)
    assert same(RirBank.open(tmp_path / "bank"), reference_bank)
    assert not (tmp_path / "bank" / "parts").exists()


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
