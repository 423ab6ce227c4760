"""Background noise by WearVox's ``_noise_type`` names: from folders where given, synthesised otherwise (and said so).

A folder holds one sub-folder a noise type (``vehicles/``, ``music/``; see ``KINDS``), or loose files whose names
say what they are (``moh_...`` and ``music...`` are music).  Conversation and whispers are made of real speakers where
a folder of speech is given.  Synthesised noises are seamless 12 s loops, four variants a type, equal on every machine.

Shapes: N samples, M microphones.
"""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from wearllama.audio.io import read_audio
from wearllama.simulation.babble import Speakers, draw_talkers, draw_whisper, find_speakers
from wearllama.simulation.noise_kinds import FIRST_TYPES, KINDS
from wearllama.simulation.noise_synthesis import LOOP_SAMPLES, SAMPLE_RATE, unit_rms

VARIANTS = 4
MAX_FILE_SECONDS = 60
AUDIO_SUFFIXES = (".wav", ".flac", ".ogg", ".opus")

Signal = NDArray[np.float32]
Folders = Sequence[str | Path] | str | Path | None


class NoiseDraw(NamedTuple):
    """One noise for one mixture."""

    signals: list[Signal]
    """Mono signals (N,), RMS about 1: one, or one a talker, each to be put in a place of its own."""
    field: str
    """point, diffuse or wind: how it reaches the microphones."""
    source: str
    """File name, ``synthesised/<variant>`` or ``speakers/<names>``."""
    loops: list[Signal]
    """What independent signals are cut from; empty where speakers talk."""

    def independent(self, count: int, num_samples: int, rng: np.random.Generator) -> list[Signal]:
        """As many unrelated stretches of the noise; people keep talking as they do, one after the other."""
        loops = self.loops or self.signals
        chosen = [loops[int(rng.integers(len(loops)))] for _ in range(count)]
        return [_wrapped(loop_N, int(rng.integers(len(loop_N))), num_samples) for loop_N in chosen]


class NoiseBank:
    """Noise by name; picklable, the same draw for the same generator anywhere."""

    def __init__(self, folders: Folders = None, *, speech: Folders = None, drawn: Sequence[str] = FIRST_TYPES) -> None:
        """
        Args:
            folders: 16 kHz recordings (the first channel is taken), or None for synthesised noise only.
            speech: mono 16 kHz speech, a sub-folder a speaker, for conversation and whispers.
            drawn: types that a recipe without a noise type draws from.

        Raises:
            ValueError: a folder does not exist or has no recording of a known type, or a type is unknown.
        """
        self.drawn = [known_type(name) for name in drawn]
        if not self.drawn:
            raise ValueError("noise: no type to draw from")
        self.files: dict[str, list[Path]] = {name: [] for name in KINDS}
        self.folders, self.speech = _paths(folders), _paths(speech)
        self.speakers: Speakers = find_speakers(self.speech, AUDIO_SUFFIXES)
        for folder in self.folders:
            if not folder.is_dir():
                raise ValueError(f"noise folder {folder}: no such folder")
            found = 0
            for path in sorted(folder.rglob("*")):
                name = _kind_of(path, folder)
                if path.suffix.lower() in AUDIO_SUFFIXES and name is not None:
                    self.files[name].append(path)
                    found += 1
            if not found:
                kinds = ", ".join(kind.folder for kind in KINDS.values())
                raise ValueError(
                    f"noise folder {folder}: found no recording ({', '.join(sorted(AUDIO_SUFFIXES))}) of a known type, "
                    f"wanted sub-folders {kinds}, or file names with such words"
                )

    @property
    def names(self) -> list[str]:
        """All noise types that :meth:`draw` takes."""
        return list(KINDS)

    def draw(self, name: str, num_samples: int, rng: np.random.Generator) -> NoiseDraw:
        """``num_samples`` of a noise type from a random place of a random file or variant, or of random speakers."""
        kind = KINDS[known_type(name)]
        choice, place = rng.integers(2**31), rng.uniform()
        files = self.files[name]
        if not files and kind.speech and self.speakers:
            return self._speech(kind.speech, num_samples, rng)
        if files:
            path = files[choice % len(files)]
            loop_N, source = _read_loop(str(path)), path.name
        else:
            variant = int(choice % VARIANTS)
            loop_N, source = synthesised_loop(name, variant), f"synthesised/{variant}"
        loops = [loop_N]
        if kind.field == "wind":
            loops = [_read_loop(str(file)) for file in files] or [synthesised_loop(name, v) for v in range(VARIANTS)]
            source = source if files else "synthesised"
        start = int(place * len(loop_N))
        return NoiseDraw([_wrapped(loop_N, start, num_samples)], kind.field, source, loops)

    def _speech(self, how: str, num_samples: int, rng: np.random.Generator) -> NoiseDraw:
        if how == "babble":
            signals, names = draw_talkers(self.speakers, num_samples, rng)
        else:
            signal_N, names = draw_whisper(self.speakers, num_samples, rng)
            signals = [signal_N]
        return NoiseDraw(signals, "point", f"speakers/{names}", [])


def draw_wind(
    num_mics: int,
    num_samples: int,
    rng: np.random.Generator,
    spread_db: float = 6.0,
    loops: Sequence[Signal] | None = None,
) -> Signal:
    """Wind at each microphone by itself (M, N), since turbulence does not travel as sound: they share only its gusts.

    Each microphone gets a stretch of its own of one of ``loops`` (synthesised by default).  Levels differ by up to
    ``spread_db``; mean power over the microphones is 1.
    """
    loops = loops or [synthesised_loop("Wind", variant) for variant in range(VARIANTS)]
    gust_N = _gusts(num_samples, rng)
    cut = []
    for _ in range(num_mics):
        loop_N = loops[int(rng.integers(len(loops)))]
        cut.append(_wrapped(loop_N, int(rng.integers(len(loop_N))), num_samples))
    gain_M = 10 ** (rng.uniform(-spread_db, spread_db, num_mics) / 20)
    wind_MN = np.stack(cut) * gust_N * gain_M[:, None].astype(np.float32)
    return wind_MN / np.float32(np.sqrt(np.mean(wind_MN**2)) + 1e-12)


@lru_cache(maxsize=64)
def synthesised_loop(name: str, variant: int) -> Signal:
    """The seamless loop of a noise type, RMS 1."""
    rng = np.random.default_rng([list(KINDS).index(name), variant, 7])
    loop_N = unit_rms(KINDS[name].synthesise(rng))
    assert len(loop_N) == LOOP_SAMPLES
    return loop_N


@lru_cache(maxsize=32)
def _read_loop(path: str) -> Signal:
    audio_CN = read_audio(path).numpy()
    return unit_rms(audio_CN[0, : MAX_FILE_SECONDS * SAMPLE_RATE])


def known_type(name: str) -> str:
    """The name itself; ValueError where it is no noise type."""
    if name not in KINDS:
        raise ValueError(f"noise type {name!r} is unknown, wanted one of {list(KINDS)}")
    return name


def _kind_of(path: Path, root: Path) -> str | None:
    parents = {part.lower() for part in path.relative_to(root).parts[:-1]} | {root.name.lower()}
    for name, kind in KINDS.items():
        if kind.folder in parents:
            return name
    stem = path.stem.lower()
    return next((name for name, kind in KINDS.items() if any(word in stem for word in kind.words)), None)


def _paths(folders: Folders) -> list[Path]:
    return [Path(folders)] if isinstance(folders, str | Path) else [Path(folder) for folder in folders or ()]


def _wrapped(loop_N: Signal, start: int, num_samples: int) -> Signal:
    return np.take(loop_N, np.arange(start, start + num_samples), mode="wrap")


def _gusts(num_samples: int, rng: np.random.Generator) -> Signal:
    """Gain of gusty wind over time: log-normal, changing at about 1 Hz."""
    knots = rng.normal(0, 5.0, num_samples // 8000 + 3)
    curve = np.interp(np.arange(num_samples) / 8000, np.arange(len(knots)), knots)
    return (10 ** (curve / 20)).astype(np.float32)
