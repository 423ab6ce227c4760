"""Tempo and pitch of an array's recording, the spatial cue kept: every channel is cut and joined at the same samples.

Tempo is overlap-add with matched joints (WSOLA).  Pitch moves grains of two periods closer together or further apart
(PSOLA): formants stay, and so do the delays between microphones, which resampling would stretch.  Where to cut is
decided on c_0 alone.

Shapes: M channels, N samples, T frames.
"""

import numpy as np
from numpy.typing import NDArray

SAMPLE_RATE = 16_000
PITCH_HZ = (60.0, 400.0)
VOICED = 0.5
"""Least normalised autocorrelation of a voiced frame."""

_WINDOW = 640  # 40 ms
_SEARCH = 160  # 10 ms to either side: more than a period of any voice's half
_GRAIN = 80  # unvoiced grains, 5 ms apart

Signal = NDArray[np.float32]


def stretch(audio_MN: Signal, tempo: float, reference: int = 0) -> Signal:
    """``tempo`` times as fast, at the same pitch: ``(M, round(N / tempo))``."""
    if not 0.25 <= tempo <= 4.0:
        raise ValueError(f"tempo is {tempo}, wanted 0.25 to 4")
    samples = audio_MN.shape[1]
    length = max(round(samples / tempo), 1)
    hop = _WINDOW // 2
    frames = -(-length // hop) + 1
    before = hop + _SEARCH
    needed = round((frames - 1) * hop * tempo) + before + _WINDOW + 2 * _SEARCH + hop
    padded_MN = np.pad(audio_MN, ((0, 0), (before, max(needed - samples - before, 0))))
    guide_N = padded_MN[reference].astype(np.float64)
    window_N = np.hanning(_WINDOW + 1)[:-1].astype(np.float32)
    out_MN = np.zeros((len(audio_MN), (frames + 1) * hop), np.float32)
    natural = 0  # where the frame before would go on
    for frame in range(frames):
        nominal = round(frame * hop * tempo) + _SEARCH
        start = nominal if frame == 0 else nominal + _best_shift(guide_N, natural, nominal)
        out_MN[:, frame * hop : frame * hop + _WINDOW] += window_N * padded_MN[:, start : start + _WINDOW]
        natural = start + hop
    return out_MN[:, hop : hop + length]


def shift_pitch(audio_MN: Signal, semitones: float, reference: int = 0) -> Signal:
    """The voice's pitch by ``semitones``, at the same tempo: ``(M, N)``."""
    if abs(semitones) > 12:
        raise ValueError(f"pitch is {semitones} semitones, wanted -12 to 12")
    factor = 2.0 ** (semitones / 12.0)
    samples = audio_MN.shape[1]
    marks_T, period_T, voiced_T = _pitch_marks(audio_MN[reference].astype(np.float64))
    reach = int(SAMPLE_RATE / PITCH_HZ[0]) + 1
    padded_MN = np.pad(audio_MN, ((0, 0), (reach, reach)))
    out_MN = np.zeros_like(padded_MN)
    weight_N = np.zeros(padded_MN.shape[1], np.float32)
    place = 0.0
    while place < samples:
        nearest = int(np.searchsorted(marks_T, place))
        if nearest == len(marks_T) or (nearest and place - marks_T[nearest - 1] < marks_T[nearest] - place):
            nearest -= 1
        mark, period = int(marks_T[nearest]), int(period_T[nearest])
        window_N = np.hanning(2 * period + 1).astype(np.float32)
        grain = slice(mark + reach - period, mark + reach + period + 1)
        target = slice(round(place) + reach - period, round(place) + reach + period + 1)
        out_MN[:, target] += window_N * padded_MN[:, grain]
        weight_N[target] += window_N
        # The distance of the marks rather than the period: a factor of one gives back what came in.
        step = int(marks_T[nearest + 1]) - mark if nearest + 1 < len(marks_T) else period
        place += step / factor if voiced_T[nearest] else step
    out_MN /= np.maximum(weight_N, np.float32(0.1))
    return out_MN[:, reach : reach + samples]


def _best_shift(guide_N: NDArray[np.float64], natural: int, nominal: int) -> int:
    """Shift within the search range at which the guide is most like its natural continuation; small ones preferred."""
    wanted_N = guide_N[natural : natural + _WINDOW // 2]
    region_N = guide_N[nominal - _SEARCH : nominal + _SEARCH + _WINDOW // 2]
    likeness = np.correlate(region_N, wanted_N, mode="valid")
    power = np.convolve(region_N**2, np.ones(_WINDOW // 2), mode="valid")
    alike = likeness / np.sqrt(power * np.sum(wanted_N**2) + 1e-9)
    return int(np.argmax(alike - 0.01 * np.abs(np.arange(-_SEARCH, _SEARCH + 1)) / _SEARCH)) - _SEARCH


def _pitch_marks(
    guide_N: NDArray[np.float64],
) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.bool_]]:
    """Marks a period apart (5 ms where nothing is voiced), on the peaks of voiced periods; their periods."""
    periods_T, voiced_T = _periods(guide_N)
    frame = SAMPLE_RATE // 100
    marks, lengths, voices = [0], [_GRAIN], [False]
    while marks[-1] < len(guide_N) - 1:
        at = min(marks[-1] // frame, len(periods_T) - 1)
        period = int(periods_T[at]) if voiced_T[at] else _GRAIN
        mark = marks[-1] + period
        if voiced_T[at] and voices[-1] and mark + period // 4 < len(guide_N):
            around_N = guide_N[mark - period // 4 : mark + period // 4 + 1]
            mark += int(np.argmax(around_N)) - period // 4
        marks.append(min(mark, len(guide_N) - 1))
        lengths.append(period)
        voices.append(bool(voiced_T[at]))
    return np.array(marks), np.array(lengths), np.array(voices)


def _periods(guide_N: NDArray[np.float64]) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Pitch period in samples and whether there is one, every 10 ms, by normalised autocorrelation over 40 ms."""
    shortest, longest = (int(SAMPLE_RATE / hz) for hz in PITCH_HZ[::-1])
    frame, size = SAMPLE_RATE // 100, 1024
    padded_N = np.pad(guide_N, (size // 2, size))
    starts = np.arange(0, len(guide_N), frame)
    frames_TN = padded_N[starts[:, None] + np.arange(size)] * np.hanning(size)
    spectrum_TF = np.abs(np.fft.rfft(frames_TN, 2 * size)) ** 2
    likeness_TK = np.fft.irfft(spectrum_TF)[:, : longest + 1]
    bias_K = np.fft.irfft(np.abs(np.fft.rfft(np.hanning(size), 2 * size)) ** 2)[: longest + 1]
    likeness_TK /= np.maximum(likeness_TK[:, :1], 1e-12) * (bias_K / bias_K[0])
    period_T = shortest + np.argmax(likeness_TK[:, shortest:], axis=1)
    peak_T = likeness_TK[np.arange(len(starts)), period_T]
    loud_T = np.sqrt(np.mean(frames_TN**2, axis=1)) > 0.02 * np.sqrt(np.max(np.mean(frames_TN**2, axis=1)) + 1e-20)
    return period_T, (peak_T > VOICED) & loud_T
