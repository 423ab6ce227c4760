"""Noise made of real speakers: people who talk among themselves, and people who whisper.

A folder of speech holds one sub-folder a speaker, or loose files of which each counts as a speaker.

Shapes: N samples, T frames, F bins.
"""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
import scipy.fft
from numpy.typing import NDArray

from wearllama.audio.io import read_audio
from wearllama.simulation.noise_synthesis import SAMPLE_RATE, unit_rms

MOST_TALKERS = 6
PAUSE_S = (0.2, 2.0)
"""Between what one speaker says and what he says next; others talk meanwhile."""
SPREAD_DB = 3.0
"""Standard deviation of the speakers' levels."""

_FRAME, _HOP = 512, 128
_ENVELOPE_QUEFRENCIES = 24  # 1.5 ms: formants stay, the voice's harmonics go

Signal = NDArray[np.float32]
Speakers = dict[str, list[Path]]


def find_speakers(folders: Sequence[Path], suffixes: Sequence[str]) -> Speakers:
    """Files by speaker; ValueError where a folder is missing or holds no sound."""
    speakers: Speakers = {}
    for folder in folders:
        if not folder.is_dir():
            raise ValueError(f"speech folder {folder}: no such folder")
        files = [path for path in sorted(folder.rglob("*")) if path.suffix.lower() in suffixes]
        if not files:
            raise ValueError(f"speech folder {folder}: no file that ends in {', '.join(suffixes)}")
        for path in files:
            speaker = path.parent if path.parent != folder else path
            speakers.setdefault(str(speaker), []).append(path)
    return speakers


def draw_talkers(speakers: Speakers, num_samples: int, rng: np.random.Generator) -> tuple[list[Signal], str]:
    """Two to six different speakers (or all there are), each a signal of RMS about 1 while he talks; their names."""
    count = min(int(rng.integers(2, MOST_TALKERS + 1)), len(speakers))
    names = [list(speakers)[index] for index in rng.choice(len(speakers), count, replace=False)]
    signals = [_talk(speakers[name], num_samples, rng) for name in names]
    return signals, "+".join(Path(name).stem for name in names)


def draw_whisper(speakers: Speakers, num_samples: int, rng: np.random.Generator) -> tuple[Signal, str]:
    """One speaker who whispers, and his name."""
    name = list(speakers)[int(rng.integers(len(speakers)))]
    return whispered(_talk(speakers[name], num_samples, rng), rng), Path(name).stem


def whispered(speech_N: Signal, rng: np.random.Generator) -> Signal:
    """Speech without its voice: the smooth spectral envelope of every frame over noise, low frequencies weaker."""
    window_F = np.sqrt(np.hanning(_FRAME + 1)[:-1])
    padded_N = np.pad(speech_N, (_FRAME, _FRAME))
    starts = np.arange(0, len(padded_N) - _FRAME, _HOP)
    frames_TF = padded_N[starts[:, None] + np.arange(_FRAME)] * window_F
    level_TF = np.log(np.abs(scipy.fft.rfft(frames_TF)) + 1e-4)
    cepstrum_TF = scipy.fft.irfft(level_TF, _FRAME)
    cepstrum_TF[:, _ENVELOPE_QUEFRENCIES : _FRAME - _ENVELOPE_QUEFRENCIES + 1] = 0.0
    envelope_TF = np.exp(scipy.fft.rfft(cepstrum_TF).real)
    freqs_F = scipy.fft.rfftfreq(_FRAME, 1 / SAMPLE_RATE)
    envelope_TF *= freqs_F**2 / (freqs_F**2 + 600.0**2)
    noise_TF = scipy.fft.rfft(rng.standard_normal(frames_TF.shape) * window_F)
    breath_TN = scipy.fft.irfft(noise_TF * envelope_TF, _FRAME) * window_F
    out_N = np.zeros(len(padded_N))
    for start, breath_N in zip(starts, breath_TN, strict=True):
        out_N[start : start + _FRAME] += breath_N
    return unit_rms(out_N[_FRAME : _FRAME + len(speech_N)])


def _talk(files: list[Path], num_samples: int, rng: np.random.Generator) -> Signal:
    """A speaker's files one after the other, from a random one on, with pauses."""
    out_N = np.zeros(num_samples, np.float32)
    at = -int(rng.uniform(0.0, 2.0) * SAMPLE_RATE)
    index = int(rng.integers(len(files)))
    gain = 10 ** (rng.normal(0.0, SPREAD_DB) / 20)
    while at < num_samples:
        speech_N = _read(str(files[index % len(files)]))
        low, high = max(at, 0), min(at + len(speech_N), num_samples)
        if low < high:
            out_N[low:high] = np.float32(gain) * speech_N[low - at : high - at]
        at += len(speech_N) + int(rng.uniform(*PAUSE_S) * SAMPLE_RATE)
        index += 1
    return out_N


@lru_cache(maxsize=128)
def _read(path: str) -> Signal:
    signal_N = read_audio(path, channels=1)[0].numpy()
    loud_N = np.abs(signal_N) > 0.03 * np.abs(signal_N).max(initial=0.0)
    power = np.mean(np.square(signal_N[loud_N])) if loud_N.any() else 1.0
    return (signal_N / np.sqrt(power + 1e-12)).astype(np.float32)
