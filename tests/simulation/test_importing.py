"""Measured responses come in with their delays, levels and places, and mixtures use them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch

from wearllama.audio.array import load_array
from wearllama.audio.io import AudioError, write_audio
from wearllama.simulation.bank import RirBank
from wearllama.simulation.device import IDEAL_DEVICE
from wearllama.simulation.importing import MeasuredRoom, MeasuredSet, MeasuredSource, import_folder
from wearllama.simulation.measured_files import read_folder, read_sofa
from wearllama.simulation.mixing import MixtureRecipe, Segment, render
from wearllama.simulation.noise import NoiseBank

ARRAY = load_array("glasses5")
SETTINGS = MeasuredSet(
    channels=(4, 2, 5, 1, 6),
    rooms={"lab": MeasuredRoom(split="eval")},
    sources={
        "mouth": MeasuredSource(roles=("wearer",)),
        "left": MeasuredSource(roles=("partner", "bystander"), azimuth_deg=30.0, distance_m=2.0),
    },
)


def response(delay: int, gain: float, seed: int = 0) -> np.ndarray:
    """Eight channels: a pulse that comes later and weaker from channel to channel, then a decaying tail."""
    rng = np.random.default_rng(seed)
    rir_CK = rng.standard_normal((8, 4000)) * 0.02 * 10 ** (-3 * np.arange(4000) / 3200)
    rir_CK[:, : delay + 20] = 0.0
    for channel in range(8):
        rir_CK[channel, delay + channel] = 1.0 - 0.05 * channel
    return (gain * rir_CK).astype(np.float32)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "wav"
    for name, delay, gain in (("lab_mouth", 60, 0.5), ("lab_left", 100, 0.02)):
        write_audio(path / f"{name}.wav", torch.from_numpy(response(delay, gain)), subtype="FLOAT")
    return path


def bank_of(folder: Path, **changes: Any) -> RirBank:
    return import_folder(folder, folder.parent / "bank", replace(SETTINGS, **changes), ARRAY)


def test_channels_delays_and_levels_are_kept(folder: Path) -> None:
    bank = bank_of(folder)
    assert [entry.id for entry in bank.entries] == ["lab_left_partner", "lab_left_bystander", "lab_mouth_wearer"]
    picked = [4, 2, 5, 1, 6]
    for index, gain in ((0, 0.02), (2, 0.5)):
        rir_MK = bank.rir(index)
        peaks = np.argmax(np.abs(rir_MK), axis=1)
        assert peaks.tolist() == [32 + channel - 4 for channel in picked]
        levels = np.abs(rir_MK).max(axis=1)
        expected = gain * bank.meta["scale"] * (1 - 0.05 * np.array(picked))
        np.testing.assert_allclose(levels, expected, rtol=1e-6)
    assert np.abs([bank.rir(i) for i in range(3)]).max() == pytest.approx(1.0)
    np.testing.assert_array_equal(bank.rir(0), bank.rir(1))


def test_entries_say_where_who_and_how_reverberant(folder: Path) -> None:
    partner, bystander, wearer = bank_of(folder).entries
    assert (partner.role, partner.azimuth_deg, partner.distance_m, partner.split) == ("partner", 30.0, 2.0, "eval")
    assert bystander.role == "bystander" and {partner.kind, wearer.kind} == {"measured"}
    assert partner.rt60_s == pytest.approx(0.2, rel=0.1)
    assert wearer.distance_m == pytest.approx(np.linalg.norm(ARRAY.mouth_3 - ARRAY.positions_M3[0]), abs=1e-3)
    assert wearer.elevation_deg < -70 and 5 < wearer.drr_db < 25


def test_mixtures_use_measured_responses(folder: Path) -> None:
    bank = bank_of(folder)
    write_audio(folder.parent / "a.wav", torch.randn(1, 16_000, generator=torch.Generator().manual_seed(0)) * 0.05)
    recipe = MixtureRecipe(
        segments=[Segment(file="a.wav", role="wearer")],
        sidetalk=[Segment(file="a.wav", role="bystander", start_s=0.2)],
        split="eval", snr_db=10.0, level_dbfs=-25.0, device=IDEAL_DEVICE, noise_type="Pink",
    )  # fmt: skip
    mixture = render(recipe, bank=bank, noise=NoiseBank(), seed=0, audio_root=folder.parent)
    assert mixture.audio_MN.shape[0] == 5 and mixture.metadata["room"] == "lab"
    near, far = mixture.metadata["sources"]
    assert near["rir"] == "lab_mouth_wearer" and near["level_dbfs"] - far["level_dbfs"] > 15


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"channels": (4, 2, 5, 1, 8)}, "channel 8 is wanted, found 8 channels"),
        ({"channels": (4, 2, 5)}, "3 channels .* for the 5 microphones"),
        ({"taps": 1000}, "needs 39[0-9]+ taps, wanted at most 1000"),
        ({"rooms": {}}, "room 'lab' is not in rooms"),
        ({"sources": {"mouth": MeasuredSource(roles=("wearer",))}}, "source 'left' is not in sources, which has mouth"),
        ({"sources": {n: MeasuredSource(roles=("noise",)) for n in ("left", "mouth")}}, "wants azimuth_deg"),
        ({"pattern": "(?P<room>x)_(?P<source>y)"}, "does not match"),
        ({"pattern": "(?P<room>.*)"}, "wanted room and source"),
        ({"scale": 1e6, "dtype": "float16"}, "float16 ends at"),
    ],
)
def test_what_does_not_fit_is_refused(folder: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bank_of(folder, **changes)


def test_bad_settings_and_files_are_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="channels are"):
        MeasuredSet(channels=(1, 1))
    with pytest.raises(ValueError, match="roles are"):
        MeasuredSource(roles=("cat",))
    with pytest.raises(ValueError, match="no such folder"):
        read_folder(tmp_path / "nowhere", "*", SETTINGS.pattern)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="no WAV, FLAC, SOFA or NPZ"):
        read_folder(tmp_path / "empty", "*", SETTINGS.pattern)
    silent = response(60, 0.5)
    silent[5] = 0.0
    with pytest.warns(UserWarning, match="silent"):
        write_audio(folder / "lab_left.wav", torch.from_numpy(silent), subtype="FLOAT")
        with pytest.raises(ValueError, match=r"channels \[5\] are silent"):
            bank_of(folder)
    write_audio(folder / "lab_left.wav", torch.from_numpy(response(60, 0.5)), subtype="FLOAT", sample_rate=48_000)
    with pytest.raises(AudioError, match="48000 Hz"):
        bank_of(folder)


def write_sofa(path: Path, **changes: Any) -> None:
    """Two measurements of eight receivers: 30 degrees to the left at 2 m, and behind at 1 m."""
    path.parent.mkdir(parents=True, exist_ok=True)
    values: dict[str, tuple[Any, str | None]] = {
        "Data.IR": (np.stack([response(60, 0.5), response(80, 0.3, 1)]).astype(float), None),
        "Data.SamplingRate": ([16000.0], None),
        "Data.Delay": (np.zeros((1, 8)), None),
        "SourcePosition": ([[30.0, 0.0, 2.0], [180.0, 0.0, 1.0]], "spherical"),
        "ListenerPosition": ([[0.0, 0.0, 0.0]], "cartesian"),
        "ListenerView": ([[1.0, 0.0, 0.0]], "cartesian"),
        "ListenerUp": ([[0.0, 0.0, 1.0]], None),
    }
    kind = changes.pop("DataType", "FIR")
    values |= {name.replace("_", "."): value for name, value in changes.items()}
    with h5py.File(path, "w") as file:
        file.attrs["Conventions"], file.attrs["DataType"] = "SOFA", kind
        for name, (value, unit) in values.items():
            file[name] = np.asarray(value)
            if unit:
                file[name].attrs["Type"] = unit


def test_sofa_files_bring_their_own_places(tmp_path: Path) -> None:
    write_sofa(tmp_path / "sofa" / "lab_left.sofa")
    sources = {"left": MeasuredSource(roles=("noise",))}
    bank = import_folder(tmp_path / "sofa", tmp_path / "bank", replace(SETTINGS, sources=sources), ARRAY)
    first, second = bank.entries
    nose_3 = ARRAY.positions_M3[0]
    true_3 = np.array([2 * np.sin(np.pi / 6), 0.0, 2 * np.cos(np.pi / 6)])
    assert (first.id, first.azimuth_deg, first.elevation_deg) == ("lab_left_0000_noise", 30.0, 0.0)
    assert first.distance_m == pytest.approx(np.linalg.norm(true_3 - nose_3), abs=1e-3)
    assert abs(second.azimuth_deg) == pytest.approx(180.0)
    assert np.argmax(np.abs(bank.rir(0)), axis=1).tolist() == [32 + channel - 4 for channel in (4, 2, 5, 1, 6)]


def test_sofa_heads_may_look_elsewhere_and_channels_be_late(tmp_path: Path) -> None:
    up = ([[0.0, 0.0, 1.0]], "cartesian")
    view = {
        "ListenerView": ([[90.0, 0.0, 1.0]], "spherical"),
        "ListenerUp": up,
        "Data_Delay": (np.arange(8.0)[None], None),
    }
    write_sofa(tmp_path / "a.sofa", **view)
    (rir_CK, position_3), _ = read_sofa(tmp_path / "a.sofa")
    azimuth = np.rad2deg(np.arctan2(position_3[0], position_3[2]))
    assert azimuth == pytest.approx(-60.0) and np.linalg.norm(position_3) == pytest.approx(2.0)
    assert np.argmax(np.abs(rir_CK), axis=1).tolist() == [60 + 2 * channel for channel in range(8)]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"DataType": "TF"}, "DataType is 'TF'"),
        ({"Data_SamplingRate": ([44100.0], None)}, "44100"),
        ({"Data_Delay": (np.full((1, 8), 0.5), None)}, "whole samples"),
        ({"SourcePosition": ([[1.0, 2.0]], "cartesian")}, "SourcePosition has shape"),
        ({"SourcePosition": ([[1.0, 2.0, 3.0]], "polar")}, "'polar'"),
        ({"ListenerView": ([[0.0, 0.0, 2.0]], "cartesian")}, "say no direction"),
        ({"Data_IR": (np.full((2, 8, 100), np.nan), None)}, "not finite"),
    ],
)
def test_odd_sofa_files_are_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    write_sofa(tmp_path / "a.sofa", **changes)
    with pytest.raises(ValueError, match=message):
        read_sofa(tmp_path / "a.sofa")


def test_directions_of_an_npz_file_come_in_and_bad_ones_stay_out(tmp_path: Path) -> None:
    (tmp_path / "npz").mkdir()
    rir_NKC = np.stack([response(20, 0.1, seed)[:, :90].T for seed in range(4)])
    azimuth = np.array([0, 90, 180, 270])
    np.savez(tmp_path / "npz" / "lab_ring.npz", responses=rir_NKC, azimuth_deg=azimuth, sample_rate=16_000)
    ring = MeasuredSource(roles=("noise",), distance_m=1.5, clockwise=True, leave_out=(2,))
    settings = replace(SETTINGS, sources={"ring": ring})
    bank = import_folder(tmp_path / "npz", tmp_path / "bank", settings, ARRAY)
    assert [entry.azimuth_deg for entry in bank.entries] == [0.0, -90.0, 90.0]
    assert {entry.rt60_s for entry in bank.entries} == {0.0}
    np.savez(tmp_path / "npz" / "lab_ring.npz", responses=rir_NKC, azimuth_deg=azimuth[:3], sample_rate=16_000)
    with pytest.raises(ValueError, match="azimuth_deg"):
        import_folder(tmp_path / "npz", tmp_path / "bank", settings, ARRAY)


def test_what_is_not_sofa_says_so(tmp_path: Path) -> None:
    (tmp_path / "a.sofa").write_text("not a SOFA file")
    with pytest.raises(AudioError, match="not a SOFA file"):
        read_sofa(tmp_path / "a.sofa")
