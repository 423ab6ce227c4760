"""A head measured in directions behaves as that head; a room compared with itself agrees, with another does not."""

from pathlib import Path

import numpy as np
import pytest
import scipy.fft
import scipy.signal

from wearllama.audio.array import load_array
from wearllama.audio.beamforming import design_beam
from wearllama.simulation.bank import RirBank
from wearllama.simulation.bank_config import BankConfig, HeadConfig, config_hash
from wearllama.simulation.bank_files import RirEntry, write_bank
from wearllama.simulation.build import build_bank
from wearllama.simulation.comparing import Row, compare, distinct, measured_figures, simulated_figures
from wearllama.simulation.heads import HeadResponses, face_reflection
from wearllama.simulation.measured_head import MeasuredHead
from wearllama.simulation.rooms import Emitter, render_response
from wearllama.simulation.scenes import SceneConfig
from wearllama.simulation.spaces import RoomSpec

ARRAY = load_array("glasses5")
SPHERE = HeadResponses(ARRAY)
SOFT = HeadResponses(ARRAY, face_hz=1200.0)
AZIMUTHS = np.arange(0, 360, 6)
LAB = RoomSpec(size_m=(6.0, 4.5, 2.7), rt60_s=0.35, head_m=(2.2, 2.0, 1.2), yaw_deg=20.0)


def entry(name: str, role: str, azimuth: float, rt60: float = 0.0, distance: float = 1.5) -> RirEntry:
    return RirEntry(
        id=f"{name}_{role}", role=role, azimuth_deg=azimuth, elevation_deg=0.0, distance_m=distance, rt60_s=rt60,
        drr_db=20.0, room="lab", split="eval", array="glasses5", kind="measured",
    )  # fmt: skip


@pytest.fixture(scope="module")
def directions(tmp_path_factory: pytest.TempPathFactory) -> RirBank:
    """The soft sphere, measured with a loudspeaker that rolls off at both ends."""
    path = tmp_path_factory.mktemp("directions")
    sos = scipy.signal.butter(1, (200, 6000), "bandpass", fs=16_000, output="sos")
    rirs, entries = [], []
    for azimuth in AZIMUTHS:
        angle = np.deg2rad(azimuth)
        towards_3 = np.array([np.sin(angle), 0.0, np.cos(angle)])
        rir_MK = scipy.fft.irfft(SOFT.point(towards_3 * 50.0, 4096), 4096)
        start = np.argmax(np.abs(rir_MK[0])) - 32
        rirs.append(scipy.signal.sosfilt(sos, rir_MK[:, start : start + 200]) * 50.0 * 0.3)
        entries.append(entry(f"d{azimuth}", "noise", float((azimuth + 180) % 360 - 180)))
    write_bank(path, entries, rirs, num_channels=5, num_taps=200, pre_samples=32, dtype="float32")
    return RirBank.open(path)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> RirBank:
    """A room that was "measured" by simulating it with the soft sphere: own voice and two loudspeakers."""
    path = tmp_path_factory.mktemp("lab")
    entries = [entry("lab_mouth", "wearer", 0.0, 0.35, 0.05)]
    emitters = [Emitter(position_3=ARRAY.mouth_3, facing_3=np.array([0.0, 0.0, 1.0]), own_voice=True)]
    for name, azimuth in (("front", 0.0), ("left", 40.0)):
        entries.append(entry(f"lab_{name}", "partner", azimuth, 0.35))
        towards_3 = np.array([np.sin(np.deg2rad(azimuth)), 0.0, np.cos(np.deg2rad(azimuth))])
        emitters.append(Emitter(position_3=towards_3 * 1.5, facing_3=-towards_3, directivity="monitor"))
    rng = np.random.default_rng(0)
    rirs = [render_response(LAB, SOFT, emitter, taps=6400, pre_samples=32, rng=rng).rir_MK for emitter in emitters]
    room = {"size_m": LAB.size_m, "head_m": LAB.head_m, "yaw_deg": LAB.yaw_deg}
    extra = {"measured": {"rooms": {"lab": room}}}
    write_bank(path, entries, rirs, num_channels=5, num_taps=6400, pre_samples=32, dtype="float32", extra=extra)
    return RirBank.open(path)


def ratios_db(spectra_XMF: np.ndarray) -> np.ndarray:
    """Each microphone against c_0 over 300 Hz to 6 kHz, (..., M, F)."""
    power = np.abs(spectra_XMF[..., 10:192]) ** 2
    return 10 * np.log10(power / power[..., :1, :])


def test_a_measured_head_is_the_head_that_was_measured(directions: RirBank, lab: RirBank) -> None:
    head = MeasuredHead(ARRAY, directions, lab)
    level = [row for row in range(len(head.directions_D3)) if abs(head.directions_D3[row, 1]) < 1e-6]
    assert len(level) == len(AZIMUTHS) and len(head.directions_D3) > len(AZIMUTHS) + 40
    for azimuth in (0, 60, 180, 300):
        towards_3 = np.array([np.sin(np.deg2rad(azimuth)), 0.0, np.cos(np.deg2rad(azimuth))])
        found, true = head.point(towards_3 * 2, 512), SOFT.point(towards_3 * 2, 512)
        assert np.median(np.abs(ratios_db(found) - ratios_db(true))) < 0.5
        phase = np.angle(found[:, 10:100] * true[:, 10:100].conj() / np.abs(found * true)[:, 10:100])
        assert np.median(np.abs(phase - phase[:1])) < 0.1  # the loudspeaker's own phase is common to all
    own = 10 * np.log10(np.abs(head.own_voice(512)) ** 2) - 10 * np.log10(np.abs(SOFT.own_voice(512)) ** 2)
    assert np.median(np.abs(own[:, 10:190])) < 0.7


def test_the_loudspeakers_colour_is_taken_out(directions: RirBank, lab: RirBank) -> None:
    head = MeasuredHead(ARRAY, directions, lab)
    found = np.mean(np.abs(head.plane_spectra(512)[: len(AZIMUTHS), 0]) ** 2, axis=0)
    true = np.mean(np.abs(SOFT.plane_spectra(512)[:, 0]) ** 2, axis=0)
    assert np.abs(10 * np.log10(found / true))[8:192].max() < 3.0


def test_a_soft_face_takes_the_echo_away_from_the_light_only() -> None:
    keep_XF = face_reflection(np.array([1.0, 0.0, -1.0]), np.array([100.0, 8000.0]), 1200.0)
    assert keep_XF[0, 0] > 0.98 and keep_XF[0, 1] < 0.05 and np.all(keep_XF[2] == 1.0)
    ahead_3 = np.array([0.0, 0.0, 2.0])
    sharp, soft = ratios_db(SPHERE.point(ahead_3, 512)), ratios_db(SOFT.point(ahead_3, 512))
    assert sharp[1, 150:].mean() < -6 < -3 < soft[1, 150:].mean()


def test_banks_of_other_heads(directions: RirBank, lab: RirBank, tmp_path: Path) -> None:
    scene = SceneConfig(wearer_poses=2, partners=1, bystanders=0, noises=0, diffuse=0, rt60_s=(0.2, 0.2))
    measured = HeadConfig(directions=str(directions.path), mouth=str(lab.path))
    configs = [
        BankConfig(train_rooms=1, eval_rooms=0, taps=1600, scene=scene, head=head)
        for head in (HeadConfig(), HeadConfig(face_hz=1200.0), measured)
    ]
    assert len({config_hash(config, ARRAY) for config in configs}) == 3
    banks = [build_bank(c, ARRAY, tmp_path / str(i), progress=False) for i, c in enumerate(configs)]
    assert all(len(bank) == 3 for bank in banks)
    assert not np.array_equal(banks[0].rir(2), banks[1].rir(2))
    own = banks[0].rir(0)[:, :48]  # its direct sound is the same, its echoes are not
    np.testing.assert_allclose(banks[1].rir(0)[:, :48], own, atol=2e-3 * np.abs(own).max())
    with pytest.raises(ValueError, match="another array"):
        MeasuredHead(load_array("aria7"), directions, lab)
    with pytest.raises(ValueError, match="0 anechoic directions"):
        MeasuredHead(ARRAY, lab, lab)
    with pytest.raises(ValueError, match="belong together"):
        HeadConfig(directions="somewhere")
    with pytest.raises(ValueError, match="face_hz"):
        HeadConfig(face_hz=5.0)


def test_a_room_agrees_with_its_own_simulation_and_not_with_another_heads(lab: RirBank) -> None:
    beam = design_beam(ARRAY)
    measured = measured_figures(lab, "lab", beam)
    assert list(measured) == ["lab_mouth_wearer", "lab_front_partner", "lab_left_partner"]
    simulated = {
        name: simulated_figures(lab, "lab", head, beam, draws=3) for name, head in (("own", SOFT), ("other", SPHERE))
    }
    rows = compare(measured, simulated)
    good = {name: sum(int(row.within(name).sum()) for row in rows) for name in simulated}
    total = sum(len(row.measured) for row in rows)
    assert good["own"] > 0.93 * total and good["other"] < good["own"] - 3
    cue = rows[0]
    assert cue.what.startswith("cue") and np.all(cue.within("own")) and cue.measured[0] > 6


def test_rows_judge_decibels_and_shares() -> None:
    numbers = np.array([1.0, 100.0])
    row = Row(what="x", columns=("a", "b"), measured=numbers, simulated={"s": numbers + 3.5})
    assert row.within("s").tolist() == [False, False]
    row = Row(what="x", columns=("a", "b"), measured=numbers, simulated={"s": numbers + 3.5}, relative=True)
    assert row.within("s").tolist() == [False, True]


def test_what_cannot_be_compared_says_why(directions: RirBank, lab: RirBank) -> None:
    beam = design_beam(ARRAY)
    with pytest.raises(ValueError, match="size_m and head_m"):
        simulated_figures(directions, "lab", SOFT, beam)
    with pytest.raises(ValueError, match="0 responses of the wearer"):
        compare(measured_figures(directions, "lab", beam), {})
    assert len(distinct(lab, "lab")) == 3
