"""Audio files under contract 1: float32 ``(channels, samples)`` at 16 kHz, or an error that names the file.

Shapes: C channels, N samples.

Nothing is mixed down, resampled, cut or repaired unless the caller asks.  What a file may legally hold but a recording
should not (a dead microphone, clipping) is read and warned about.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from math import gcd
from pathlib import Path
from typing import BinaryIO, Literal, NamedTuple

import numpy as np
import soundfile
import torch
from numpy.typing import NDArray
from scipy.signal import resample_poly
from torch import Tensor

from wearllama.atomic import replacing
from wearllama.audio.timebase import SAMPLE_RATE

Subtype = Literal["PCM_16", "FLOAT"]

_STEP_16_BIT = 2.0**-15
_FULL_SCALE = 1.0 - 1.5 * _STEP_16_BIT  # the largest 16-bit value, 32767 / 32768, counts as full scale
_MIN_CLIPPED = 4
_UNKNOWN_SIZE = 0xFFFFFFFF


class AudioError(ValueError):
    """A file or waveform that breaks contract 1."""


class AudioWarning(UserWarning):
    """A readable file that a recording should not look like: silent or clipped channels."""


class AudioInfo(NamedTuple):
    """What a file's header says, once the file has been found to hold it."""

    channels: int
    frames: int
    sample_rate: int

    @property
    def seconds(self) -> float:
        return self.frames / self.sample_rate


def audio_info(path: str | Path) -> AudioInfo:
    """Header of a file, checked as in ``read_audio`` but without decoding it; AudioError if it cannot be read."""
    path = Path(path)
    _check_file(path)
    try:
        info = soundfile.info(str(path))
    except soundfile.LibsndfileError as error:
        raise AudioError(f"{path}: not audio that libsndfile reads ({error.error_string})") from error
    if info.frames <= 0:
        raise AudioError(f"{path}: no audio frames, the file is a header only")
    return AudioInfo(info.channels, info.frames, info.samplerate)


def read_audio(
    path: str | Path,
    *,
    channels: int | None = None,
    sample_rate: int = SAMPLE_RATE,
    resample: bool = False,
    start: int = 0,
    frames: int | None = None,
) -> Tensor:
    """Read a file as float32 ``(C, N)`` with full scale 1.0.

    ``channels``: how many the caller's array needs (None: any).  ``resample``: convert another rate; without it
    another rate is an error.  ``start``, ``frames``: read only these, counted at the file's own rate (None: to its
    end).  Raises AudioError: missing, empty, truncated, not audio, no frames, a part outside the file, NaN or infinite
    samples, wrong rate, wrong channel count.  Warns (AudioWarning): silent or clipped channels.
    """
    path = Path(path)
    info = audio_info(path)
    if channels is not None and info.channels != channels:
        raise AudioError(f"{path}: found {info.channels} channels, wanted {channels}")
    if info.sample_rate != sample_rate and not resample:
        raise AudioError(f"{path}: found {info.sample_rate} Hz, wanted {sample_rate} Hz (or pass resample=True)")
    wanted = info.frames - start if frames is None else frames
    if not 0 <= start < start + wanted <= info.frames:
        raise AudioError(f"{path}: wanted {wanted} frames from frame {start}, found {info.frames}")
    try:
        audio_NC, _ = soundfile.read(str(path), wanted, start, dtype="float32", always_2d=True)
    except soundfile.LibsndfileError as error:
        raise AudioError(f"{path}: broken audio data ({error.error_string})") from error
    if len(audio_NC) != wanted:
        raise AudioError(f"{path}: truncated, the header promises {info.frames} frames, found {start + len(audio_NC)}")
    audio_CN = np.ascontiguousarray(audio_NC.T)
    _check_finite(audio_CN, path)
    _warn_if_damaged(audio_CN, path)
    audio = torch.from_numpy(audio_CN)
    return audio if info.sample_rate == sample_rate else resample_audio(audio, info.sample_rate, sample_rate)


def write_audio(
    path: str | Path, audio_CN: Tensor, *, sample_rate: int = SAMPLE_RATE, subtype: Subtype = "PCM_16"
) -> None:
    """Write ``(C, N)`` float samples, the container by the suffix; the file appears whole or not at all.

    16-bit samples are rounded and clipped to full scale (with an AudioWarning), so that read -> write -> read is exact.
    Raises AudioError for another shape, no samples, non-finite samples, an unknown suffix or subtype; OSError where the
    disk refuses.
    """
    path = Path(path)
    if audio_CN.ndim != 2 or 0 in audio_CN.shape:
        raise AudioError(f"{path}: found audio of shape {tuple(audio_CN.shape)}, wanted (channels, samples)")
    samples_CN = audio_CN.detach().to("cpu", torch.float32).numpy()
    _check_finite(samples_CN, path)
    container = path.suffix[1:].upper()
    if container not in soundfile.available_formats():
        raise AudioError(f"{path}: suffix {path.suffix!r} is no audio format, wanted .wav, .flac or .rf64")
    if subtype not in ("PCM_16", "FLOAT"):
        raise AudioError(f"{path}: subtype {subtype!r}, wanted PCM_16 or FLOAT")
    data_CN = _to_int16(samples_CN, path) if subtype == "PCM_16" else samples_CN
    encoded = BytesIO()
    try:
        soundfile.write(encoded, data_CN.T, sample_rate, format=container, subtype=subtype)
    except (soundfile.LibsndfileError, ValueError) as error:
        raise AudioError(f"{path}: cannot write {len(samples_CN)} channels as {subtype} ({error})") from error
    with replacing(path) as temporary:  # not by libsndfile, which cannot tell a full disk from other troubles
        temporary.write_bytes(encoded.getbuffer())


def resample_audio(audio_CN: Tensor, from_rate: int, to_rate: int) -> Tensor:
    """Band-limited conversion of ``(..., N)`` samples between two rates in Hz (polyphase, zero phase)."""
    common = gcd(from_rate, to_rate)
    converted = resample_poly(audio_CN.numpy(), to_rate // common, from_rate // common, axis=-1, window=("kaiser", 8.0))
    return torch.from_numpy(np.ascontiguousarray(converted, dtype=np.float32))


def _check_file(path: Path) -> None:
    if not path.exists():
        raise AudioError(f"{path}: no such file")
    if not path.is_file():
        raise AudioError(f"{path}: not a file")
    size = path.stat().st_size
    if size == 0:
        raise AudioError(f"{path}: empty file, 0 bytes")
    try:
        with path.open("rb") as file:
            data = _riff_data(file, size)
    except OSError as error:
        raise AudioError(f"{path}: cannot be opened ({error.strerror})") from error
    if data is not None and data.start + data.size > size:
        promised, held = data.size // data.frame_bytes, (size - data.start) // data.frame_bytes
        raise AudioError(f"{path}: truncated, the header promises {promised} frames, the file holds {held}")


class _DataChunk(NamedTuple):
    start: int
    size: int
    frame_bytes: int


def _riff_data(file: BinaryIO, file_size: int) -> _DataChunk | None:
    """The samples' chunk of a RIFF, RF64 or BW64 file; None for other files and unstated sizes.

    libsndfile shortens a truncated file without a word, hence this look at the header.
    """
    form = file.read(12)
    if form[:4] not in (b"RIFF", b"RF64", b"BW64") or form[8:] != b"WAVE":
        return None
    size_64 = 0
    frame_bytes = 1
    while len(head := file.read(8)) == 8:
        name, length = head[:4], int.from_bytes(head[4:], "little")
        if name == b"data":
            return _DataChunk(file.tell(), size_64 if length == _UNKNOWN_SIZE else length, max(frame_bytes, 1))
        start = file.tell()
        if start + length > file_size:
            return None
        if name == b"ds64":
            size_64 = int.from_bytes(file.read(16)[8:], "little")
        elif name == b"fmt ":
            frame_bytes = int.from_bytes(file.read(14)[12:], "little")
        file.seek(start + length + length % 2)  # chunks start at even offsets
    return None


def _check_finite(audio_CN: NDArray[np.float32], path: Path) -> None:
    bad_CN = ~np.isfinite(audio_CN)
    if bad_CN.any():
        frame = int(bad_CN.any(axis=0).argmax())
        channel = int(bad_CN[:, frame].argmax())
        raise AudioError(
            f"{path}: {int(bad_CN.sum())} samples are NaN or infinite, first in channel {channel} at frame {frame}"
        )


def _warn_if_damaged(audio_CN: NDArray[np.float32], path: Path) -> None:
    """Dead: never more than one 16-bit step off its mean.  Clipped: neighbouring samples at full scale."""
    span_C = audio_CN.max(axis=1) - audio_CN.min(axis=1)
    for channel in np.flatnonzero(span_C < 2.5 * _STEP_16_BIT):
        warnings.warn(f"{path}: channel {channel} is silent", AudioWarning, stacklevel=3)
    full_CN = np.abs(audio_CN) >= _FULL_SCALE
    clipped_C = (full_CN[:, 1:] & full_CN[:, :-1]).sum(axis=1)
    if clipped_C.max(initial=0) >= _MIN_CLIPPED:
        channels = ", ".join(str(channel) for channel in np.flatnonzero(clipped_C >= _MIN_CLIPPED))
        warnings.warn(
            f"{path}: clipped, up to {clipped_C.max()} neighbouring samples at full scale, channel {channels}",
            AudioWarning,
            stacklevel=3,
        )


class FirstDamaged:
    """Lets the first :class:`AudioWarning` of a corpus through, which may hold thousands, and counts the others."""

    def __init__(self) -> None:
        self.count = 0

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Around one or more reads."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield
        for warning in caught:
            if not issubclass(warning.category, AudioWarning):
                warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
                continue
            self.count += 1
            if self.count == 1:
                text = f"{warning.message} (recordings like this one are used, others are not named)"
                warnings.warn_explicit(text, AudioWarning, warning.filename, warning.lineno)


def _to_int16(audio_CN: NDArray[np.float32], path: Path) -> NDArray[np.int16]:
    scaled_CN = np.rint(audio_CN / _STEP_16_BIT)
    outside = int(((scaled_CN > 32767 + 1) | (scaled_CN < -32768)).sum())  # +1.0 itself is full scale, not clipping
    if outside:
        warnings.warn(f"{path}: {outside} samples beyond full scale clipped", AudioWarning, stacklevel=3)
    return np.clip(scaled_CN, -32768, 32767).astype(np.int16)
