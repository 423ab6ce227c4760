"""Sound from everywhere at once: independent noises mixed so that they have the array's diffuse covariance.

With C(f) the covariance of a diffuse field around the head, C^(1/2) turns as many independent noises as there are
microphones into one field (Habets and Gannot, JASA 2007, for free fields).  It becomes one filter for each pair.

Shapes: M microphones, J independent noises (as many), K taps, N samples, F frequencies.
"""

from functools import lru_cache

import numpy as np
import scipy.fft
import scipy.signal
from numpy.typing import NDArray

from wearllama.audio.array import ArrayGeometry
from wearllama.audio.head import diffuse_covariance
from wearllama.audio.timebase import SAMPLE_RATE

FIELD_TAPS = 512
_DESIGN_FFT = 1024


@lru_cache(maxsize=8)
def field_filters(array: ArrayGeometry) -> NDArray[np.float32]:
    """Filters ``(J, M, K)``, causal with a delay of half their length: the noises' sum at each microphone is the field.

    A field of noises of unit power has the power of a plane wave's free field, as the head raises or shades it.
    """
    freqs_F = np.linspace(0.0, SAMPLE_RATE / 2, _DESIGN_FFT // 2 + 1)
    values_FM, vectors_FMM = np.linalg.eigh(diffuse_covariance(array.positions_M3, freqs_F))
    root_FMM = np.einsum("fmi,fi,fni->fmn", vectors_FMM, np.sqrt(np.maximum(values_FM, 0.0)), vectors_FMM.conj())
    impulse_KMM = np.roll(scipy.fft.irfft(root_FMM, _DESIGN_FFT, axis=0), FIELD_TAPS // 2, axis=0)[:FIELD_TAPS]
    taper_K = np.minimum(1.0, 4.0 * np.sin(np.pi * (np.arange(FIELD_TAPS) + 0.5) / FIELD_TAPS))
    return np.ascontiguousarray((impulse_KMM * taper_K[:, None, None]).transpose(2, 1, 0), dtype=np.float32)


def diffuse_field(noise_JN: NDArray[np.float32], array: ArrayGeometry) -> NDArray[np.float32]:
    """The field ``(M, N)`` of independent noises of equal power, one a microphone.

    Their first and last 16 ms fade in and out with the filters; give more and cut where that matters.
    """
    if noise_JN.ndim != 2 or len(noise_JN) != array.num_mics:
        raise ValueError(f"diffuse field: noises of shape {noise_JN.shape}, wanted ({array.num_mics}, samples)")
    filtered_JMN = scipy.signal.oaconvolve(noise_JN[:, None], field_filters(array), axes=-1)
    delay = FIELD_TAPS // 2
    return np.asarray(filtered_JMN.sum(axis=0)[:, delay : delay + noise_JN.shape[1]], dtype=np.float32)
