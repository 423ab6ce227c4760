"""Background noise by WearVox's ``_noise_type`` names: from folders where given, synthesised otherwise (and said so).

A folder holds one sub-folder a noise type (``vehicles/``, ``music/``; see ``FOLDERS``), or loose files whose names
say what they are (``moh_...`` and ``music...`` are music).  Synthesised noises are seamless 12 s loops, four variants
a type, equal on every machine.

Shapes: N samples, M microphones.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy.fft
from numpy.typing import NDArray

from wearllama.audio.io import read_audio

SAMPLE_RATE = 16_000
LOOP_SAMPLES = 12 * SAMPLE_RATE
VARIANTS = 4
MAX_FILE_SECONDS = 60
AUDIO_SUFFIXES = (".wav", ".flac", ".ogg", ".opus")

Signal = NDArray[np.float32]
Loop = NDArray[np.float64]


class NoiseDraw(NamedTuple):
    """One noise for one mixture."""

    signal_N: Signal
    """Mono, RMS about 1."""
    field: str
    """point, diffuse or wind: how it reaches the microphones."""
    source: str
    """File name, or ``synthesised/<variant>``."""


@dataclass(frozen=True, kw_only=True)
class _Kind:
    folder: str
    field: str
    words: tuple[str, ...]
    synthesise: Callable[[np.random.Generator], Loop]


class NoiseBank:
    """Noise by name; picklable, the same draw for the same generator anywhere."""

    def __init__(self, folders: Sequence[str | Path] | str | Path | None = None) -> None:
        """``folders`` of 16 kHz recordings (the first channel is taken), or None for synthesised noise only.

        Raises:
            ValueError: a folder does not exist.
        """
        if isinstance(folders, str | Path):
            folders = [folders]
        self.files: dict[str, list[Path]] = {name: [] for name in KINDS}
        for folder in map(Path, folders or ()):
            if not folder.is_dir():
                raise ValueError(f"noise folder {folder}: no such folder")
            for path in sorted(folder.rglob("*")):
                name = _kind_of(path, folder)
                if path.suffix.lower() in AUDIO_SUFFIXES and name is not None:
                    self.files[name].append(path)

    @property
    def names(self) -> list[str]:
        """All noise types that :meth:`draw` takes."""
        return list(KINDS)

    def draw(self, name: str, num_samples: int, rng: np.random.Generator) -> NoiseDraw:
        """``num_samples`` of a noise type from a random place of a random file or variant."""
        if name not in KINDS:
            raise ValueError(f"noise type {name!r} is unknown, wanted one of {list(KINDS)}")
        kind = KINDS[name]
        choice, place = rng.integers(2**31), rng.uniform()
        if self.files[name]:
            path = self.files[name][choice % len(self.files[name])]
            loop_N, source = _read_loop(str(path)), path.name
        else:
            variant = int(choice % VARIANTS)
            loop_N, source = synthesised_loop(name, variant), f"synthesised/{variant}"
        start = int(place * len(loop_N))
        signal_N = np.take(loop_N, np.arange(start, start + num_samples), mode="wrap")
        return NoiseDraw(signal_N, kind.field, source)


def draw_wind(num_mics: int, num_samples: int, rng: np.random.Generator, spread_db: float = 6.0) -> Signal:
    """Wind at each microphone by itself (M, N), since turbulence does not travel as sound: they share only its gusts.

    Levels differ by up to ``spread_db``; mean power over the microphones is 1.
    """
    gust_N = _gusts(num_samples, rng)
    frames_MN = np.stack(
        [_wind_loop(int(rng.integers(VARIANTS)), int(rng.integers(LOOP_SAMPLES)), num_samples) for _ in range(num_mics)]
    )
    gain_M = 10 ** (rng.uniform(-spread_db, spread_db, num_mics) / 20)
    wind_MN = frames_MN * gust_N * gain_M[:, None].astype(np.float32)
    return wind_MN / np.float32(np.sqrt(np.mean(wind_MN**2)) + 1e-12)


@lru_cache(maxsize=64)
def synthesised_loop(name: str, variant: int) -> Signal:
    """The seamless loop of a noise type, RMS 1."""
    rng = np.random.default_rng([list(KINDS).index(name), variant, 7])
    return _unit(KINDS[name].synthesise(rng))


@lru_cache(maxsize=32)
def _read_loop(path: str) -> Signal:
    audio_CN = read_audio(path).numpy()
    return _unit(audio_CN[0, : MAX_FILE_SECONDS * SAMPLE_RATE])


def _kind_of(path: Path, root: Path) -> str | None:
    parents = {part.lower() for part in path.relative_to(root).parts[:-1]} | {root.name.lower()}
    for name, kind in KINDS.items():
        if kind.folder in parents:
            return name
    stem = path.stem.lower()
    return next((name for name, kind in KINDS.items() if any(word in stem for word in kind.words)), None)


def _unit(signal_N: NDArray[np.floating]) -> Signal:
    return (signal_N / (np.sqrt(np.mean(np.square(signal_N))) + 1e-12)).astype(np.float32)


def _coloured(rng: np.random.Generator, slope: float, low_hz: float = 40.0, high_hz: float = 7800.0) -> Loop:
    """A loop of noise with ``slope`` dB an octave between two corner frequencies."""
    bins = LOOP_SAMPLES // 2 + 1
    freqs_F = scipy.fft.rfftfreq(LOOP_SAMPLES, 1 / SAMPLE_RATE)
    shape_F = (np.maximum(freqs_F, low_hz) / 1000.0) ** (slope / 6.02)
    shape_F *= 1 / np.sqrt(1 + (low_hz / np.maximum(freqs_F, 1.0)) ** 4) / np.sqrt(1 + (freqs_F / high_hz) ** 8)
    return scipy.fft.irfft((rng.standard_normal(bins) + 1j * rng.standard_normal(bins)) * shape_F, LOOP_SAMPLES)


def _slow(rng: np.random.Generator, rate_hz: float, depth_db: float) -> Loop:
    """A looped gain that wanders at up to ``rate_hz`` with ``depth_db`` standard deviation."""
    spectrum_F = np.zeros(LOOP_SAMPLES // 2 + 1, complex)
    count = max(int(rate_hz * LOOP_SAMPLES / SAMPLE_RATE), 1)
    spectrum_F[1 : count + 1] = rng.standard_normal(count) + 1j * rng.standard_normal(count)
    wander_N = scipy.fft.irfft(spectrum_F, LOOP_SAMPLES)
    return 10 ** (depth_db * wander_N / wander_N.std() / 20)


def _harmonics(rng: np.random.Generator, base_hz: float, count: int, slope_db: float) -> Loop:
    """A looped tone complex, ``slope_db`` an octave, that drifts a little in level."""
    cycles = round(base_hz * LOOP_SAMPLES / SAMPLE_RATE)
    phase_N = 2 * np.pi * cycles * np.arange(LOOP_SAMPLES) / LOOP_SAMPLES
    total_N = np.zeros(LOOP_SAMPLES)
    for harmonic in range(1, count + 1):
        if harmonic * base_hz < 7500:
            level = 10 ** (slope_db * np.log2(harmonic) / 20) * rng.uniform(0.5, 1.5)
            total_N += level * np.cos(harmonic * phase_N + rng.uniform(0, 2 * np.pi))
    return total_N / total_N.std()


def _mix(*parts: tuple[Loop, float]) -> Loop:
    """Sum of parts, each brought to its level in dB."""
    return sum((part_N / part_N.std() * 10 ** (level / 20) for part_N, level in parts), np.zeros(LOOP_SAMPLES))


def _conversation(rng: np.random.Generator) -> Loop:
    """Speech-shaped noise under the syllables of four talkers."""
    talkers = [_coloured(rng, -7.0, 150, 5000) * _slow(rng, 5.0, 7.0) * _slow(rng, 0.6, 5.0) for _ in range(4)]
    return _mix(*[(talker_N, rng.uniform(-6, 0)) for talker_N in talkers])


def _jackhammer(rng: np.random.Generator) -> Loop:
    beat_N = np.zeros(LOOP_SAMPLES)
    times = np.arange(0, LOOP_SAMPLES, SAMPLE_RATE / rng.uniform(16, 26)) + rng.normal(0, 20, 1)
    beat_N[times.astype(int) % LOOP_SAMPLES] = 1.0
    ring_N = np.exp(-np.arange(LOOP_SAMPLES) / 150.0) * _coloured(rng, -2.0, 120)
    struck_N = scipy.fft.irfft(scipy.fft.rfft(beat_N) * scipy.fft.rfft(ring_N), LOOP_SAMPLES)
    return _mix((struck_N * np.sqrt(_slow(rng, 0.3, 6.0)), 0.0), (_coloured(rng, -4.0), -14.0))


def _music(rng: np.random.Generator) -> Loop:
    """Plucked chords over a bass, in time."""
    beat = LOOP_SAMPLES // 24
    total_N = np.zeros(LOOP_SAMPLES)
    scale = 220.0 * 2 ** (np.array([0, 2, 4, 5, 7, 9, 11, 12, 14, 16]) / 12) * rng.uniform(0.8, 1.3)
    time = np.arange(2 * beat) / SAMPLE_RATE
    for step in range(24):
        for pitch in [*rng.choice(scale, 3, replace=False), scale[step // 6 % 4] / 2]:
            note = np.exp(-3 * time) * sum(np.cos(2 * np.pi * pitch * k * time) / k**1.3 for k in range(1, 7))
            np.add.at(total_N, (step * beat + np.arange(2 * beat)) % LOOP_SAMPLES, note * rng.uniform(0.3, 1.0))
    return total_N


def _gusts(num_samples: int, rng: np.random.Generator) -> Signal:
    """Gain of gusty wind over time: log-normal, changing at about 1 Hz."""
    knots = rng.normal(0, 5.0, num_samples // 8000 + 3)
    curve = np.interp(np.arange(num_samples) / 8000, np.arange(len(knots)), knots)
    return (10 ** (curve / 20)).astype(np.float32)


def _wind_loop(variant: int, start: int, num_samples: int) -> Signal:
    loop_N = synthesised_loop("Wind", variant)
    return np.take(loop_N, np.arange(start, start + num_samples), mode="wrap")


KINDS: dict[str, _Kind] = {
    "Quiet Office": _Kind(
        folder="office",
        field="diffuse",
        words=("office",),
        synthesise=lambda rng: _mix((_coloured(rng, -5.0), 0.0), (_harmonics(rng, 100.0, 6, -8.0), -8.0)),
    ),
    "Normal Conversation (1m)": _Kind(
        folder="conversation", field="point", words=("conversation", "babble", "talk"), synthesise=_conversation
    ),
    "Vehicles: Car, Bus, Truck, Motorcycle (15m)": _Kind(
        folder="vehicles",
        field="diffuse",
        words=("vehicle", "traffic", "truck", "engine", "_car"),
        synthesise=lambda rng: _mix(
            (_coloured(rng, -6.0, 50, 4000) * _slow(rng, 0.2, 4.0), 0.0),
            (_harmonics(rng, rng.uniform(28, 60), 20, -5.0) * _slow(rng, 0.3, 5.0), -6.0),
        ),
    ),
    "Music": _Kind(
        folder="music", field="point", words=("music", "moh_", "cello", "violin", "drum", "bassoon"), synthesise=_music
    ),
    "Construction Noise: Jackhammer, other (15m)": _Kind(
        folder="construction",
        field="point",
        words=("construction", "jackhammer", "lumberjack", "drill", "saw"),
        synthesise=_jackhammer,
    ),
    "Vacuum Cleaning": _Kind(
        folder="vacuum",
        field="point",
        words=("vacuum",),
        synthesise=lambda rng: _mix(
            (_coloured(rng, -1.0, 200, 6000), 0.0), (_harmonics(rng, rng.uniform(180, 320), 12, -3.0), -4.0)
        ),
    ),
    "Lawnmower (1m)": _Kind(
        folder="lawnmower",
        field="point",
        words=("lawn", "mower"),
        synthesise=lambda rng: _mix(
            (_harmonics(rng, rng.uniform(40, 60), 40, -3.0) * _slow(rng, 2.0, 1.0), 0.0),
            (_coloured(rng, -3.0, 100), -5.0),
        ),
    ),
    "Aircraft: Jet plane, military jet take-off (30m)": _Kind(
        folder="aircraft",
        field="diffuse",
        words=("aircraft", "plane", "jet", "lander", "flying"),
        synthesise=lambda rng: _coloured(rng, -3.5, 80, 5000) * _slow(rng, 0.15, 5.0),
    ),
    "Wind": _Kind(
        folder="wind",
        field="wind",
        words=("wind",),
        synthesise=lambda rng: _coloured(rng, -9.0, 30, 1500) * _slow(rng, 4.0, 2.0),
    ),
    "Pink": _Kind(folder="pink", field="diffuse", words=("pink",), synthesise=lambda rng: _coloured(rng, -3.0)),
}
"""WearVox's names as published, then wind and plain pink noise."""
