"""The fixed beam towards the wearer's mouth: c_x from all microphones, aligned with c_0.

Shapes: B clips, M microphones, N samples, K taps, F frequencies.

Per frequency the beam is h = (Phi + mu I)^-1 g / (g^H (Phi + mu I)^-1 g): unit gain on the wearer's voice as c_0 hears
it (g, the mouth's transfer relative to c_0), least power from a diffuse field (Phi), and mu just large enough for the
white-noise gain over the mean microphone to stay above a bound.  It becomes one FIR filter a microphone; their common
delay is taken out again when the beam is applied.  Own voice is then equal in c_x and c_0, and anyone else is weaker in
c_x: the ratio of the two is what tells the model who spoke.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from wearllama.audio.array import ArrayGeometry
from wearllama.audio.head import diffuse_covariance, mouth_transfer
from wearllama.audio.timebase import SAMPLE_RATE

DESIGN_FFT = 1024
"""DFT size of the design; ``design_freqs_hz`` are its bins."""
DEFAULT_TAPS = 177
"""11 ms: the length of a published seven-microphone glasses beam at 16 kHz."""

_BLOCK_FFT = 2048
_BISECTIONS = 60


@dataclass(frozen=True, kw_only=True, eq=False)
class Beam:
    """A filter-and-sum beam, designed for one nominal array."""

    fir_MK: NDArray[np.float32]
    """One filter a microphone, in the array's channel order."""
    delay_samples: int
    """Delay of the filtered own voice against c_0, which ``apply_beam`` takes out."""
    array: str
    """Name of the geometry it was designed for."""

    def __post_init__(self) -> None:
        fir_MK = np.ascontiguousarray(self.fir_MK, dtype=np.float32)
        if fir_MK.ndim != 2 or 0 in fir_MK.shape or not np.isfinite(fir_MK).all():
            raise ValueError(f"beam for {self.array!r}: filters of shape {fir_MK.shape}, wanted finite (mics, taps)")
        if not 0 <= self.delay_samples < fir_MK.shape[1]:
            raise ValueError(
                f"beam for {self.array!r}: delay_samples is {self.delay_samples}, wanted 0..{fir_MK.shape[1] - 1}"
            )
        object.__setattr__(self, "fir_MK", fir_MK)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; float32 survives exactly."""
        return {"fir": self.fir_MK.tolist(), "delay_samples": self.delay_samples, "array": self.array}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Beam":
        """Inverse of ``to_dict``."""
        fir_MK = np.asarray(values["fir"], dtype=np.float32)
        return cls(fir_MK=fir_MK, delay_samples=int(values["delay_samples"]), array=str(values["array"]))


def design_freqs_hz() -> NDArray[np.float64]:
    """The ``(F,)`` frequencies at which a given mouth transfer or covariance must be sampled."""
    return np.linspace(0.0, SAMPLE_RATE / 2, DESIGN_FFT // 2 + 1)


def design_beam(
    array: ArrayGeometry,
    *,
    taps: int = DEFAULT_TAPS,
    wng_floor_db: float = 0.0,
    mouth_transfer_FM: NDArray[np.complex128] | None = None,
    diffuse_FMM: NDArray[np.complex128] | None = None,
) -> Beam:
    """The nominal beam of an array.

    ``wng_floor_db``: least white-noise gain relative to the mean microphone.  ``mouth_transfer_FM`` relative to c_0 and
    ``diffuse_FMM`` at ``design_freqs_hz()`` replace the head model, for instance by measured responses.  ValueError if
    the shapes differ from the array's or the bound lies above what its microphones can reach.
    """
    freqs_F = design_freqs_hz()
    transfer_FM = mouth_transfer(array, freqs_F) if mouth_transfer_FM is None else np.asarray(mouth_transfer_FM)
    noise_FMM = diffuse_covariance(array.positions_M3, freqs_F) if diffuse_FMM is None else np.asarray(diffuse_FMM)
    expected = (len(freqs_F), array.num_mics)
    if transfer_FM.shape != expected or noise_FMM.shape != (*expected, array.num_mics):
        raise ValueError(
            f"array {array.name!r}: mouth transfer {transfer_FM.shape} and covariance {noise_FMM.shape}, "
            f"wanted {expected} and {(*expected, array.num_mics)}"
        )
    return realise(bounded_weights(transfer_FM, noise_FMM, wng_floor_db), taps, array.name)


def delay_and_sum(
    array: ArrayGeometry, *, taps: int = DEFAULT_TAPS, mouth_transfer_FM: NDArray[np.complex128] | None = None
) -> Beam:
    """The comparison: own voice aligned in phase and averaged over microphones, unit gain towards the mouth."""
    transfer_FM = mouth_transfer(array, design_freqs_hz()) if mouth_transfer_FM is None else mouth_transfer_FM
    size_FM = np.abs(transfer_FM)
    return realise(transfer_FM / size_FM / size_FM.sum(axis=1, keepdims=True), taps, array.name)


def apply_beam(audio_MN: Tensor, beam: Beam) -> Tensor:
    """c_x ``(..., N)`` of audio ``(..., M, N)``, aligned sample by sample with c_0; float32.

    Overlap-save in blocks counted from the first sample, so that zeros appended to a clip change none of its samples.
    """
    mics, taps = beam.fir_MK.shape
    if audio_MN.ndim < 2 or audio_MN.shape[-2] != mics:
        raise ValueError(
            f"audio of shape {tuple(audio_MN.shape)}, wanted (..., {mics}, samples) for array {beam.array!r}"
        )
    samples = audio_MN.shape[-1]
    _, hop = beam_blocks(beam)
    blocks = -(-samples // hop)
    before = taps - 1 - beam.delay_samples
    padded = audio_MN.new_zeros((*audio_MN.shape[:-2], blocks * hop + taps - 1), dtype=torch.float32)
    channel, windows = padded[..., before : before + samples], padded.unfold(-1, _BLOCK_FFT, hop)
    filters_MF = torch.fft.rfft(torch.from_numpy(beam.fir_MK).to(audio_MN.device), n=_BLOCK_FFT)
    summed = torch.zeros(())
    for mic, filter_F in enumerate(filters_MF):  # one at a time: a channel's spectra stay in the processor's cache
        channel.copy_(audio_MN[..., mic, :])
        spectra = torch.fft.rfft(windows)  # (..., blocks, F)
        summed = summed.addcmul_(spectra, filter_F) if mic else spectra.mul_(filter_F)
    filtered = torch.fft.irfft(summed, n=_BLOCK_FFT)[..., taps - 1 :]
    return filtered.flatten(-2)[..., :samples].contiguous()


def beam_blocks(beam: Beam) -> tuple[int, int]:
    """Samples of a block of :func:`apply_beam`, and how many of them are new in each block."""
    return _BLOCK_FFT, _BLOCK_FFT - beam.fir_MK.shape[1] + 1


def select_channels(audio_MN: Tensor, array: ArrayGeometry, beam: Beam) -> tuple[Tensor, Tensor]:
    """The model's two channels, c_0 and c_x, each ``(..., N)``."""
    if audio_MN.shape[-2] != array.num_mics:
        raise ValueError(f"found {audio_MN.shape[-2]} channels, wanted {array.num_mics} of array {array.name!r}")
    return audio_MN[..., array.reference, :].float(), apply_beam(audio_MN, beam)


def beam_response(beam: Beam, transfer_FM: ArrayLike, freqs_F: ArrayLike) -> NDArray[np.complex128]:
    """Output ``(F,)`` of the applied beam for a source that reaches the microphones with ``transfer_FM``."""
    return (filter_response(beam, freqs_F) * np.asarray(transfer_FM)).sum(axis=1)


def filter_response(beam: Beam, freqs_F: ArrayLike) -> NDArray[np.complex128]:
    """Responses ``(F, M)`` of the applied filters, their common delay taken out."""
    taps_K = np.arange(beam.fir_MK.shape[1]) - beam.delay_samples
    omega_F = 2.0 * np.pi * np.asarray(freqs_F, dtype=np.float64) / SAMPLE_RATE
    return np.exp(-1j * np.outer(omega_F, taps_K)) @ beam.fir_MK.T.astype(np.float64)


def bounded_weights(
    transfer_FM: NDArray[np.complex128], noise_FMM: NDArray[np.complex128], wng_floor_db: float
) -> NDArray[np.complex128]:
    """Weights h with h^H g = 1, per bin the least loading that keeps h^H h within the white-noise bound."""
    mics = transfer_FM.shape[1]
    if wng_floor_db > 10.0 * np.log10(mics) - 0.01:
        raise ValueError(f"wng_floor_db is {wng_floor_db}, {mics} microphones reach at most {10 * np.log10(mics):.2f}")
    most_power_F = 10.0 ** (-wng_floor_db / 10.0) / (np.abs(transfer_FM) ** 2).mean(axis=1)
    values_FM, vectors_FMM = np.linalg.eigh(noise_FMM)
    along_FM = np.einsum("fmn,fm->fn", vectors_FMM.conj(), transfer_FM)
    power_FM = np.abs(along_FM) ** 2
    low_F = np.full(len(values_FM), -12.0)  # decades of mu, around microphones of unit power
    high_F = np.full(len(values_FM), 6.0)
    for _ in range(_BISECTIONS):
        middle_F = (low_F + high_F) / 2
        loaded_FM = np.maximum(values_FM, 0.0) + 10.0 ** middle_F[:, None]
        weight_power_F = (power_FM / loaded_FM**2).sum(axis=1) / (power_FM / loaded_FM).sum(axis=1) ** 2
        enough_F = weight_power_F <= most_power_F
        high_F = np.where(enough_F, middle_F, high_F)
        low_F = np.where(enough_F, low_F, middle_F)
    loaded_FM = np.maximum(values_FM, 0.0) + 10.0 ** high_F[:, None]
    weights_FM = np.einsum("fmn,fn->fm", vectors_FMM, along_FM / loaded_FM)
    return weights_FM / (power_FM / loaded_FM).sum(axis=1, keepdims=True)


def realise(weights_FM: NDArray[np.complex128], taps: int, name: str) -> Beam:
    """Filters whose response is conj(weights) with a delay of half their length, tapered at their ends."""
    if not 3 <= taps <= DESIGN_FFT // 2 or taps % 2 == 0:
        raise ValueError(f"taps is {taps}, wanted an odd number from 3 to {DESIGN_FFT // 2}")
    delay = taps // 2
    impulse_KM = np.roll(np.fft.irfft(weights_FM.conj(), n=DESIGN_FFT, axis=0), delay, axis=0)[:taps]
    taper_K = np.minimum(1.0, np.sin(np.pi * (np.arange(taps) + 0.5) / taps) * 2.0)
    fir_MK = (impulse_KM * taper_K[:, None]).T.astype(np.float32)
    return Beam(fir_MK=fir_MK, delay_samples=delay, array=name)
