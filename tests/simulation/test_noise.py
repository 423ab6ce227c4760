import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from wearllama.audio.io import read_audio, write_audio
from wearllama.simulation.noise import NoiseBank, draw_wind, synthesised_loop
from wearllama.simulation.noise_kinds import FIRST_TYPES, KINDS, WEARVOX_TYPES, level_at
from wearllama.simulation.noise_synthesis import LOOP_SAMPLES

VEHICLES = "Vehicles: Car, Bus, Truck, Motorcycle (15m)"
TALK = "Normal Conversation (1m)"


def test_every_published_type_can_be_drawn_and_repeats() -> None:
    bank = pickle.loads(pickle.dumps(NoiseBank()))
    assert len(WEARVOX_TYPES) == 13 and {*WEARVOX_TYPES, "Pink"} == set(bank.names)
    for name in bank.names:
        first = bank.draw(name, 20_000, np.random.default_rng(5))
        again = NoiseBank().draw(name, 20_000, np.random.default_rng(5))
        np.testing.assert_array_equal(first.signals[0], again.signals[0])
        assert first.source.startswith("synthesised") and np.isfinite(first.signals[0]).all()
        assert first.signals[0].shape == (20_000,) and 0.02 < np.sqrt(np.mean(first.signals[0] ** 2)) < 5
    assert bank.draw("Wind", 10, np.random.default_rng(0)).field == "wind"


@pytest.mark.parametrize("name", KINDS)
def test_loops_are_seamless_and_of_their_own_colour(name: str) -> None:
    """The step over the seam is as small as steps elsewhere; whispers and leaves are high, engines and wind low."""
    loop_N = synthesised_loop(name, 0).astype(float)
    assert len(loop_N) == LOOP_SAMPLES and np.mean(loop_N**2) == pytest.approx(1.0, rel=1e-3)
    steps_N = np.abs(np.diff(loop_N))
    assert abs(loop_N[0] - loop_N[-1]) <= np.quantile(steps_N, 0.9999)
    power_F = np.abs(np.fft.rfft(loop_N)) ** 2
    low = power_F[: int(1000 * LOOP_SAMPLES / 16_000)].sum() / power_F.sum()
    if name in ("Rustling Leaves", "Quiet Whisper (1m)"):
        assert low < 0.4
    if name in ("Wind", VEHICLES):
        assert low > 0.6


def test_recordings_are_used_where_names_fit(tmp_path: Path) -> None:
    tone = 0.1 * torch.sin(torch.arange(8000) * 0.3)[None]
    for name in ("vehicles/one.wav", "moh_song.wav", "unknown.wav", "singing/two.wav"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        write_audio(tmp_path / name, tone)
    bank = NoiseBank(tmp_path)
    draw = bank.draw(VEHICLES, 20_000, np.random.default_rng(0))
    assert draw.source == "one.wav" and draw.field == "diffuse" and len(draw.signals[0]) == 20_000
    assert bank.draw("Music", 10, np.random.default_rng(0)).source == "moh_song.wav"
    assert bank.draw("Loud Singing", 10, np.random.default_rng(0)).source == "two.wav"
    assert bank.draw("Vacuum Cleaning", 10, np.random.default_rng(0)).source.startswith("synthesised")
    assert sum(len(files) for files in bank.files.values()) == 3


def test_wind_is_independent_between_microphones(tmp_path: Path) -> None:
    wind_MN = draw_wind(5, 48_000, np.random.default_rng(2))
    correlation = np.corrcoef(wind_MN) - np.eye(5)
    levels = 10 * np.log10(np.mean(wind_MN**2, axis=1))
    assert np.abs(correlation).max() < 0.25 and 1 < np.ptp(levels) < 16
    assert np.mean(wind_MN**2) == pytest.approx(1.0, rel=0.01)


def test_recorded_wind_is_cut_anew_for_every_microphone(tmp_path: Path) -> None:
    (tmp_path / "wind").mkdir()
    recorded_N = np.random.default_rng(0).standard_normal(80_000) * 0.1
    write_audio(tmp_path / "wind" / "gale.wav", torch.from_numpy(recorded_N[None]).float())
    draw = NoiseBank(tmp_path).draw("Wind", 16_000, np.random.default_rng(0))
    assert draw.source == "gale.wav" and len(draw.loops) == 1
    wind_MN = draw_wind(3, 16_000, np.random.default_rng(1), loops=draw.loops)
    assert np.abs(np.corrcoef(wind_MN) - np.eye(3)).max() < 0.1
    spectrum_F = np.abs(np.fft.rfft(wind_MN[0])) ** 2
    assert spectrum_F[4000:].sum() > 0.3 * spectrum_F.sum()  # white, as recorded; synthesised wind is not


@pytest.fixture
def speakers(tmp_path: Path) -> Path:
    """Four speakers as tones of their own, with harmonics; two of them have two files."""
    for speaker, pitch in (("ann", 110), ("bob", 150), ("cid", 210), ("dee", 260)):
        (tmp_path / speaker).mkdir()
        time_N = torch.arange(16_000) / 16_000
        voice_N = sum(torch.cos(2 * torch.pi * pitch * k * time_N) / k for k in range(1, 20))
        for number in range(2 if pitch < 200 else 1):
            write_audio(tmp_path / speaker / f"{number}.wav", 0.05 * voice_N[None])
    return tmp_path


def test_conversation_is_made_of_different_real_speakers(speakers: Path) -> None:
    bank = pickle.loads(pickle.dumps(NoiseBank(speech=speakers)))
    draw = bank.draw(TALK, 64_000, np.random.default_rng(3))
    names = draw.source.removeprefix("speakers/").split("+")
    assert 2 <= len(draw.signals) == len(names) == len(set(names)) <= 4
    for name, signal_N in zip(names, draw.signals, strict=True):
        pitch = {"ann": 110, "bob": 150, "cid": 210, "dee": 260}[name]
        spectrum_F = np.abs(np.fft.rfft(signal_N))
        assert abs(np.argmax(spectrum_F) / 4 - pitch) < 3
        talking = np.mean(np.abs(signal_N.reshape(-1, 320)).max(axis=1) > 0.1)
        assert 0.2 < talking < 0.95  # pauses, and others talk in them
    again = NoiseBank(speech=speakers).draw(TALK, 64_000, np.random.default_rng(3))
    assert again.source == draw.source
    np.testing.assert_array_equal(again.signals[0], draw.signals[0])


def test_whispers_lose_the_voice_and_keep_the_envelope(speakers: Path) -> None:
    draw = NoiseBank(speech=speakers).draw("Quiet Whisper (1m)", 64_000, np.random.default_rng(4))
    spectrum_F = np.abs(np.fft.rfft(draw.signals[0])) ** 2
    voice_N = read_audio(speakers / draw.source.removeprefix("speakers/") / "0.wav")[0].numpy()
    voiced_F = np.abs(np.fft.rfft(voice_N)) ** 2
    # A harmonic tone has its power in few bins; breath spreads it.
    assert np.sort(voiced_F)[-40:].sum() > 0.95 * voiced_F.sum()
    assert np.sort(spectrum_F)[-160:].sum() < 0.5 * spectrum_F.sum()


def test_recordings_come_before_speakers(speakers: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("noise")
    write_audio(folder / "babble.wav", 0.1 * torch.randn(1, 8000))
    draw = NoiseBank(folder, speech=speakers).draw(TALK, 100, np.random.default_rng(0))
    assert draw.source == "babble.wav"


def test_what_a_recipe_draws_from_is_a_choice() -> None:
    assert NoiseBank().drawn == list(FIRST_TYPES)
    assert NoiseBank(drawn=WEARVOX_TYPES).drawn == list(WEARVOX_TYPES)
    with pytest.raises(ValueError, match="Barking"):
        NoiseBank(drawn=["Barking"])


def test_levels_fall_with_distance() -> None:
    assert level_at(KINDS[VEHICLES], 70.0, 15.0) == pytest.approx(70.0)
    assert level_at(KINDS[VEHICLES], 70.0, 30.0) == pytest.approx(64.0, abs=0.05)
    assert KINDS["Quiet Office"].level_dba[1] < KINDS[TALK].level_dba[0] < KINDS["Lawnmower (1m)"].level_dba[0]


def test_unknown_names_and_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="Barking"):
        NoiseBank().draw("Barking", 10, np.random.default_rng(0))
    with pytest.raises(ValueError, match="nowhere"):
        NoiseBank(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="speech folder"):
        NoiseBank(speech=tmp_path)
    (tmp_path / "loose.wav").touch()
    with pytest.raises(ValueError, match=r"found no recording .* of a known type, wanted sub-folders office"):
        NoiseBank(tmp_path)
