"""Noises made from nothing: seamless loops, each function one kind of sound.

A loop is :data:`LOOP_SAMPLES` long at 16 kHz and wraps around without a click; its level means nothing.
"""

import numpy as np
import scipy.fft
from numpy.typing import NDArray

SAMPLE_RATE = 16_000
LOOP_SAMPLES = 12 * SAMPLE_RATE

Loop = NDArray[np.float64]


def unit_rms(signal_N: NDArray[np.floating]) -> NDArray[np.float32]:
    """The signal at a root mean square of 1; silence stays silence."""
    return (signal_N / (np.sqrt(np.mean(np.square(signal_N))) + 1e-12)).astype(np.float32)


def coloured(rng: np.random.Generator, slope: float, low_hz: float = 40.0, high_hz: float = 7800.0) -> Loop:
    """A loop of noise with ``slope`` dB an octave between two corner frequencies."""
    bins = LOOP_SAMPLES // 2 + 1
    freqs_F = scipy.fft.rfftfreq(LOOP_SAMPLES, 1 / SAMPLE_RATE)
    shape_F = (np.maximum(freqs_F, low_hz) / 1000.0) ** (slope / 6.02)
    shape_F *= 1 / np.sqrt(1 + (low_hz / np.maximum(freqs_F, 1.0)) ** 4) / np.sqrt(1 + (freqs_F / high_hz) ** 8)
    return scipy.fft.irfft((rng.standard_normal(bins) + 1j * rng.standard_normal(bins)) * shape_F, LOOP_SAMPLES)


def slow(rng: np.random.Generator, rate_hz: float, depth_db: float) -> Loop:
    """A looped gain that wanders at up to ``rate_hz`` with ``depth_db`` standard deviation."""
    spectrum_F = np.zeros(LOOP_SAMPLES // 2 + 1, complex)
    count = max(int(rate_hz * LOOP_SAMPLES / SAMPLE_RATE), 1)
    spectrum_F[1 : count + 1] = rng.standard_normal(count) + 1j * rng.standard_normal(count)
    wander_N = scipy.fft.irfft(spectrum_F, LOOP_SAMPLES)
    return 10 ** (depth_db * wander_N / wander_N.std() / 20)


def harmonics(rng: np.random.Generator, base_hz: float, count: int, slope_db: float) -> Loop:
    """A looped tone complex, ``slope_db`` an octave, that drifts a little in level."""
    cycles = round(base_hz * LOOP_SAMPLES / SAMPLE_RATE)
    phase_N = 2 * np.pi * cycles * np.arange(LOOP_SAMPLES) / LOOP_SAMPLES
    total_N = np.zeros(LOOP_SAMPLES)
    for harmonic in range(1, count + 1):
        if harmonic * base_hz < 7500:
            level = 10 ** (slope_db * np.log2(harmonic) / 20) * rng.uniform(0.5, 1.5)
            total_N += level * np.cos(harmonic * phase_N + rng.uniform(0, 2 * np.pi))
    return total_N / total_N.std()


def mix(*parts: tuple[Loop, float]) -> Loop:
    """Sum of parts, each brought to its level in dB."""
    return sum((part_N / part_N.std() * 10 ** (level / 20) for part_N, level in parts), np.zeros(LOOP_SAMPLES))


def conversation(rng: np.random.Generator) -> Loop:
    """Speech-shaped noise under the syllables of four talkers."""
    talkers = [coloured(rng, -7.0, 150, 5000) * slow(rng, 5.0, 7.0) * slow(rng, 0.6, 5.0) for _ in range(4)]
    return mix(*[(talker_N, rng.uniform(-6, 0)) for talker_N in talkers])


def jackhammer(rng: np.random.Generator) -> Loop:
    beat_N = np.zeros(LOOP_SAMPLES)
    times = np.arange(0, LOOP_SAMPLES, SAMPLE_RATE / rng.uniform(16, 26)) + rng.normal(0, 20, 1)
    beat_N[times.astype(int) % LOOP_SAMPLES] = 1.0
    ring_N = np.exp(-np.arange(LOOP_SAMPLES) / 150.0) * coloured(rng, -2.0, 120)
    struck_N = scipy.fft.irfft(scipy.fft.rfft(beat_N) * scipy.fft.rfft(ring_N), LOOP_SAMPLES)
    return mix((struck_N * np.sqrt(slow(rng, 0.3, 6.0)), 0.0), (coloured(rng, -4.0), -14.0))


def music(rng: np.random.Generator) -> Loop:
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


def singing(rng: np.random.Generator) -> Loop:
    """A loud voice on sustained notes: harmonics with vibrato under a singer's formants."""
    beat = LOOP_SAMPLES // 12
    scale = rng.uniform(140, 330) * 2 ** (np.array([0, 2, 4, 5, 7, 9, 11, 12]) / 12)
    time_N = np.arange(LOOP_SAMPLES) / SAMPLE_RATE
    note_N = np.repeat(np.log2(rng.choice(scale, 12)), beat)
    glide_N = scipy.fft.irfft(scipy.fft.rfft(note_N) * np.exp(-((np.arange(LOOP_SAMPLES // 2 + 1) / 150) ** 2)))
    vibrato_N = 0.03 * np.sin(2 * np.pi * round(5.5 * LOOP_SAMPLES / SAMPLE_RATE) * time_N * SAMPLE_RATE / LOOP_SAMPLES)
    cycles_N = np.cumsum(2 ** (glide_N + vibrato_N)) / SAMPLE_RATE
    cycles_N += np.arange(LOOP_SAMPLES) / LOOP_SAMPLES * (round(cycles_N[-1]) - cycles_N[-1])  # ends where it began
    total_N = np.zeros(LOOP_SAMPLES)
    for harmonic in range(1, 16):
        pitch = harmonic * 2 ** float(glide_N.mean())
        formants = sum(
            np.exp(-(((pitch - centre) / width) ** 2)) for centre, width in ((600, 250), (1100, 300), (2900, 500))
        )
        total_N += (0.05 + formants) / harmonic**0.5 * np.cos(2 * np.pi * harmonic * cycles_N)
    return total_N * slow(rng, 1.5, 3.0)


def whisper(rng: np.random.Generator) -> Loop:
    """Breathed speech: bands of noise that open and close with the syllables, and pauses."""
    bands = [(400, 900), (1000, 2200), (2400, 5500)]
    parts = [(coloured(rng, -1.0, low, high) * slow(rng, 5.0, 8.0), rng.uniform(-6, 0)) for low, high in bands]
    return mix(*parts) * slow(rng, 0.5, 6.0)


def leaves(rng: np.random.Generator) -> Loop:
    """Rustling: thousands of short dry strokes, in swells of wind."""
    strokes_N = np.zeros(LOOP_SAMPLES)
    count = int(rng.uniform(2500, 5000))
    strokes_N[rng.integers(0, LOOP_SAMPLES, count)] = rng.standard_normal(count) * rng.exponential(1.0, count)
    ring_N = np.exp(-np.arange(LOOP_SAMPLES) / rng.uniform(20, 60)) * coloured(rng, 1.0, 1500, 7000)
    rustle_N = scipy.fft.irfft(scipy.fft.rfft(strokes_N) * scipy.fft.rfft(ring_N), LOOP_SAMPLES)
    return mix((rustle_N * slow(rng, 0.3, 6.0), 0.0), (coloured(rng, -2.0, 800, 6000) * slow(rng, 0.3, 4.0), -8.0))


def other(rng: np.random.Generator) -> Loop:
    """A place where something goes on: dishes or tools that ring, steps, a far engine."""
    rings_N, steps_N = np.zeros(LOOP_SAMPLES), np.zeros(LOOP_SAMPLES)
    for _ in range(int(rng.uniform(8, 20))):
        length = int(rng.uniform(0.08, 0.4) * SAMPLE_RATE)
        time_K = np.arange(length) / SAMPLE_RATE
        tones = sum(np.cos(2 * np.pi * f * time_K) for f in rng.uniform(900, 6000, 4))
        hit_K = tones * np.exp(-time_K / rng.uniform(0.02, 0.1)) * rng.exponential(1.0)
        np.add.at(rings_N, (int(rng.integers(LOOP_SAMPLES)) + np.arange(length)) % LOOP_SAMPLES, hit_K)
    steps_N[(np.arange(24) * LOOP_SAMPLES // 24 + rng.integers(-800, 800, 24)) % LOOP_SAMPLES] = rng.uniform(0.5, 1, 24)
    thud_N = np.exp(-np.arange(LOOP_SAMPLES) / 600.0) * coloured(rng, -9.0, 60, 900)
    walked_N = scipy.fft.irfft(scipy.fft.rfft(steps_N) * scipy.fft.rfft(thud_N), LOOP_SAMPLES)
    return mix((rings_N, 0.0), (walked_N, -2.0), (coloured(rng, -6.0, 50) * slow(rng, 0.2, 3.0), -6.0))
