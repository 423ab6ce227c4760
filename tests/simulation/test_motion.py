"""Heads that turn and walk: poses in the bank, cross-faded responses in the mixture."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.signal
import torch

from wearllama.audio.array import load_array
from wearllama.audio.io import write_audio
from wearllama.simulation.bank import RirBank
from wearllama.simulation.build import BankConfig, build_bank
from wearllama.simulation.device import IDEAL_DEVICE
from wearllama.simulation.mixing import MixtureRecipe, Segment, render
from wearllama.simulation.motion import MotionConfig, Pose, draw_poses, draw_track, fade_weights
from wearllama.simulation.moving import follow, room_poses
from wearllama.simulation.noise import NoiseBank
from wearllama.simulation.scenes import SceneConfig
from wearllama.simulation.spaces import RoomSpec

ARRAY = load_array("glasses5")
NOISE = NoiseBank()
SCENE = SceneConfig(wearer_poses=1, partners=1, bystanders=0, noises=0, diffuse=0, rt60_s=(0.15, 0.2))
STILL = BankConfig(train_rooms=2, eval_rooms=0, taps=2400, scene=SCENE)


def moving(turning: float) -> BankConfig:
    motion = MotionConfig(share=1.0, turning=turning, turn_deg=(30, 30), turn_step_deg=15.0, walk_m=(0.45, 0.45))
    return replace(STILL, scene=replace(SCENE, motion=motion))


@pytest.fixture(scope="module")
def turning_bank(tmp_path_factory: pytest.TempPathFactory) -> RirBank:
    return build_bank(moving(1.0), ARRAY, tmp_path_factory.mktemp("turning"), progress=False)


@pytest.fixture(scope="module")
def noise_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("noise")
    signal_N = np.random.default_rng(0).standard_normal(48_000) * 0.05
    write_audio(path / "n.wav", torch.from_numpy(signal_N[None]).float())
    return path


def test_poses_are_added_and_change_nothing_else(turning_bank: RirBank, tmp_path: Path) -> None:
    still = build_bank(STILL, ARRAY, tmp_path, progress=False)
    first = turning_bank.select(pose=0)
    assert [turning_bank.entries[i].id for i in first] == [entry.id for entry in still.entries]
    for index, same in enumerate(first):
        np.testing.assert_array_equal(still.rir(index), turning_bank.rir(same))
    assert [pose.turn_deg for pose in room_poses(turning_bank, "train_00000")] == [-30, -15, 0, 15, 30]
    assert len(turning_bank) == 5 * len(still) and turning_bank.select() == first


def test_a_turned_head_hears_the_partner_from_elsewhere_and_itself_as_before(turning_bank: RirBank) -> None:
    for index in turning_bank.select(pose=2, room="train_00000"):
        entry = turning_bank.entries[index]
        (base,) = turning_bank.select(source=entry.source, room=entry.room)
        before = turning_bank.entries[base]
        direct, direct_before = turning_bank.rir(index)[:, :48], turning_bank.rir(base)[:, :48]
        if entry.role == "wearer":
            np.testing.assert_allclose(direct, direct_before, atol=0.02 * np.abs(direct).max())
        else:
            turned = (entry.azimuth_deg - before.azimuth_deg + 180) % 360 - 180
            assert turned == pytest.approx(-30, abs=0.1)  # the head turned left, so the partner went right
            assert entry.distance_m == pytest.approx(before.distance_m, abs=0.03)


def test_neighbouring_poses_hear_one_sound_field(turning_bank: RirBank) -> None:
    """The late field at the nose, which hardly moves when the head turns, stays coherent at low frequency."""
    sos = scipy.signal.butter(4, 700, fs=16_000, output="sos")
    (partner,) = turning_bank.select(role="partner", room="train_00000")
    path = follow(tuple((float(p), p) for p in range(-2, 3)), turning_bank, partner)
    tails = [scipy.signal.sosfilt(sos, turning_bank.rir(rir)[0].astype(float))[850:] for _, rir in path]
    likeness = [np.corrcoef(tails[i], tails[i + 1])[0, 1] for i in range(4)]
    (wearer,) = turning_bank.select(role="wearer", room="train_00000")
    other = scipy.signal.sosfilt(sos, turning_bank.rir(wearer)[0].astype(float))[850:]
    assert min(likeness) > 0.6 > abs(np.corrcoef(tails[2], other)[0, 1]) + 0.2


def test_walks_end_before_walls_and_people() -> None:
    room = RoomSpec(size_m=(5, 4, 2.5), rt60_s=0.3, head_m=(3.9, 2.0, 1.6), yaw_deg=0.0)
    config = MotionConfig(share=1.0, turning=0.0, walk_m=(2.0, 2.0), walk_step_m=0.2)
    poses = draw_poses(config, room, [], np.random.default_rng(0))
    assert [p.ahead_m for p in poses] == pytest.approx([0.0, 0.2, 0.4, 0.6, 0.8])
    person = [np.array([4.6, 2.0, 1.6])]
    assert len(draw_poses(config, room, person, np.random.default_rng(0))) == 2


def test_tracks_run_along_neighbours_at_human_speed() -> None:
    poses = [Pose(number, number * 10.0, 0.0) for number in range(-5, 6)]
    for seed in range(50):
        track = draw_track(poses, 3.0, np.random.default_rng(seed))
        steps = np.diff([pose for _, pose in track])
        seconds = np.diff([time for time, _ in track])
        assert len(track) >= 2 and (np.all(steps == 1) or np.all(steps == -1))
        assert np.all(10 / seconds >= 29.9) and np.all(10 / seconds <= 150.1) and track[0][0] >= 0


def test_fades_add_up_to_one() -> None:
    path = ((0.5, 3), (0.7, 4), (1.0, 5))
    total = np.zeros(32_000)
    for low, weight_N in fade_weights(path, 4_000, 32_000):
        total[low : low + len(weight_N)] += weight_N
        assert np.all(weight_N >= 0)
    np.testing.assert_allclose(total, 1.0, atol=1e-6)
    pieces = fade_weights(path, 40_000, 100)  # starts after the whole path
    assert [len(weight_N) for _, weight_N in pieces] == [0, 0, 100] and pieces[2][1].min() == 1.0


def test_a_moving_source_is_the_sum_of_faded_convolutions(turning_bank: RirBank, noise_dir: Path) -> None:
    (partner,) = turning_bank.select(role="partner", room="train_00000")
    path = follow(((0.5, -2), (1.0, 0), (1.2, 2)), turning_bank, partner)
    segment = Segment(file="n.wav", role="partner", start_s=0.25, path=path)
    recipe = MixtureRecipe(segments=[segment], snr_db=None, effort_db=0.0, device=IDEAL_DEVICE, level_dbfs=-25.0)
    mixture = render(recipe, bank=turning_bank, noise=NOISE, seed=0, audio_root=noise_dir)
    dry_N = np.random.default_rng(0).standard_normal(48_000)
    expected_MN = np.zeros((5, 60_000))
    for (low, weight_N), (_, rir) in zip(fade_weights(path, 4_000, 48_000), path, strict=True):
        piece_N = dry_N[low : low + len(weight_N)] * weight_N
        for channel, rir_K in enumerate(turning_bank.rir(rir)):
            image_N = scipy.signal.fftconvolve(piece_N, rir_K)
            start = 4_000 + low - turning_bank.pre_samples
            expected_MN[channel, start : start + len(image_N)] += image_N
    found_MN = mixture.audio_MN.numpy()
    expected_MN = expected_MN[:, : found_MN.shape[1]]
    scale = np.sum(expected_MN * found_MN) / np.sum(expected_MN**2)
    assert np.abs(found_MN - scale * expected_MN).max() < 2e-4 * np.abs(found_MN).max()
    assert [name for _, name in mixture.metadata["sources"][0]["path"]] == [turning_bank.entries[i].id for _, i in path]


def test_a_turn_keeps_the_level_on_its_way(turning_bank: RirBank, noise_dir: Path) -> None:
    (wearer,) = turning_bank.select(role="wearer", room="train_00001")
    path = follow(tuple((0.5 + 0.4 * (pose + 2), pose) for pose in range(-2, 3)), turning_bank, wearer)
    segment = Segment(file="n.wav", role="wearer", path=path)
    recipe = MixtureRecipe(segments=[segment], snr_db=None, device=IDEAL_DEVICE, level_dbfs=-25.0)
    audio_MN = render(recipe, bank=turning_bank, noise=NOISE, seed=0, audio_root=noise_dir).audio_MN.numpy()
    frames = audio_MN[:, 1_600:46_400].reshape(5, 28, 1_600)
    level_db = 10 * np.log10(np.mean(frames**2, axis=2))
    assert np.ptp(level_db, axis=1).max() < 2.0


def test_mixtures_move_as_often_as_asked_and_all_sources_together(turning_bank: RirBank, noise_dir: Path) -> None:
    segments = [Segment(file="n.wav", role="wearer"), Segment(file="n.wav", role="partner", start_s=1.0)]
    recipe = MixtureRecipe(segments=segments, snr_db=None, moving=0.5)
    mixtures = [render(recipe, bank=turning_bank, noise=NOISE, seed=s, audio_root=noise_dir) for s in range(12)]
    moved = [mixture for mixture in mixtures if "motion" in mixture.metadata]
    assert 2 <= len(moved) <= 10
    for mixture in moved:
        poses = [[name.rsplit("_", 1)[-1] for _, name in s["path"]] for s in mixture.metadata["sources"]]
        assert len(poses[0]) == len(mixture.metadata["motion"]) == len(poses[1])
    again = render(recipe, bank=turning_bank, noise=NOISE, seed=3, audio_root=noise_dir)
    assert torch.equal(again.audio_MN, mixtures[3].audio_MN)
    still = MixtureRecipe(segments=segments, snr_db=None)
    unmoved = next(s for s in range(12) if "motion" not in mixtures[s].metadata)
    same = render(still, bank=turning_bank, noise=NOISE, seed=unmoved, audio_root=noise_dir)
    assert torch.equal(same.audio_MN, mixtures[unmoved].audio_MN)
    assert MixtureRecipe.from_dict(recipe.to_dict()) == recipe


@pytest.mark.parametrize("kind", ["Vacuum Cleaning", "Quiet Office"])
def test_noise_moves_past_the_head(tmp_path: Path, kind: str) -> None:
    """After the turn, c_0 * h_1 == c_1 * h_0 for the responses h of the last pose, and not for those of the first."""
    motion = MotionConfig(share=1.0, turning=1.0, turn_deg=(30, 30), turn_step_deg=15.0)
    scene = replace(SCENE, partners=0, noises=1, diffuse=1, motion=motion)
    bank = build_bank(BankConfig(train_rooms=1, eval_rooms=0, taps=2400, scene=scene), ARRAY, tmp_path, progress=False)
    recipe = MixtureRecipe(segments=[], noise_type=kind, snr_db=10.0, duration_s=6.0, moving=1.0, device=IDEAL_DEVICE)
    heard = render(recipe, bank=bank, noise=NOISE, seed=1, audio_root=tmp_path)
    steps = heard.metadata["motion"]
    pose = {turn.turn_deg: turn.number for turn in room_poses(bank, heard.metadata["room"])}[steps[-1]["turn_deg"]]
    assert pose != 0
    role = "diffuse" if kind == "Quiet Office" else "noise"
    since = round(steps[-1]["time_s"] * 16_000) + bank.num_taps

    def mismatch(pose: int) -> float:
        rir_MK = bank.rir(bank.select(role=role, pose=pose)[0]).astype(float)
        c_MN = heard.audio_MN[:2, since:].double().numpy()
        one_N, other_N = (scipy.signal.fftconvolve(c_MN[m], rir_MK[1 - m], mode="valid") for m in (0, 1))
        return float(np.sqrt(np.mean((one_N - other_N) ** 2) / np.mean(one_N**2)))

    assert mismatch(pose) < 0.02 and mismatch(0) > 0.1


def test_bad_paths_are_refused(turning_bank: RirBank, noise_dir: Path) -> None:
    with pytest.raises(ValueError, match="not in order of time"):
        Segment(file="n.wav", role="wearer", path=((1.0, 0), (0.5, 1)))
    with pytest.raises(ValueError, match="both rir 3 and a path"):
        Segment(file="n.wav", role="wearer", rir=3, path=((1.0, 0),))
    recipe = MixtureRecipe(segments=[Segment(file="n.wav", role="wearer", path=((0.0, 999),))])
    with pytest.raises(ValueError, match=r"entries \[999\]"):
        render(recipe, bank=turning_bank, noise=NOISE, seed=0, audio_root=noise_dir)
    with pytest.raises(ValueError, match="no response for the poses"):
        follow(((0.0, 9),), turning_bank, 0)
    with pytest.raises(ValueError, match="share"):
        MotionConfig(share=2.0)
