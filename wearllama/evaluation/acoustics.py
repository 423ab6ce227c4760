"""Acoustic measurements of a recording as words: what a tool could tell a model that has only language to reason with.

Utterances are what lies between silences; of each are told the level at the nose, the beam's level over it (own voice
passes the beam, others lose 2 to 10 dB), how quickly sound dies away (a stand-in for the direct-to-reverberant ratio)
and the pitch; of two neighbours whether the voice seems another.  All estimates are rough, and are said to be.

Shapes: N samples at 16 kHz, K frames of 20 ms.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wearllama.audio.timebase import SAMPLE_RATE

Samples = NDArray[np.float32]
FRAME = 320
GAP_FRAMES = 12
"""Silence that parts utterances: 240 ms."""
ACTIVE_DB = 8.0
"""Frames this much over the quietest tenth are speech; the threshold stays within `ACTIVE_RANGE_DB` of the loudest."""
ACTIVE_RANGE_DB = (45.0, 15.0)
PITCH_HZ = (70.0, 380.0)


@dataclass(frozen=True)
class Measured:
    """One utterance."""

    start_s: float
    end_s: float
    level_db: float
    beam_db: float | None
    decay_db: float
    """Median fall of the level in the 60 ms after a peak: small where reverberation fills in."""
    pitch_hz: float | None


def measure(c0_N: Samples, cx_N: Samples | None) -> list[Measured]:
    """Utterances of a recording; none where it is silent."""
    level_K = _levels(c0_N)
    if not len(level_K) or level_K.max() <= -90.0:
        return []
    lowest, highest = (level_K.max() - below for below in ACTIVE_RANGE_DB)
    active = np.flatnonzero(level_K > np.clip(np.percentile(level_K, 10) + ACTIVE_DB, lowest, highest))
    cuts = np.flatnonzero(np.diff(active) > GAP_FRAMES)
    found = []
    for part in np.split(active, cuts + 1):
        if len(part) < 5:
            continue
        span = slice(int(part[0]) * FRAME, (int(part[-1]) + 1) * FRAME)
        frames = level_K[part[0] : part[-1] + 1]
        beam = None if cx_N is None else _power_db(cx_N[span]) - _power_db(c0_N[span])
        found.append(Measured(span.start / SAMPLE_RATE, span.stop / SAMPLE_RATE, _power_db(c0_N[span]), beam,
                              _decay(frames), _pitch(c0_N[span])))  # fmt: skip
    return found


def describe(utterances: list[Measured]) -> str:
    """One line for a prompt."""
    if not utterances:
        return "Measured: no speech."
    parts = []
    for number, one in enumerate(utterances, start=1):
        facts = [f"level {one.level_db:.0f} dBFS", f"decay {one.decay_db:.0f} dB in 60 ms"]
        facts += [] if one.beam_db is None else [f"beam {one.beam_db:+.1f} dB"]
        facts += [] if one.pitch_hz is None else [f"pitch {one.pitch_hz:.0f} Hz"]
        if number > 1:
            facts.append(f"voice {'changed' if _changed(utterances[number - 2], one) else 'alike'}")
        parts.append(f"utterance {number} ({one.start_s:.1f}-{one.end_s:.1f} s): " + ", ".join(facts))
    return "Measured (rough): " + "; ".join(parts) + "."


def _changed(before: Measured, after: Measured) -> bool:
    """Another pitch by a fifth of an octave and more, or another place by 6 dB."""
    if before.pitch_hz and after.pitch_hz and abs(np.log2(after.pitch_hz / before.pitch_hz)) > 0.2:
        return True
    return abs(after.level_db - before.level_db) > 6.0


def _levels(audio_N: Samples) -> NDArray[np.float64]:
    frames_KF = audio_N[: len(audio_N) // FRAME * FRAME].reshape(-1, FRAME).astype(np.float64)
    return 10 * np.log10(np.mean(frames_KF**2, axis=1) + 1e-10)


def _power_db(audio_N: Samples) -> float:
    return float(10 * np.log10(np.mean(np.square(audio_N, dtype=np.float64)) + 1e-10))


def _decay(level_K: NDArray[np.float64]) -> float:
    falls = [level_K[k] - level_K[k + 3] for k in range(1, len(level_K) - 3)
             if level_K[k] > max(level_K[k - 1], level_K[k + 1])]  # fmt: skip
    return float(np.median(falls)) if falls else 0.0


def _pitch(audio_N: Samples) -> float | None:
    """Median over frames of 40 ms of the autocorrelation's highest peak; None where few frames are voiced."""
    size, low, high = 640, int(SAMPLE_RATE / PITCH_HZ[1]), int(SAMPLE_RATE / PITCH_HZ[0])
    found = []
    for start in range(0, len(audio_N) - size, size):
        frame = audio_N[start : start + size].astype(np.float64)
        frame = frame - frame.mean()
        power = float(frame @ frame)
        if power / size < 1e-8:
            continue
        spectrum = np.fft.rfft(frame, 2 * size)
        correlation = np.fft.irfft(np.abs(spectrum) ** 2)[:size] / power
        lag = low + int(np.argmax(correlation[low:high]))
        if correlation[lag] > 0.45:
            found.append(SAMPLE_RATE / lag)
    return float(np.median(found)) if len(found) >= 3 else None
