"""Adaptive MVDR: the beam that follows the noise of the moment, as the comparison to the fixed one.

Per frame and frequency h = (Phi + loading)^-1 g / (g^H (Phi + loading)^-1 g), with the wearer's nominal transfer g and
the covariance Phi of what was heard while the wearer did not speak.  Whether the wearer speaks is read off the fixed
beam: own voice is as strong in it as in c_0, anybody else is weaker.  Everything is causal but the analysis window.

Shapes: M microphones, N samples, T frames, F frequencies.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from wearllama.audio.array import ArrayGeometry
from wearllama.audio.beam_metrics import Field, own_voice_field
from wearllama.audio.beamforming import Beam, design_beam, filter_response
from wearllama.audio.timebase import SAMPLE_RATE


@dataclass(frozen=True, kw_only=True)
class AdaptiveConfig:
    """How quickly and how far the beam follows."""

    n_fft: int = 512
    """Samples of the analysis window; it moves by half of them."""
    memory_s: float = 0.4
    """Time constant of the covariance."""
    speech_db: float = -4.0
    """The wearer speaks where the fixed beam is at most so far under c_0, 150 to 1500 Hz; the covariance rests."""
    loading_db: float = -20.0
    """Added to every microphone's power, relative to their mean: what keeps a device that is off from hurting."""
    diffuse_db: float = -10.0
    """Share of a diffuse field that the covariance always keeps."""

    def __post_init__(self) -> None:
        if self.n_fft < 64 or self.n_fft % 2 or self.memory_s <= 0:
            raise ValueError(f"adaptive beam: n_fft {self.n_fft} must be even and >= 64, memory_s {self.memory_s} > 0")


class AdaptiveOutput(NamedTuple):
    """The beam's signal and how it was made."""

    cx_N: Tensor
    weights_TFM: Tensor
    """Weights of every frame: other signals can be sent through the same beam with :func:`apply_weights`."""
    speaks_T: Tensor
    """Frames in which the wearer was taken to speak."""


def window_freqs_hz(config: AdaptiveConfig | None = None) -> NDArray[np.float64]:
    """The ``(F,)`` frequencies of the analysis window."""
    return np.linspace(0.0, SAMPLE_RATE / 2, (config or AdaptiveConfig()).n_fft // 2 + 1)


def mvdr_weights(noise_FMM: Tensor, transfer_FM: Tensor, loading: float = 0.0) -> Tensor:
    """Weights ``h (..., F, M)`` with ``h^H g = 1`` and least ``h^H Phi h``; c_0-relative transfer ``g``.

    ``loading`` is added to every microphone's power, relative to their mean.
    """
    mics = noise_FMM.shape[-1]
    mean_F = noise_FMM.diagonal(dim1=-2, dim2=-1).real.mean(dim=-1)
    identity_MM = torch.eye(mics, dtype=noise_FMM.dtype, device=noise_FMM.device)
    loaded_FMM = noise_FMM + (loading * mean_F + 1e-20)[..., None, None] * identity_MM
    towards_FM = torch.linalg.solve(loaded_FMM, transfer_FM.expand(loaded_FMM.shape[:-1]).unsqueeze(-1))[..., 0]
    return towards_FM / (transfer_FM.conj() * towards_FM).sum(dim=-1, keepdim=True)


def adaptive_mvdr(
    audio_MN: Tensor,
    array: ArrayGeometry,
    config: AdaptiveConfig | None = None,
    *,
    beam: Beam | None = None,
    field: Field | None = None,
) -> AdaptiveOutput:
    """c_x ``(N,)`` of an array's recording ``(M, N)``, aligned with c_0.

    ``beam`` tells own voice from others, ``field`` (at :func:`window_freqs_hz`) is where own voice comes from and what
    is heard at the start; by default both are the array's nominal ones.  ValueError for another number of channels.
    """
    if audio_MN.ndim != 2 or audio_MN.shape[0] != array.num_mics:
        raise ValueError(f"audio of shape {tuple(audio_MN.shape)}, wanted ({array.num_mics}, samples): {array.name!r}")
    config = config or AdaptiveConfig()
    spectra_TFM = _analyse(audio_MN, config.n_fft)
    field = field or own_voice_field(array, window_freqs_hz(config))
    speaks_T = _wearer_speaks(spectra_TFM, beam or design_beam(array), array.reference, field.freqs_F, config)
    noise_FMM = torch.from_numpy(field.diffuse_FMM).to(torch.complex64)
    covariance_TFMM = _follow_noise(spectra_TFM, speaks_T, noise_FMM, config)
    transfer_FM = torch.from_numpy(field.target_FM).to(torch.complex64)
    weights_TFM = mvdr_weights(covariance_TFMM, transfer_FM, 10.0 ** (config.loading_db / 10.0))
    return AdaptiveOutput(apply_weights(audio_MN, weights_TFM), weights_TFM, speaks_T)


def apply_weights(audio_MN: Tensor, weights_TFM: Tensor) -> Tensor:
    """A recording ``(M, N)`` through the weights of every frame, ``(N,)`` float32."""
    n_fft = 2 * (weights_TFM.shape[1] - 1)
    summed_TF = (weights_TFM.conj() * _analyse(audio_MN, n_fft)).sum(dim=-1)
    window_N = torch.hann_window(n_fft).sqrt()
    return torch.istft(summed_TF.T, n_fft, n_fft // 2, window=window_N, length=audio_MN.shape[-1])


def _analyse(audio_MN: Tensor, n_fft: int) -> Tensor:
    window_N = torch.hann_window(n_fft).sqrt()
    spectra_MFT = torch.stft(
        audio_MN.float(), n_fft, n_fft // 2, window=window_N, pad_mode="constant", return_complex=True
    )
    return spectra_MFT.permute(2, 1, 0)


def _wearer_speaks(
    spectra_TFM: Tensor, beam: Beam, reference: int, freqs_F: NDArray[np.float64], config: AdaptiveConfig
) -> Tensor:
    filters_FM = torch.from_numpy(filter_response(beam, freqs_F)).to(torch.complex64)
    band_F = torch.from_numpy((freqs_F >= 150) & (freqs_F < 1500))
    beam_T = (filters_FM * spectra_TFM).sum(dim=-1).abs().square()[:, band_F].sum(dim=1)
    alone_T = spectra_TFM[..., reference].abs().square()[:, band_F].sum(dim=1)
    return beam_T > 10.0 ** (config.speech_db / 10.0) * alone_T


def _follow_noise(spectra_TFM: Tensor, speaks_T: Tensor, diffuse_FMM: Tensor, config: AdaptiveConfig) -> Tensor:
    """Covariance before each frame, of unit scale: a mean over past frames without the wearer, and a diffuse part."""
    keep = float(np.exp(-config.n_fft / 2 / SAMPLE_RATE / config.memory_s))
    share = 10.0 ** (config.diffuse_db / 10.0)
    current_FMM = diffuse_FMM.clone()
    followed = []
    for frame_FM, speaks in zip(spectra_TFM, speaks_T, strict=True):
        power_F = current_FMM.diagonal(dim1=-2, dim2=-1).real.mean(dim=-1)[:, None, None]
        followed.append(current_FMM + share * power_F * diffuse_FMM)
        if not speaks:
            current_FMM = keep * current_FMM + (1 - keep) * frame_FM[:, :, None] * frame_FM[:, None, :].conj()
    return torch.stack(followed)
