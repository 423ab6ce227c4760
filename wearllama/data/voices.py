"""Synthetic voices: one registry over Kokoro, Pico, Flite and eSpeak NG, and `synthesize`.

Run as::

    from wearllama.data.voices import EVAL_VOICES, TRAIN_VOICES, synthesize
    audio_N = synthesize("Set an alarm for seven.", "kokoro/am_michael", speed=1.05)

Shapes: N samples at 16 kHz, float32.  Voices are named ``engine/voice``.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from io import BytesIO
from pathlib import Path

import numpy as np
import soundfile
from scipy.signal import resample_poly

from wearllama.atomic import replacing
from wearllama.data import tts_kokoro
from wearllama.data.assets import cache_root

SAMPLE_RATE = 16000
PEAK = 0.5
"""Peak amplitude of every synthesised clip; levels are set when a mixture is rendered."""
_TRIM_DB = -42.0
_TRIM_PAD_S = 0.05


class VoiceError(ValueError):
    """Unknown voice, unusable speed or pitch, or an engine that said nothing."""


@dataclass(frozen=True, kw_only=True)
class Voice:
    """One synthetic voice."""

    name: str
    engine: str
    gender: str
    accent: str

    @property
    def voice(self) -> str:
        """The engine's own name of the voice."""
        return self.name.partition("/")[2]


def _registry() -> dict[str, Voice]:
    voices: list[Voice] = []
    for kokoro in tts_kokoro.VOICES:
        gender, accent = ("f" if kokoro[1] == "f" else "m"), ("us" if kokoro[0] == "a" else "gb")
        voices.append(Voice(name=f"kokoro/{kokoro}", engine="kokoro", gender=gender, accent=accent))
    for pico, accent in (("en-US", "us"), ("en-GB", "gb")):
        voices.append(Voice(name=f"pico/{pico}", engine="pico", gender="f", accent=accent))
    for flite, gender, accent in (("kal16", "m", "us"), ("awb", "m", "scots"), ("rms", "m", "us"), ("slt", "f", "us")):
        voices.append(Voice(name=f"flite/{flite}", engine="flite", gender=gender, accent=accent))
    for accent in ("en-us", "en-gb", "en-gb-scotland", "en-gb-x-rp"):
        for variant in ("m1", "m3", "m7", "f1", "f2", "f4"):
            name = f"espeak/{accent}+{variant}"
            voices.append(Voice(name=name, engine="espeak", gender=variant[0], accent=accent[3:]))
    return {voice.name: voice for voice in voices}


VOICES: dict[str, Voice] = _registry()
EVAL_VOICES: tuple[str, ...] = ("kokoro/af_sarah", "kokoro/am_michael", "kokoro/bf_emma", "kokoro/bm_george")
"""Voices of the evaluation sets: two women, two men, US and GB.  Never used in any training data."""
TRAIN_VOICES: tuple[str, ...] = tuple(v.name for v in VOICES.values() if v.name not in EVAL_VOICES)


def voices_of(*engines: str) -> tuple[str, ...]:
    """Training voices of the given engines, in registry order."""
    return tuple(name for name in TRAIN_VOICES if VOICES[name].engine in engines)


def blended_from(name: str) -> tuple[str, ...]:
    """The voices of the registry that a name stands for: itself, or those of ``kokoro/one+other``."""
    engine, _, voice = name.partition("/")
    if engine != "kokoro":
        return (name,)
    return tuple(f"kokoro/{part}" for part in voice.split("+"))


def get_voice(name: str) -> Voice:
    """Look a voice up by ``engine/voice``; ``kokoro/one+other`` is a speaker between two or more of Kokoro's.

    Raises VoiceError naming voices of that engine.
    """
    parts = blended_from(name)
    if len(parts) > 1:
        first, *_ = [get_voice(part) for part in parts]
        return replace(first, name=name)
    if name not in VOICES:
        engine = name.partition("/")[0]
        known = [v for v in VOICES if v.startswith(engine + "/")] or sorted({v.engine for v in VOICES.values()})
        raise VoiceError(f"no voice {name!r}; known: {', '.join(known)}")
    return VOICES[name]


def synthesize(
    text: str,
    voice: str,
    *,
    speed: float = 1.0,
    pitch: float = 1.0,
    cache_dir: str | os.PathLike[str] | None = None,
    threads: int = 1,
) -> np.ndarray:
    """Speak `text`; returns (N,) float32 at 16 kHz, silence trimmed to 50 ms at both ends, peak 0.5.

    speed: 1.0 is the voice's own pace (.5-2).  pitch: factor (.7-1.4); Kokoro and Flite move the formants with it
    (the sound of another speaker), Pico and eSpeak NG move the fundamental only.
    Raises VoiceError (unknown voice, empty text, nothing spoken), AssetUnavailable (the engine is not here).
    """
    if not text.strip():
        raise VoiceError("text to speak is empty")
    if not 0.5 <= speed <= 2.0 or not 0.7 <= pitch <= 1.4:
        raise VoiceError(f"speed {speed} must lie in .5-2 and pitch {pitch} in .7-1.4")
    chosen = get_voice(voice)
    if chosen.engine == "kokoro":
        raw_N, rate = tts_kokoro.speak(text, chosen.voice, speed=speed / pitch, cache_dir=cache_dir, threads=threads)
    elif chosen.engine == "pico":
        raw_N, rate, pitch = *_pico(text, chosen.voice, speed, pitch), 1.0
    elif chosen.engine == "flite":
        raw_N, rate = _flite(text, chosen.voice, speed / pitch, cache_dir)
    else:
        raw_N, rate, pitch = *_espeak(text, chosen.voice, speed, pitch), 1.0
    audio_N = trim_silence(resample(raw_N, rate, pitch))
    peak = float(np.abs(audio_N).max()) if audio_N.size else 0.0
    if peak < 1e-3:
        raise VoiceError(f"{voice} said nothing for {text!r}")
    return (audio_N * (PEAK / peak)).astype(np.float32)


def resample(audio_N: np.ndarray, rate: int, pitch: float = 1.0) -> np.ndarray:
    """Resample from `rate` Hz to 16 kHz; a pitch factor plays the clip that much faster on the way."""
    ratio = Fraction(SAMPLE_RATE, rate) / Fraction(pitch).limit_denominator(50)
    if ratio == 1:
        return audio_N.astype(np.float32)
    return resample_poly(audio_N, ratio.numerator, ratio.denominator).astype(np.float32)


def trim_silence(audio_N: np.ndarray) -> np.ndarray:
    """Cut leading and trailing parts below -42 dB of the peak (10 ms frames), leaving 50 ms of them."""
    frame = SAMPLE_RATE // 100
    if audio_N.size < frame:
        return audio_N
    frames_TW = audio_N[: audio_N.size // frame * frame].reshape(-1, frame)
    peaks_T = np.abs(frames_TW).max(axis=1)
    loud = np.flatnonzero(peaks_T > peaks_T.max() * 10 ** (_TRIM_DB / 20))
    if loud.size == 0:
        return audio_N[:0]
    pad = int(_TRIM_PAD_S * SAMPLE_RATE)
    return audio_N[max(0, loud[0] * frame - pad) : (loud[-1] + 1) * frame + pad]


def clip_id(text: str, voice: str, speed: float, pitch: float) -> str:
    """Stable id of a clip: the same request gives the same 16 hex digits on any machine."""
    return hashlib.sha256(f"{text}\0{voice}\0{speed:.3f}\0{pitch:.3f}".encode()).hexdigest()[:16]


def synthesize_cached(
    text: str,
    voice: str,
    *,
    speed: float = 1.0,
    pitch: float = 1.0,
    cache_dir: str | os.PathLike[str] | None = None,
) -> Path:
    """Like `synthesize`, kept as 16-bit FLAC under ``<cache>/tts``; returns the file's path."""
    key = clip_id(text, voice, speed, pitch)
    path = cache_root(cache_dir) / "tts" / key[:2] / f"{key}.flac"
    if not path.is_file():
        write_clip(path, synthesize(text, voice, speed=speed, pitch=pitch, cache_dir=cache_dir))
    return path


def write_clip(path: Path, audio_N: np.ndarray) -> None:
    """Write samples (N,) at 16 kHz as 16-bit FLAC, whole or not at all."""
    encoded = BytesIO()
    soundfile.write(encoded, audio_N, SAMPLE_RATE, format="FLAC", subtype="PCM_16")
    with replacing(path) as temporary:
        temporary.write_bytes(encoded.getbuffer())


# --- engines -------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _pico_engine():  # type: ignore[no-untyped-def]
    from py_nanotts import NanoTTS

    return NanoTTS()


def _pico(text: str, voice: str, speed: float, pitch: float) -> tuple[np.ndarray, int]:
    pcm = _pico_engine().speak(text, voice=voice, speed=speed, pitch=pitch)
    return np.frombuffer(pcm, dtype="<i2").astype(np.float32) / 32768, SAMPLE_RATE


@lru_cache(maxsize=4)
def _flite_command(cache_dir: str | None) -> tuple[str, dict[str, str]]:
    from wearllama.data.assets import fetch

    root = fetch("flite", cache_dir)
    environment = dict(os.environ)
    if root.name == "flite":  # unpacked from packages, not installed
        libraries = sorted({str(path.parent) for path in (root / "lib").rglob("libflite.so*")})
        environment["LD_LIBRARY_PATH"] = os.pathsep.join(libraries)
    return str(root / "flite"), environment


def _flite(text: str, voice: str, speed: float, cache_dir: str | os.PathLike[str] | None) -> tuple[np.ndarray, int]:
    program, environment = _flite_command(str(cache_dir) if cache_dir else None)
    options = ["-voice", voice, "--setf", f"duration_stretch={1 / speed:.4f}", "-t", text]
    return _run_speaker([program, *options, "-o"], environment)


def _espeak(text: str, voice: str, speed: float, pitch: float) -> tuple[np.ndarray, int]:
    program = shutil.which("espeak-ng")
    if program is None:
        from wearllama.data.assets import AssetUnavailable

        raise AssetUnavailable("the program espeak-ng is not installed; its voices are optional")
    # eSpeak's pitch is 0-99 around 50, its pace in words a minute around 160.
    options = ["-v", voice, "-s", str(round(160 * speed)), "-p", str(round(50 * pitch)), text]
    return _run_speaker([program, *options, "-w"], dict(os.environ))


def _run_speaker(command: list[str], environment: dict[str, str]) -> tuple[np.ndarray, int]:
    with tempfile.NamedTemporaryFile(suffix=".wav") as wav:
        done = subprocess.run([*command, wav.name], env=environment, capture_output=True, text=True)
        if done.returncode != 0:
            raise VoiceError(f"{command[0]} failed: {done.stderr.strip()[-200:]}")
        audio_N, rate = soundfile.read(wav.name, dtype="float32")
    return audio_N, rate
