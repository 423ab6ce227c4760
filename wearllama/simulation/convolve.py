"""Many sources through multichannel responses, summed in the frequency domain (overlap-save with kept spectra).

A mixture of ``length`` samples is cut into blocks; each source is transformed once a block, meets the kept spectra of
its response, and the sum of all sources is transformed back once a channel.  The blocks of a source that is silent
there are skipped.  Samples are the same as a direct convolution's to float32 rounding, and the same in any
process.

Shapes: N samples, A active blocks, M channels, F bins of one block, P samples of one block's output.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import scipy.fft
from numpy.typing import NDArray

SMALLEST_FFT = 16_384


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

    @cached_property
    def n_fft(self) -> int:
        """Block size: a power of two of which at most a third is spent on the response's length."""
        size = SMALLEST_FFT
        while size < 3 * (self.taps + 2 * self.margin):
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
    """Transformed blocks of one source: ``first`` says which block of the mixture row 0 of ``spectrum_AF`` is."""

    first: int
    spectrum_AF: NDArray[np.complex64]

    @property
    def end(self) -> int:
        """The block behind the last."""
        return self.first + len(self.spectrum_AF)

    def scaled(self, gain: float) -> "SourceSpectra":
        """The same source by ``gain`` louder."""
        # As real numbers: a complex product would be four times the work.
        real_AF = self.spectrum_AF.view(np.float32) * np.float32(gain)
        return self._replace(spectrum_AF=real_AF.view(np.complex64))


def transform_source(plan: BlockPlan, signal_N: NDArray[np.float32], start: int, gain: float = 1.0) -> SourceSpectra:
    """Spectra of the blocks that a source touches; its sample 0 stands at sample ``start`` of the mixture."""
    first = max((start - plan.margin) // plan.hop, 0)
    last = min((start + len(signal_N) + plan.taps + plan.margin - 2) // plan.hop, plan.blocks - 1)
    if last < first or not len(signal_N):
        return SourceSpectra(first, np.zeros((0, plan.n_fft // 2 + 1), np.complex64))
    blocks_AP = np.empty((last - first + 1, plan.n_fft), np.float32)
    for number, block_P in enumerate(blocks_AP):
        offset = (first + number) * plan.hop - plan.skip - start  # of the block's sample 0 in the signal
        low = min(max(offset, 0), len(signal_N))
        high = min(max(offset + plan.n_fft, low), len(signal_N))
        block_P[: low - offset] = 0.0
        _copy_scaled(signal_N[low:high], gain, block_P[low - offset : high - offset])
        block_P[high - offset :] = 0.0
    return SourceSpectra(first, scipy.fft.rfft(blocks_AP, overwrite_x=True))


def channel_image(plan: BlockPlan, source: SourceSpectra, response_F: NDArray[np.complex64]) -> NDArray[np.float32]:
    """One source at one channel, float32 (length,)."""
    image_BP = np.empty((plan.blocks, plan.hop), np.float32)
    image_BP[: source.first] = 0.0
    image_BP[source.end :] = 0.0
    if len(source.spectrum_AF):
        blocks_AP = scipy.fft.irfft(source.spectrum_AF * response_F, plan.n_fft, overwrite_x=True)
        image_BP[source.first : source.end] = blocks_AP[:, plan.skip : plan.skip + plan.hop]
    return image_BP.reshape(-1)[: plan.length]


def mix_channels(
    plan: BlockPlan,
    sources: list[SourceSpectra],
    responses_MF: list[NDArray[np.complex64]],
    channels: list[int],
    out_MN: NDArray[np.float32],
    *,
    device_MF: NDArray[np.complex64] | None = None,
    gain: float = 1.0,
) -> None:
    """Write ``gain`` times the sum of all sources into the given channels of ``out_MN``, float32 (M, length).

    ``device_MF`` is a centred filter a channel (within ``plan.margin`` taps) that the sum passes.
    """
    sum_BF = np.empty((plan.blocks, plan.n_fft // 2 + 1), np.complex64)
    product_F = np.empty(plan.n_fft // 2 + 1, np.complex64)
    pairs = list(zip(sources, responses_MF, strict=True))
    present = [
        [(s.spectrum_AF[block - s.first], r_MF) for s, r_MF in pairs if s.first <= block < s.end]
        for block in range(plan.blocks)
    ]
    whole = plan.length // plan.hop
    # One channel, one block at a time: what is worked on stays in the processor's cache.
    for channel in channels:
        for sum_F, parts in zip(sum_BF, present, strict=True):
            _sum_products(parts, channel, sum_F, product_F)
        if device_MF is not None:
            sum_BF *= device_MF[channel]
        blocks_BP = scipy.fft.irfft(sum_BF, plan.n_fft)[:, plan.skip : plan.skip + plan.hop]
        row_N = out_MN[channel]
        _copy_scaled(blocks_BP[:whole], gain, row_N[: whole * plan.hop].reshape(whole, plan.hop))
        if whole < plan.blocks:
            _copy_scaled(blocks_BP[whole, : plan.length - whole * plan.hop], gain, row_N[whole * plan.hop :])


def _sum_products(
    parts: list[tuple[NDArray[np.complex64], NDArray[np.complex64]]],
    channel: int,
    sum_F: NDArray[np.complex64],
    product_F: NDArray[np.complex64],
) -> None:
    """Write the sum of spectra times their responses at a channel into ``sum_F``; ``product_F`` is room to work in."""
    if not parts:
        sum_F[:] = 0.0
        return
    spectrum_F, response_MF = parts[0]
    np.multiply(spectrum_F, response_MF[channel], out=sum_F)
    for spectrum_F, response_MF in parts[1:]:
        np.multiply(spectrum_F, response_MF[channel], out=product_F)
        np.add(sum_F, product_F, out=sum_F)


def _copy_scaled(signal: NDArray[np.float32], gain: float, out: NDArray[np.float32]) -> None:
    if gain == 1.0:
        out[:] = signal
    else:
        np.multiply(signal, np.float32(gain), out=out)
