"""Many sources through multichannel responses, summed in the frequency domain (overlap-save with kept spectra).

A mixture of ``length`` samples is cut into blocks; each source is transformed once a block, meets the kept spectra of
its response, and the sum of all sources is transformed back once a channel.  The blocks of a source that is silent
there are skipped.  Samples are the same as a direct convolution's to float32 rounding, and the same in any
process.

Shapes: N samples, A active blocks, M channels, F bins of one block, P samples of one block's output.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy.fft
from numpy.typing import NDArray

FFT_SIZE = 16_384


@dataclass(frozen=True, kw_only=True)
class BlockPlan:
    """How a mixture is cut up: every block gives ``hop`` samples."""

    length: int
    taps: int
    margin: int = 0
    """Taps that a centred filter (the device's) reaches to either side."""

    def __post_init__(self) -> None:
        if self.length <= 0 or self.taps <= 0 or self.margin < 0:
            raise ValueError(f"convolution: length {self.length}, taps {self.taps} must be positive")

    @property
    def n_fft(self) -> int:
        """Block size: twice the usual for very long responses."""
        size = FFT_SIZE
        while size < 2 * (self.taps + 2 * self.margin):
            size *= 2
        return size

    @property
    def skip(self) -> int:
        """Leading samples of a block's inverse transform that wrapped around."""
        return self.taps - 1 + self.margin

    @property
    def hop(self) -> int:
        return self.n_fft - self.taps + 1 - 2 * self.margin

    @property
    def blocks(self) -> int:
        return -(-self.length // self.hop)


class SourceSpectra(NamedTuple):
    """Transformed blocks of one source: ``block_A`` says which, ``spectrum_AF`` what."""

    block_A: NDArray[np.intp]
    spectrum_AF: NDArray[np.complex64]


def transform_source(plan: BlockPlan, signal_N: NDArray[np.float32], start: int) -> SourceSpectra:
    """Spectra of the blocks that a source touches; its sample 0 stands at sample ``start`` of the mixture."""
    first = max((start - plan.margin) // plan.hop, 0)
    last = min((start + len(signal_N) + plan.taps + plan.margin - 2) // plan.hop, plan.blocks - 1)
    block_A = np.arange(first, last + 1)
    if not len(block_A) or not len(signal_N):
        return SourceSpectra(block_A[:0], np.zeros((0, plan.n_fft // 2 + 1), np.complex64))
    begin = first * plan.hop - plan.skip
    window_N = np.zeros((len(block_A) - 1) * plan.hop + plan.n_fft, np.float32)
    low, high = max(start - begin, 0), min(start - begin + len(signal_N), len(window_N))
    window_N[low:high] = signal_N[low - (start - begin) : high - (start - begin)]
    blocks_AP = np.lib.stride_tricks.sliding_window_view(window_N, plan.n_fft)[:: plan.hop]
    return SourceSpectra(block_A, scipy.fft.rfft(blocks_AP))


def channel_image(plan: BlockPlan, source: SourceSpectra, response_F: NDArray[np.complex64]) -> NDArray[np.float32]:
    """One source at one channel, float32 (length,)."""
    image_BP = np.zeros((plan.blocks, plan.hop), np.float32)
    if len(source.block_A):
        blocks_AP = scipy.fft.irfft(source.spectrum_AF * response_F, plan.n_fft)
        image_BP[source.block_A] = blocks_AP[:, plan.skip : plan.skip + plan.hop]
    return image_BP.reshape(-1)[: plan.length]


def mix_channels(
    plan: BlockPlan,
    sources: list[SourceSpectra],
    responses_MF: list[NDArray[np.complex64]],
    gains: list[float],
    channels: list[int],
    device_MF: NDArray[np.complex64] | None = None,
) -> NDArray[np.float32]:
    """The sum of all sources at the given channels, float32 (len(channels), length).

    ``device_MF`` is a centred filter a channel (within ``plan.margin`` taps) that the sum passes.
    """
    total_BMF = np.zeros((plan.blocks, len(channels), plan.n_fft // 2 + 1), np.complex64)
    for source, response_MF, gain in zip(sources, responses_MF, gains, strict=True):
        scaled_MF = response_MF[channels] * np.float32(gain)
        for block, spectrum_F in zip(source.block_A, source.spectrum_AF, strict=True):
            total_BMF[block] += spectrum_F * scaled_MF
    if device_MF is not None:
        total_BMF *= device_MF[channels]
    blocks_BMP = scipy.fft.irfft(total_BMF, plan.n_fft, overwrite_x=True)[..., plan.skip : plan.skip + plan.hop]
    return blocks_BMP.transpose(1, 0, 2).reshape(len(channels), -1)[:, : plan.length]
