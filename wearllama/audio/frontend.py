"""Log-mel front end: one fixed, level-sensitive feature for c_0 and c_x alike.

Shapes: B clips, N samples, T mel frames, F mel bins.

The ratio of |c_x| to |c_0| says whether the wearer speaks, so nothing here looks at a clip's own statistics: the same
constants normalise every channel of every clip.  Frames follow ``timebase``, without centre padding: frame t covers
samples [160 t, 160 t + 400), and a clip gives the same frames alone and zero-padded in a batch.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from wearllama.audio._frontend_stats import MEAN, STD
from wearllama.audio.timebase import HOP_SAMPLES, SAMPLE_RATE, WINDOW_SAMPLES, num_mel_frames


@dataclass(frozen=True, kw_only=True)
class LogMelConfig:
    """What the features are; window and hop belong to the time base and cannot differ from it."""

    n_mels: int = 80
    """Mel bins."""
    n_fft: int = 512
    """DFT size; the 400-sample window is zero-padded behind."""
    f_min_hz: float = 0.0
    """Lower edge of the first triangle."""
    f_max_hz: float = SAMPLE_RATE / 2
    """Upper edge of the last triangle."""
    log_floor: float = 2.0**-24
    """Added to the mel power before the logarithm (full scale is 1.0): digital silence stays finite."""
    mean: tuple[float, ...] = MEAN
    """Per-bin mean of the log-mel, one value or ``n_mels`` values."""
    std: tuple[float, ...] = STD
    """Per-bin standard deviation, one value or ``n_mels`` values."""

    def __post_init__(self) -> None:
        if self.n_fft < WINDOW_SAMPLES:
            raise ValueError(f"n_fft is {self.n_fft}, wanted at least the window of {WINDOW_SAMPLES} samples")
        if not 0 <= self.f_min_hz < self.f_max_hz <= SAMPLE_RATE / 2:
            band = f"{self.f_min_hz}..{self.f_max_hz}"
            raise ValueError(f"mel band is {band} Hz, wanted rising within 0..{SAMPLE_RATE // 2}")
        if self.log_floor <= 0:
            raise ValueError(f"log_floor is {self.log_floor}, wanted above zero")
        # Tuples: a config read back from JSON brings lists, and the constants below are cached by config.
        for field in ("mean", "std"):
            object.__setattr__(self, field, tuple(float(value) for value in getattr(self, field)))
            if len(getattr(self, field)) not in (1, self.n_mels):
                raise ValueError(f"{field} has {len(getattr(self, field))} values, wanted 1 or n_mels = {self.n_mels}")
        if min(self.std) <= 0:
            raise ValueError(f"std holds {min(self.std)}, wanted all above zero")


class LogMel(nn.Module):
    """``(..., N)`` float audio at 16 kHz -> ``(..., T, F)`` float32 features, T = ``num_mel_frames(N)``.

    The module holds no parameters and no buffers: its constants stay float32 whatever the model around it is cast to,
    and loading a checkpoint cannot lose them.
    """

    def __init__(self, config: LogMelConfig | None = None) -> None:
        super().__init__()
        self.config = config or LogMelConfig()

    def forward(self, audio_BN: Tensor) -> Tensor:
        """Features of zero-padded audio; ValueError for an empty clip or integer samples."""
        if not audio_BN.is_floating_point():
            raise ValueError(f"audio is {audio_BN.dtype}, wanted float samples with full scale 1.0")
        with torch.autocast(audio_BN.device.type, enabled=False):
            return normalised_log(mel_power(audio_BN.float(), self.config), self.config)


def normalised_log(power_BTF: Tensor, config: LogMelConfig) -> Tensor:
    """What the encoder sees of mel power ``(..., T, F)``: its logarithm under the fixed statistics, float32."""
    mean_F, std_F = _statistics(config, power_BTF.device)
    return ((power_BTF + config.log_floor).log_() - mean_F) / std_F


def mel_power(audio_BN: Tensor, config: LogMelConfig) -> Tensor:
    """Mel power ``(..., T, F)`` of float32 audio, before logarithm and normalisation."""
    num_samples = audio_BN.shape[-1]
    num_frames = num_mel_frames(num_samples)
    missing = HOP_SAMPLES * (num_frames - 1) + WINDOW_SAMPLES - num_samples
    padded_BN = nn.functional.pad(audio_BN, (0, missing))
    window_W, weights_KF = _transforms(config, audio_BN.device)
    frames_BTW = padded_BN.unfold(-1, WINDOW_SAMPLES, HOP_SAMPLES) * window_W
    spectrum_BTK2 = torch.view_as_real(torch.fft.rfft(frames_BTW, n=config.n_fft))
    return spectrum_BTK2.square().sum(-1) @ weights_KF


def mel_weights(config: LogMelConfig) -> NDArray[np.float64]:
    """Triangular filters ``(n_fft / 2 + 1, n_mels)`` of unit height.

    Slaney's scale (linear below 1 kHz): at 80 bins its triangles stay wider than one 31 Hz bin, so none is empty.
    """
    edges_hz = _mel_to_hz(np.linspace(_hz_to_mel(config.f_min_hz), _hz_to_mel(config.f_max_hz), config.n_mels + 2))
    bins_hz = np.linspace(0.0, SAMPLE_RATE / 2, config.n_fft // 2 + 1)[:, None]
    rising = (bins_hz - edges_hz[:-2]) / np.diff(edges_hz)[:-1]
    falling = (edges_hz[2:] - bins_hz) / np.diff(edges_hz)[1:]
    return np.maximum(0.0, np.minimum(rising, falling))


_MEL_HZ = 200.0 / 3.0
_LOG_START_HZ = 1000.0
_LOG_STEP = np.log(6.4) / 27.0


def _hz_to_mel(hz: float) -> float:
    if hz < _LOG_START_HZ:
        return hz / _MEL_HZ
    return float(_LOG_START_HZ / _MEL_HZ + np.log(hz / _LOG_START_HZ) / _LOG_STEP)


def _mel_to_hz(mel: NDArray[np.float64]) -> NDArray[np.float64]:
    above = mel - _LOG_START_HZ / _MEL_HZ
    return np.where(above < 0, mel * _MEL_HZ, _LOG_START_HZ * np.exp(_LOG_STEP * np.maximum(above, 0.0)))


@lru_cache(maxsize=16)
def _transforms(config: LogMelConfig, device: torch.device) -> tuple[Tensor, Tensor]:
    window_W = torch.hann_window(WINDOW_SAMPLES, dtype=torch.float64)
    return window_W.float().to(device), torch.from_numpy(mel_weights(config)).float().to(device)


@lru_cache(maxsize=16)
def _statistics(config: LogMelConfig, device: torch.device) -> tuple[Tensor, Tensor]:
    return torch.tensor(config.mean, device=device), torch.tensor(config.std, device=device)
