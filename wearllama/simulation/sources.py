"""Source files as mixtures use them: one level for all, and where they speak.

Shapes: N samples.
"""

from collections import OrderedDict
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from wearllama.audio.io import FirstDamaged, read_audio
from wearllama.simulation.bank import RirBank
from wearllama.simulation.convolve import BlockPlan, SourceSpectra, channel_image, transform_source
from wearllama.simulation.motion import Waypoints, fade_weights
from wearllama.simulation.recipe import Segment

SAMPLE_RATE = 16_000
ACTIVE_FRAME = 320
ACTIVE_RANGE_DB = 30.0
"""Frames this far under a source's loudest count as pauses."""
SOURCE_CACHE_BYTES = 256 * 2**20

Signal = NDArray[np.float32]


class SourceFile(NamedTuple):
    """A source as mixtures use it: RMS 1 over its active samples."""

    signal_N: Signal
    active_N: NDArray[np.bool_]


_sources: OrderedDict[str, SourceFile] = OrderedDict()
_source_bytes = 0
_damaged = FirstDamaged()


def load_source(path: Path) -> SourceFile:
    """Read (or recall) a mono source."""
    global _source_bytes
    key = str(path)
    if key in _sources:
        _sources.move_to_end(key)
        return _sources[key]
    with _damaged.watching():
        signal_N = read_audio(path, channels=1)[0].numpy()
    active_N = active_samples(signal_N)
    power = float(np.mean(np.square(signal_N[active_N], dtype=np.float64))) if active_N.any() else 1.0
    source = SourceFile((signal_N / np.sqrt(power)).astype(np.float32), active_N)
    _sources[key] = source
    _source_bytes += source.signal_N.nbytes + active_N.nbytes
    while _source_bytes > SOURCE_CACHE_BYTES and len(_sources) > 1:
        old = _sources.popitem(last=False)[1]
        _source_bytes -= old.signal_N.nbytes + old.active_N.nbytes
    return source


def active_samples(signal_N: Signal) -> NDArray[np.bool_]:
    """Which samples lie in 20 ms frames within 30 dB of the loudest; none in digital silence."""
    frames = -(-len(signal_N) // ACTIVE_FRAME)
    padded_N = np.zeros(frames * ACTIVE_FRAME, np.float64)
    padded_N[: len(signal_N)] = signal_N
    energy = np.sum(padded_N.reshape(frames, ACTIVE_FRAME) ** 2, axis=1)
    active = energy > max(energy.max() * 10 ** (-ACTIVE_RANGE_DB / 10), 1e-12)
    return np.repeat(active, ACTIVE_FRAME)[: len(signal_N)]


class PlacedSource(NamedTuple):
    """A source in its place, with its own gain and its image at c_0."""

    segment: Segment
    sidetalk: bool
    path: Waypoints
    """(seconds into the mixture, entry of the bank); one for a source that stays where it is."""
    effort_db: float
    gain: float
    start: int
    active_N: NDArray[np.bool_]
    spectra: list[SourceSpectra]
    """What each waypoint's response hears, gain included."""
    image_N: Signal
    """At c_0, gain included."""

    @property
    def rir(self) -> int:
        """The first response on the path."""
        return self.path[0][1]

    @property
    def end(self) -> int:
        return self.start + len(self.active_N)

    def active_image(self) -> Signal:
        """The image at c_0 where the dry source speaks."""
        return self.image_N[self.start : self.end][self.active_N]

    def active_power(self) -> float:
        """Mean square of :meth:`active_image`."""
        image_N = self.image_N[self.start : self.end]
        whole = len(image_N) // ACTIVE_FRAME * ACTIVE_FRAME
        frames_FP = image_N[:whole].reshape(-1, ACTIVE_FRAME)  # a frame is active as a whole
        active_F = self.active_N[:whole:ACTIVE_FRAME]
        total = float(np.einsum("fp,fp->f", frames_FP, frames_FP)[active_F].sum(dtype=np.float64))
        total += float(np.square(image_N[whole:][self.active_N[whole:]]).sum(dtype=np.float64))
        return total / max(int(np.count_nonzero(self.active_N)), 1)

    def scaled(self, factor: float) -> "PlacedSource":
        """The same source by ``factor`` louder."""
        spectra = [heard.scaled(factor) for heard in self.spectra]
        return self._replace(gain=self.gain * factor, spectra=spectra, image_N=self.image_N * np.float32(factor))


def place_source(
    plan: BlockPlan,
    bank: RirBank,
    file: SourceFile,
    segment: Segment,
    sidetalk: bool,
    path: Waypoints,
    effort_db: float,
) -> PlacedSource:
    """Put a source at its time through its response, or through one after the other."""
    start = round(segment.start_s * SAMPLE_RATE)
    gain = 10 ** ((effort_db + segment.gain_db) / 20)
    pieces = cut_at_waypoints(file.signal_N, path, start)
    spectra = [transform_source(plan, piece_N, at - bank.pre_samples, gain) for at, piece_N in pieces]
    responses = [bank.spectrum(rir, plan.n_fft)[bank.reference] for _, rir in path]
    image_N = channel_image(plan, spectra[0], responses[0])
    for heard, response_F in zip(spectra[1:], responses[1:], strict=True):
        image_N += channel_image(plan, heard, response_F)
    return PlacedSource(segment, sidetalk, path, effort_db, gain, start, file.active_N, spectra, image_N)


def cut_at_waypoints(signal_N: Signal, path: Waypoints, start: int) -> list[tuple[int, Signal]]:
    """A signal from sample ``start`` on, cut up among the waypoints of its path: (sample, what is heard there)."""
    if len(path) == 1:
        return [(start, signal_N)]
    faded = fade_weights(path, start, len(signal_N))
    return [(start + low, signal_N[low : low + len(weight_N)] * weight_N) for low, weight_N in faded]


def power(signal_N: Signal) -> float:
    """Mean square; 0 of nothing."""
    return float(np.mean(np.square(signal_N), dtype=np.float64)) if len(signal_N) else 0.0
