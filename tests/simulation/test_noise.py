import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from wearllama.audio.io import write_audio
from wearllama.simulation.noise import NoiseBank, draw_wind


def test_every_published_type_can_be_drawn_and_repeats() -> None:
    bank = pickle.loads(pickle.dumps(NoiseBank()))
    published = {"Quiet Office", "Music", "Vacuum Cleaning", "Lawnmower (1m)", "Normal Conversation (1m)"}
    assert published <= set(bank.names)
    for name in bank.names:
        first = bank.draw(name, 20_000, np.random.default_rng(5))
        again = NoiseBank().draw(name, 20_000, np.random.default_rng(5))
        np.testing.assert_array_equal(first.signal_N, again.signal_N)
        assert first.source.startswith("synthesised/") and np.isfinite(first.signal_N).all()
        assert first.signal_N.shape == (20_000,) and 0.05 < np.sqrt(np.mean(first.signal_N**2)) < 4
    assert bank.draw("Wind", 10, np.random.default_rng(0)).field == "wind"


def test_recordings_are_used_where_names_fit(tmp_path: Path) -> None:
    tone = 0.1 * torch.sin(torch.arange(8000) * 0.3)[None]
    for name in ("vehicles/one.wav", "moh_song.wav", "unknown.wav"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        write_audio(tmp_path / name, tone)
    bank = NoiseBank(tmp_path)
    draw = bank.draw("Vehicles: Car, Bus, Truck, Motorcycle (15m)", 20_000, np.random.default_rng(0))
    assert draw.source == "one.wav" and draw.field == "diffuse" and len(draw.signal_N) == 20_000
    assert bank.draw("Music", 10, np.random.default_rng(0)).source == "moh_song.wav"
    assert bank.draw("Vacuum Cleaning", 10, np.random.default_rng(0)).source.startswith("synthesised")
    assert sum(len(files) for files in bank.files.values()) == 2


def test_wind_is_independent_between_microphones() -> None:
    wind_MN = draw_wind(5, 48_000, np.random.default_rng(2))
    correlation = np.corrcoef(wind_MN) - np.eye(5)
    levels = 10 * np.log10(np.mean(wind_MN**2, axis=1))
    assert np.abs(correlation).max() < 0.25 and 1 < np.ptp(levels) < 16
    assert np.mean(wind_MN**2) == pytest.approx(1.0, rel=0.01)


def test_unknown_names_and_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="Barking"):
        NoiseBank().draw("Barking", 10, np.random.default_rng(0))
    with pytest.raises(ValueError, match="nowhere"):
        NoiseBank(tmp_path / "nowhere")
