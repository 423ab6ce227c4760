import json
import pickle
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from wearllama.simulation.bank import BankError, RirBank, RirEntry, write_bank


def entry(number: int = 0, **changes: object) -> RirEntry:
    fields = dict(
        id=f"r{number}", role="partner", azimuth_deg=10.0, elevation_deg=0.0, distance_m=1.0, rt60_s=0.3, drr_db=3.0,
        room="room", split="train", array="glasses5",
    )  # fmt: skip
    return RirEntry(**{**fields, **changes})


def write_two(path: Path, **changes: object) -> np.ndarray:
    rirs = np.random.default_rng(0).standard_normal((2, 3, 50)).astype(np.float32)
    settings = dict(num_channels=3, num_taps=50, pre_samples=16, dtype="float32")
    write_bank(path, [entry(0), entry(1, role="wearer", split="eval", room="other")], rirs, **{**settings, **changes})
    return rirs


def test_what_is_written_is_read(tmp_path: Path) -> None:
    rirs = write_two(tmp_path)
    bank = RirBank.open(tmp_path)
    assert [bank.entries[0], len(bank), bank.num_channels, bank.num_taps] == [entry(0), 2, 3, 50]
    np.testing.assert_array_equal(bank.rir(1), rirs[1])
    np.testing.assert_allclose(bank.spectrum(1, 64), np.fft.rfft(rirs[1], 64), atol=1e-4)
    assert bank.select(role="wearer") == [1] and bank.select(split="train", max_distance=0.5) == []
    assert bank.rooms() == ["other", "room"] and bank.rooms("eval") == ["other"]


def test_half_precision_keeps_sixty_decibels(tmp_path: Path) -> None:
    rirs = write_two(tmp_path, dtype="float16")
    error = RirBank.open(tmp_path).rir(0) - rirs[0]
    assert 20 * np.log10(np.linalg.norm(error) / np.linalg.norm(rirs[0])) < -60


def test_a_pickled_bank_opens_its_map_again(tmp_path: Path) -> None:
    rirs = write_two(tmp_path)
    bank = RirBank.open(tmp_path)
    bank.spectrum(0, 64)
    copied = pickle.loads(pickle.dumps(bank))
    np.testing.assert_array_equal(copied.rir(0), rirs[0])
    assert len(pickle.dumps(bank)) < 5000


@pytest.mark.parametrize("name", ["index.jsonl", "rirs.npy", "meta.json"])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    write_two(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(BankError, match=name):
        RirBank.open(tmp_path)


def test_a_bad_line_is_numbered(tmp_path: Path) -> None:
    write_two(tmp_path)
    rows = [json.dumps(asdict(entry(0))), json.dumps({**asdict(entry(1)), "role": "dog"})]
    (tmp_path / "index.jsonl").write_text("\n".join(rows))
    with pytest.raises(BankError, match=r"line 2.*'dog'"):
        RirBank.open(tmp_path)
    (tmp_path / "index.jsonl").write_text(rows[0])
    with pytest.raises(BankError, match="1 entries"):
        RirBank.open(tmp_path)


def test_bad_responses_are_refused(tmp_path: Path) -> None:
    common = dict(num_channels=3, num_taps=50, pre_samples=16)
    with pytest.raises(BankError, match=r"r0 has shape \(2, 50\)"):
        write_bank(tmp_path, [entry()], [np.zeros((2, 50))], **common)
    with pytest.raises(BankError, match="not finite"):
        write_bank(tmp_path, [entry()], [np.full((3, 50), np.nan)], **common)
    with pytest.raises(BankError, match="0 responses for 1"):
        write_bank(tmp_path, [entry()], [], **common)
    with pytest.raises(BankError, match=r"meta\.json"):
        RirBank.open(tmp_path)
