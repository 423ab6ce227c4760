"""Contract 1: what is read is what is in the file, and what is wrong with it is said."""

import struct
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from wearllama.audio.io import (
    AudioError,
    AudioWarning,
    FirstDamaged,
    audio_info,
    read_audio,
    resample_audio,
    write_audio,
)


@pytest.fixture
def audio_CN() -> np.ndarray:
    samples = np.random.default_rng(0).uniform(-0.3, 0.3, (5, 1600))
    return (np.rint(samples * 32768) / 32768).astype(np.float32)


@pytest.mark.parametrize(
    ("suffix", "subtype", "form"),
    [
        ("wav", "PCM_16", "WAV"),
        ("wav", "PCM_24", "WAVEX"),
        ("wav", "DOUBLE", "WAV"),
        ("wav", "FLOAT", "WAV"),
        ("flac", "PCM_16", "FLAC"),
        ("rf64", "PCM_16", "RF64"),
    ],
)
def test_every_container_reads_alike(
    tmp_path: Path, audio_CN: np.ndarray, suffix: str, subtype: str, form: str
) -> None:
    path = tmp_path / f"a.{suffix}"
    soundfile.write(path, audio_CN.T, 16_000, subtype=subtype, format=form)
    read = read_audio(path, channels=5)
    assert read.dtype == torch.float32
    np.testing.assert_allclose(read.numpy(), audio_CN, atol=2e-7)
    assert audio_info(path) == (5, 1600, 16_000)


def test_an_odd_chunk_before_the_format(tmp_path: Path, audio_CN: np.ndarray) -> None:
    path = _wav(tmp_path, audio_CN)
    raw = path.read_bytes()
    chunk = b"LIST" + struct.pack("<I", 5) + b"INFO1\0"
    path.write_bytes(raw[:4] + struct.pack("<I", len(raw) - 8 + len(chunk)) + raw[8:12] + chunk + raw[12:])
    assert read_audio(path).shape == (5, 1600)


def _wav(folder: Path, audio_CN: np.ndarray, rate: int = 16_000) -> Path:
    path = folder / "broken.wav"
    soundfile.write(path, audio_CN.T, rate, subtype="FLOAT")
    return path


def _truncated(folder: Path, audio_CN: np.ndarray) -> Path:
    path = folder / "broken.wav"
    soundfile.write(path, audio_CN.T, 16_000, subtype="PCM_16")
    raw = path.read_bytes()
    path.write_bytes(raw[: 44 + 800 * 10])
    return path


def _truncated_flac(folder: Path, audio_CN: np.ndarray) -> Path:
    path = folder / "broken.flac"
    soundfile.write(path, np.tile(audio_CN, 10).T, 16_000)
    raw = path.read_bytes()
    path.write_bytes(raw[: len(raw) // 2])
    return path


def _with_nan(folder: Path, audio_CN: np.ndarray) -> Path:
    audio_CN[2, 100:110] = np.nan
    audio_CN[1, 200] = np.inf
    return _wav(folder, audio_CN)


def _bytes(content: bytes) -> Callable[[Path, np.ndarray], Path]:
    def make(folder: Path, _: np.ndarray) -> Path:
        path = folder / "broken.wav"
        path.write_bytes(content)
        return path

    return make


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (_truncated, r"promises 1600 frames, the file holds 800"),
        (_truncated_flac, r"truncated|broken audio data"),
        (_with_nan, r"11 samples are NaN or infinite, first in channel 2 at frame 100"),
        (_bytes(b""), r"empty file"),
        (_bytes(b"<html>404</html>" * 10), r"not audio"),
        (lambda folder, audio: _wav(folder, audio[:, :0]), r"no audio frames"),
        (lambda folder, audio: _wav(folder, audio, 44_100), r"found 44100 Hz, wanted 16000 Hz"),
        (lambda folder, audio: _wav(folder, audio[:4]), r"found 4 channels, wanted 5"),
        (lambda folder, audio: _wav(folder, np.concatenate([audio, audio[:1]])), r"found 6 channels, wanted 5"),
        (lambda folder, _: folder / "broken.wav", r"no such file"),
        (lambda folder, _: folder, r"not a file"),
    ],
)
def test_broken_files(
    tmp_path: Path, audio_CN: np.ndarray, make: Callable[[Path, np.ndarray], Path], message: str
) -> None:
    path = make(tmp_path, audio_CN)
    with pytest.raises(AudioError, match=message) as caught:
        read_audio(path, channels=5)
    assert str(path) in str(caught.value)


def test_resampling_only_when_asked(tmp_path: Path) -> None:
    tone_N = np.sin(2 * np.pi * 440 * np.arange(24_000) / 24_000).astype(np.float32) / 2
    path = _wav(tmp_path, tone_N[None], 24_000)
    with pytest.raises(AudioError, match="resample=True"):
        read_audio(path)
    read_N = read_audio(path, resample=True)[0].numpy()
    expected_N = np.sin(2 * np.pi * 440 * np.arange(16_000) / 16_000) / 2
    np.testing.assert_allclose(read_N[500:-500], expected_N[500:-500], atol=2e-3)


def test_resampling_removes_what_would_alias() -> None:
    tone_N = torch.from_numpy(np.sin(2 * np.pi * 10_000 * np.arange(24_000) / 24_000).astype(np.float32))
    assert resample_audio(tone_N, 24_000, 16_000)[500:-500].abs().max() < 1e-3


def test_silent_and_clipped_channels_are_named(tmp_path: Path, audio_CN: np.ndarray) -> None:
    audio_CN[3] = 0
    with pytest.warns(AudioWarning, match="channel 3 is silent"):
        read_audio(_wav(tmp_path, audio_CN))
    audio_CN[3] = np.clip(audio_CN[4] * 20, -1, 1)
    with pytest.warns(AudioWarning, match=r"clipped, up to \d+ .* channel 3$"):
        read_audio(_wav(tmp_path, audio_CN))


def test_a_single_full_scale_peak_is_not_clipping(tmp_path: Path, audio_CN: np.ndarray) -> None:
    audio_CN[0, 50] = 1.0
    with warnings.catch_warnings():
        warnings.simplefilter("error", AudioWarning)
        read_audio(_wav(tmp_path, audio_CN))


@pytest.mark.parametrize(("name", "subtype"), [("a.wav", "PCM_16"), ("a.flac", "PCM_16"), ("b/a.wav", "FLOAT")])
def test_write_then_read_is_exact(tmp_path: Path, audio_CN: np.ndarray, name: str, subtype: str) -> None:
    path = tmp_path / name
    write_audio(path, torch.from_numpy(audio_CN), subtype=subtype)
    assert torch.equal(read_audio(path), torch.from_numpy(audio_CN))
    assert [file.name for file in path.parent.iterdir()] == ["a.wav" if name.endswith("wav") else "a.flac"]


def test_16_bit_rounds_to_nearest_and_says_when_it_clips(tmp_path: Path) -> None:
    path = tmp_path / "a.wav"
    write_audio(path, torch.tensor([[0.6 / 32768, -0.6 / 32768, 1.0, -1.0]]))
    assert (read_audio(path) * 32768).tolist() == [[1.0, -1.0, 32767.0, -32768.0]]
    with pytest.warns(AudioWarning, match="2 samples beyond full scale"):
        write_audio(path, torch.tensor([[1.5, -1.5, 0.0]]))


@pytest.mark.parametrize(
    ("shape", "name", "subtype", "message"),
    [
        ((100,), "a.wav", "PCM_16", r"shape \(100,\), wanted \(channels, samples\)"),
        ((1, 0), "a.wav", "PCM_16", r"shape \(1, 0\)"),
        ((1, 100), "a.txt", "PCM_16", r"no audio format"),
        ((1, 100), "a.wav", "MP3", r"wanted PCM_16 or FLOAT"),
        ((1, 100), "a.flac", "FLOAT", r"cannot write"),
    ],
)
def test_what_cannot_be_written(tmp_path: Path, shape: tuple[int, ...], name: str, subtype: str, message: str) -> None:
    with pytest.raises(AudioError, match=message):
        write_audio(tmp_path / name, torch.zeros(shape), subtype=subtype)
    assert not list(tmp_path.iterdir())


def test_nan_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(AudioError, match="channel 0 at frame 1"):
        write_audio(tmp_path / "a.wav", torch.tensor([[0.0, float("nan")]]))


def test_of_a_damaged_corpus_the_first_recording_is_named(tmp_path: Path) -> None:
    for name in "ab":
        write_audio(tmp_path / f"{name}.wav", torch.zeros(1, 1600))
    damaged = FirstDamaged()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for name in "ab":
            with damaged.watching():
                read_audio(tmp_path / f"{name}.wav")
                warnings.warn("something else", stacklevel=1)
    told = [str(warning.message) for warning in caught]
    assert told[0].endswith("a.wav: channel 0 is silent (recordings like this one are used, others are not named)")
    assert told[1:] == ["something else"] * 2 and damaged.count == 2
