"""What is measured on responses, simulated and recorded alike: arrival, levels, reverberation, the beam's cue.

Shapes: M microphones, K taps, F frequency bins, O frequency bands.
"""

from typing import TYPE_CHECKING

import numpy as np
import scipy.fft
from numpy.typing import NDArray

from wearllama.simulation.decay import decay_time

if TYPE_CHECKING:  # its torch would slow every worker that builds a bank
    from wearllama.audio.beamforming import Beam

SAMPLE_RATE = 16_000
BEAM_BANDS_HZ = ((150.0, 500.0), (500.0, 1000.0), (1000.0, 2000.0), (2000.0, 4000.0), (4000.0, 7500.0))
DIRECT_S = 0.0025
"""Direct sound: this much either side of the first arrival."""
OVERSAMPLING = 16
_PEAK_SHARE = 0.5  # the first arrival reaches this much of the strongest peak

Array = NDArray[np.floating]


def first_arrival(rir_K: Array) -> float:
    """Time in samples of the first peak that is at least half as high as the highest."""
    fine_K = np.abs(scipy.fft.irfft(scipy.fft.rfft(rir_K), OVERSAMPLING * len(rir_K)))
    start = int(np.argmax(fine_K >= _PEAK_SHARE * fine_K.max()))
    stop = start + OVERSAMPLING * 16  # half a millisecond and more: the peak that was begun
    return (start + int(np.argmax(fine_K[start:stop]))) / OVERSAMPLING


def direct_sound(rir_MK: Array, reference: int) -> Array:
    """The response with all but 2.5 ms around the first arrival at the reference set to zero; short fades."""
    arrival, half = first_arrival(rir_MK[reference]), DIRECT_S * SAMPLE_RATE
    distance_K = np.abs(np.arange(rir_MK.shape[1]) - arrival)
    return rir_MK * np.clip((half + 8 - distance_K) / 8, 0.0, 1.0)


def drr_db(rir_MK: Array, reference: int) -> Array:
    """Direct-to-reverberant energy ratio (M,), each microphone around its own arrival.

    The arrival at a shadowed microphone is sought within 1 ms of the reference's.
    """
    centre = round(first_arrival(rir_MK[reference]))
    half = round(DIRECT_S * SAMPLE_RATE)
    ratios = []
    for rir_K in rir_MK:
        low = max(centre - 16, 0)
        own = low + int(np.argmax(np.abs(rir_K[low : centre + 17])))
        energy_K = np.square(rir_K, dtype=np.float64)
        direct = energy_K[max(own - half, 0) : own + half].sum()
        ratios.append(10 * np.log10(direct / max(energy_K.sum() - direct, 1e-20)))
    return np.array(ratios)


def band_energy(rir_MK: Array, bands_hz: tuple[tuple[float, float], ...] = BEAM_BANDS_HZ) -> Array:
    """Energy (..., O) in frequency bands."""
    n_fft = scipy.fft.next_fast_len(2 * rir_MK.shape[-1], real=True)
    power_MF = np.abs(scipy.fft.rfft(rir_MK, n_fft)) ** 2
    hz_F = scipy.fft.rfftfreq(n_fft, 1 / SAMPLE_RATE)
    return np.stack([power_MF[..., (hz_F >= low) & (hz_F < high)].sum(axis=-1) for low, high in bands_hz], axis=-1)


def levels_db(rir_MK: Array, reference: int) -> Array:
    """Level (M, O) of the direct sound against the reference, per band: interaural differences in columns."""
    energy_MO = band_energy(direct_sound(rir_MK, reference))
    return 10 * np.log10(energy_MO / energy_MO[reference])


def delays_s(rir_MK: Array, reference: int) -> Array:
    """Delay (M,) of the direct sound against the reference, from the peak of the whitened cross-correlation."""
    direct_MK = direct_sound(rir_MK, reference)
    n_fft = 1024
    start = max(round(first_arrival(rir_MK[reference])) - 128, 0)
    spectra_MF = scipy.fft.rfft(direct_MK[:, start : start + 256], n_fft)
    cross_MF = spectra_MF * spectra_MF[reference].conj()
    hz_F = scipy.fft.rfftfreq(n_fft, 1 / SAMPLE_RATE)
    cross_MF *= ((hz_F > 300) & (hz_F < 5000)) / np.maximum(np.abs(cross_MF), 1e-20)
    correlation_MK = scipy.fft.irfft(cross_MF, OVERSAMPLING * n_fft)
    near = 24 * OVERSAMPLING
    window_MK = np.concatenate([correlation_MK[:, -near:], correlation_MK[:, : near + 1]], axis=1)
    return (np.argmax(window_MK, axis=1) - near) / (OVERSAMPLING * SAMPLE_RATE)


def beam_ratio_db(rir_MK: Array, beam: "Beam", reference: int) -> Array:
    """|c_x| / |c_0| (O,) of a source through the beam, reverberation included: the cue that tells near from far."""
    n_fft = scipy.fft.next_fast_len(rir_MK.shape[1] + beam.fir_MK.shape[1], real=True)
    out_F = np.sum(scipy.fft.rfft(rir_MK, n_fft) * scipy.fft.rfft(beam.fir_MK, n_fft), axis=0)
    heard_OO = band_energy(
        np.stack([scipy.fft.irfft(out_F, n_fft), np.pad(rir_MK[reference], (0, n_fft - rir_MK.shape[1]))])
    )
    return 10 * np.log10(heard_OO[0] / heard_OO[1])


def band_pass(rir_MK: Array, low_hz: float, high_hz: float) -> Array:
    """The response between two frequencies, zero phase, edges of a sixth of an octave."""
    n_fft = scipy.fft.next_fast_len(2 * rir_MK.shape[-1], real=True)
    octaves_F = np.log2(np.maximum(scipy.fft.rfftfreq(n_fft, 1 / SAMPLE_RATE), 1.0))
    rising_F = np.clip((octaves_F - np.log2(low_hz)) * 6 + 0.5, 0.0, 1.0)
    falling_F = np.clip((np.log2(high_hz) - octaves_F) * 6 + 0.5, 0.0, 1.0)
    return scipy.fft.irfft(scipy.fft.rfft(rir_MK, n_fft) * rising_F * falling_F, n_fft)[..., : rir_MK.shape[-1]]


def octave(rir_K: Array, centre_hz: float) -> Array:
    """One octave band of a response, zero phase."""
    n_fft = scipy.fft.next_fast_len(2 * len(rir_K), real=True)
    octaves_F = np.log2(np.maximum(scipy.fft.rfftfreq(n_fft, 1 / SAMPLE_RATE), 1.0) / centre_hz)
    weight_F = np.clip(1 - np.abs(octaves_F), 0.0, 1.0)
    return scipy.fft.irfft(scipy.fft.rfft(rir_K, n_fft) * weight_F, n_fft)[: len(rir_K)]


def reverberation_s(rir_K: Array, *, low_db: float = -25.0, octave_hz: float | None = 1000.0) -> float:
    """Reverberation time after Schroeder: slope from -5 dB to ``low_db``, in one octave or over all frequencies.

    The direct sound is left out, so that a near talker's decay is the room's as well.  ValueError where the response
    ends or meets its noise before ``low_db``.
    """
    start = round(first_arrival(rir_K) + DIRECT_S * SAMPLE_RATE)
    heard_K = np.asarray(rir_K if octave_hz is None else octave(rir_K, octave_hz), dtype=np.float64)[start:]
    return decay_time(np.square(heard_K), np.arange(len(heard_K)) / SAMPLE_RATE, low_db)
