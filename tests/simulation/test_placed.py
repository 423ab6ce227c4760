"""Scenes by hand: the same samples for the same scene, levels that follow places, errors that name who stands where."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from wearllama.audio.array import load_array
from wearllama.audio.beamforming import design_beam, select_channels
from wearllama.simulation.device import IDEAL_DEVICE
from wearllama.simulation.mixing import Mixture
from wearllama.simulation.noise import NoiseBank
from wearllama.simulation.placed import SPACES, Place, PlacedScene, Talker, place_bank, render_placed

ARRAY = load_array("glasses5")
TAPS = 2400


def scene(*talkers: Talker, space: str = "street", **changes: object) -> PlacedScene:
    return PlacedScene(space=SPACES[space], talkers=talkers, device=IDEAL_DEVICE, taps=TAPS, **changes)  # type: ignore[arg-type]


def bystander(distance_m: float, azimuth_deg: float = 0.0, **changes: object) -> Talker:
    place = Place(azimuth_deg=azimuth_deg, distance_m=distance_m)
    return Talker(role="bystander", file="a.wav", place=place, **changes)  # type: ignore[arg-type]


def rendered(placed: PlacedScene, folder: Path) -> Mixture:
    return render_placed(placed, ARRAY, noise=NoiseBank(), audio_root=folder)


def test_the_same_scene_is_the_same_samples_and_others_stay_when_one_moves(voices_dir: Path, tmp_path: Path) -> None:
    wearer, other = Talker(role="wearer", file="b.wav"), bystander(1.0, start_s=0.5)
    placed = scene(wearer, other, space="living room")
    assert torch.equal(rendered(placed, voices_dir).audio_MN, rendered(placed, voices_dir).audio_MN)
    moved = replace(placed, talkers=(wearer, bystander(1.6, 40.0)))
    before, after = place_bank(placed, ARRAY, tmp_path / "a"), place_bank(moved, ARRAY, tmp_path / "b")
    changed = [not np.array_equal(before.rir(i), after.rir(i)) for i in range(len(before))]
    assert [entry.role for entry in before.entries] == ["wearer", "wearer", "bystander", "diffuse"]
    assert changed == [False, False, True, False]


def test_levels_follow_distance_and_the_beam_tells_the_wearer(voices_dir: Path) -> None:
    levels = {}
    for distance in (1.0, 2.0):
        levels[distance] = rendered(scene(bystander(distance)), voices_dir).metadata["sources"][0]["level_dbfs"]
    assert levels[1.0] - levels[2.0] == pytest.approx(6.0, abs=1.0)
    ratios = {}
    for name, talker in (("own", Talker(role="wearer", file="a.wav")), ("other", bystander(1.0, 60.0))):
        c0_N, cx_N = select_channels(rendered(scene(talker), voices_dir).audio_MN, ARRAY, design_beam(ARRAY))
        ratios[name] = float(10 * torch.log10(cx_N.square().sum() / c0_N.square().sum()))
    assert ratios["own"] == pytest.approx(0.0, abs=0.5) and ratios["other"] < -2.0
    source = rendered(scene(bystander(2.0, 60.0)), voices_dir).metadata["sources"][0]
    assert (source["azimuth_deg"], source["distance_m"]) == (60.0, pytest.approx(2.0, abs=0.1))
    facing, turned = (
        rendered(scene(replace(bystander(1.0), place=Place(turn_deg=t))), voices_dir) for t in (0.0, 180.0)
    )
    assert facing.audio_MN.square().sum() > 1.5 * turned.audio_MN.square().sum()


def test_noise_has_its_level_and_its_place(voices_dir: Path) -> None:
    quiet, loud = (
        rendered(scene(Talker(role="wearer", file="a.wav"), noise_type="Music", noise_dba=dba), voices_dir).metadata
        for dba in (50.0, 80.0)
    )
    assert quiet["lombard_db"] == 0.0 and loud["lombard_db"] == 15.0
    assert quiet["snr_measured_db"] - loud["snr_measured_db"] == pytest.approx(15.0, abs=0.1)
    assert rendered(scene(), voices_dir).audio_MN.abs().max() == 0.0
    for name in SPACES:
        rendered(scene(noise_type="Wind", space=name), voices_dir)


def test_errors_say_who_stands_where() -> None:
    with pytest.raises(ValueError, match=r"bystander at 90 degrees, 3 m.*not inside the shoebox"):
        scene(bystander(3.0, 90.0), space="living room")
    with pytest.raises(ValueError, match="noise at 120 degrees"):
        scene(space="car", noise_type="Music")
    with pytest.raises(ValueError, match=r"distance_m is 0\.01"):
        Place(distance_m=0.01)
    with pytest.raises(ValueError, match="role is 'noise'"):
        Talker(role="noise", file="a.wav")
