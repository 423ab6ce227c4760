"""What is done to a finished recording to test a model: noise, wind, reverberation, overload, failed microphones.

Additions have the spatial properties that the array would see: diffuse noise its coherence, wind and self-noise none, a
point source the delays and levels of its direction.  SNR is over speech-active frames of c_0, as in mixtures.

Shapes: M channels, N samples, K taps.
"""

from dataclasses import dataclass

import numpy as np
import scipy.fft
import scipy.signal
from numpy.typing import NDArray

from wearllama.audio.array import ArrayGeometry
from wearllama.audio.head import HEAD_CENTRE, head_transfer
from wearllama.simulation.device import DeviceConfig, draw_device
from wearllama.simulation.fields import diffuse_field
from wearllama.simulation.noise import NoiseBank, draw_wind
from wearllama.simulation.sources import active_samples, power

SAMPLE_RATE = 16_000
TAIL_ENERGY_AT_HALF_S = 1.0
"""Energy of an added reverberation over the recording's at RT60 .5 s, as from a talker a metre or so away."""
POINT_DISTANCE_M = 2.0

_POINT_FFT = 1024

Signal = NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What a perturbation needs to know besides the recording."""

    array: ArrayGeometry | None
    """Geometry of the channels; None for a mono recording."""
    noise: NoiseBank
    rng: np.random.Generator

    @property
    def reference(self) -> int:
        """Channel that is c_0."""
        return 0 if self.array is None else self.array.reference


def add_diffuse_noise(audio_MN: Signal, snr_db: float, around: Surroundings, kind: str = "Pink") -> Signal:
    """A noise from everywhere, with the array's coherence."""
    draw = around.noise.draw(kind, audio_MN.shape[1] + 512, around.rng)
    signals = draw.independent(len(audio_MN), audio_MN.shape[1] + 512, around.rng)
    field_MN = np.stack(signals) if around.array is None else diffuse_field(np.stack(signals), around.array)
    return _at_snr(audio_MN, field_MN[:, 256:-256], snr_db, around)


def add_point_noise(audio_MN: Signal, snr_db: float, around: Surroundings, kind: str) -> Signal:
    """A noise from one direction, two metres away at any azimuth, without a room."""
    draw = around.noise.draw(kind, audio_MN.shape[1] + _POINT_FFT, around.rng)
    azimuth = around.rng.uniform(0, 2 * np.pi)
    signal_N = np.stack(draw.signals).sum(axis=0)
    if around.array is None:
        return _at_snr(audio_MN, signal_N[None, : audio_MN.shape[1]], snr_db, around)
    source_3 = np.asarray(HEAD_CENTRE) + POINT_DISTANCE_M * np.array([np.sin(azimuth), 0.0, np.cos(azimuth)])
    freqs_F = scipy.fft.rfftfreq(_POINT_FFT, 1 / SAMPLE_RATE)
    centre_F1 = np.exp(-2j * np.pi * freqs_F[:, None] * 0.016)  # 16 ms for the head's response to stay causal
    response_KM = scipy.fft.irfft(head_transfer(source_3, around.array.positions_M3, freqs_F) * centre_F1, axis=0)
    heard_MN = scipy.signal.oaconvolve(signal_N[None], response_KM.T.astype(np.float32), axes=-1)
    return _at_snr(audio_MN, heard_MN[:, _POINT_FFT : _POINT_FFT + audio_MN.shape[1]], snr_db, around)


def add_coloured_noise(audio_MN: Signal, snr_db: float, around: Surroundings) -> Signal:
    """A diffuse noise whose slope is drawn between -6 and +6 dB an octave."""
    samples = audio_MN.shape[1] + 512
    white_MN = around.rng.standard_normal((len(audio_MN), samples))
    slope = around.rng.uniform(-6.0, 6.0)
    shape_F = (np.maximum(scipy.fft.rfftfreq(samples, 1 / SAMPLE_RATE), 50.0) / 1000.0) ** (slope / 6.02)
    noise_MN = scipy.fft.irfft(scipy.fft.rfft(white_MN) * shape_F, samples).astype(np.float32)
    field_MN = noise_MN if around.array is None else diffuse_field(noise_MN, around.array)
    return _at_snr(audio_MN, field_MN[:, 256:-256], snr_db, around)


def add_white_noise(audio_MN: Signal, snr_db: float, around: Surroundings) -> Signal:
    """Gaussian noise of its own at every channel, equally loud."""
    return _at_snr(audio_MN, around.rng.standard_normal(audio_MN.shape, np.float32), snr_db, around)


def add_wind(audio_MN: Signal, snr_db: float, around: Surroundings) -> Signal:
    """Gusty wind, independent per microphone; the device overloads at full scale."""
    loops = around.noise.draw("Wind", 1, around.rng).loops
    wind_MN = draw_wind(len(audio_MN), audio_MN.shape[1], around.rng, loops=loops)
    return np.clip(_at_snr(audio_MN, wind_MN, snr_db, around), -1.0, 1.0)


def overload(audio_MN: Signal, over_db: float) -> Signal:
    """Clipped where it is over the loudest sample less ``over_db``: a device with so much too much gain.

    The level stays the recording's own, so that clipping is all that changes.
    """
    peak = float(np.abs(audio_MN).max(initial=0.0)) * 10 ** (-over_db / 20)
    return np.clip(audio_MN, -peak, peak)


def break_microphone(audio_MN: Signal, microphone: float, around: Surroundings, *, covered: bool) -> Signal:
    """A dead microphone (its self-noise 60 dB under the others' mean is left), or one that is covered (20 dB)."""
    mic = int(microphone)
    if len(audio_MN) < 2:
        raise ValueError("a failed microphone needs an array, the recording is mono")
    if not 0 <= mic < len(audio_MN):
        raise ValueError(f"microphone {mic} cannot fail, the recording has 0..{len(audio_MN) - 1}")
    out_MN = audio_MN.copy()
    if not covered:
        rms = np.sqrt(power(audio_MN)) * 1e-3
        out_MN[mic] = rms * around.rng.standard_normal(audio_MN.shape[1], np.float32)
        return out_MN
    config = DeviceConfig(gain_sd_db=0.0, phase_deg=0.0, covered=(mic,), cover_db=20.0)
    draw = draw_device(config, len(audio_MN), 0, np.random.default_rng(0))
    n_fft = scipy.fft.next_fast_len(audio_MN.shape[1] + 64, real=True)
    n_fft += n_fft % 2
    spectrum_F = scipy.fft.rfft(audio_MN[mic], n_fft) * draw.response_MF(n_fft)[mic]
    out_MN[mic] = scipy.fft.irfft(spectrum_F, n_fft)[: audio_MN.shape[1]]
    return out_MN


def reverberate(audio_MN: Signal, rt60_s: float, around: Surroundings) -> Signal:
    """A room's diffuse tail behind everything, with the array's coherence and energy in proportion to ``rt60_s``.

    Direct sound and what the recording has of its own room stay as they are.
    """
    if rt60_s <= 0:
        raise ValueError(f"reverberation of {rt60_s} s, wanted a positive time")
    taps = round(1.2 * rt60_s * SAMPLE_RATE)
    noise_MK = around.rng.standard_normal((len(audio_MN), taps + 512), np.float32)
    field_MK = noise_MK if around.array is None else diffuse_field(noise_MK, around.array)
    time_K = np.arange(taps) / SAMPLE_RATE
    onset_K = np.clip((time_K - 0.01) / 0.005, 0.0, 1.0)  # walls are a metre or two away
    tail_MK = field_MK[:, 256 : 256 + taps] * onset_K * 10 ** (-3 * time_K / rt60_s)
    energy = np.sum(tail_MK[around.reference] ** 2)
    tail_MK *= np.sqrt(TAIL_ENERGY_AT_HALF_S * rt60_s / 0.5 / energy)
    late_MN = scipy.signal.oaconvolve(audio_MN[None, around.reference], tail_MK.astype(np.float32), axes=-1)
    return (audio_MN + late_MN[:, : audio_MN.shape[1]]).astype(np.float32)


def _at_snr(audio_MN: Signal, noise_MN: Signal, snr_db: float, around: Surroundings) -> Signal:
    reference = around.reference
    active_N = active_samples(audio_MN[reference])
    if not active_N.any():
        return audio_MN
    signal, noise = power(audio_MN[reference][active_N]), power(noise_MN[reference][active_N])
    gain = np.sqrt(signal / max(noise, 1e-30) / 10 ** (snr_db / 10))
    return (audio_MN + np.float32(gain) * noise_MN).astype(np.float32)
