"""Files of measured responses: multichannel WAV or FLAC, SOFA (AES69: FIR data in netCDF-4), and NPZ of directions.

Shapes: C channels of the file, K taps; N measurements of a SOFA file.
"""

import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wearllama.audio.io import AudioError, read_audio

AUDIO = (".wav", ".flac")
SOFA, NPZ = ".sofa", ".npz"
_LOOKS_AHEAD = {"ListenerView": (1.0, 0.0, 0.0), "ListenerUp": (0.0, 0.0, 1.0)}

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One response as measured: all channels of its file, at its level."""

    file: Path
    room: str
    source: str
    number: int | None
    """Measurement in the file, where it holds more than one."""
    rir_CK: NDArray[np.float32]
    position_3: Array | None = None
    """Source in head coordinates (x left, y up, z ahead; metres), where the file says so."""
    azimuth_deg: float | None = None
    """Where the file knows the direction only; counted as in the file."""

    @property
    def name(self) -> str:
        number = "" if self.number is None else f"_{self.number:04d}"
        return f"{self.room}_{self.source}{number}"


def read_folder(folder: Path, files: str, pattern: str, sample_rate: int = 16_000) -> list[Measured]:
    """All responses of a folder's ``files`` (a glob), sorted by name; ``pattern`` (groups room and source) must match
    every name.

    Raises:
        ValueError: no folder, no files, a name that does not match, a SOFA file of another kind or rate.
        AudioError: a WAV or FLAC file is broken or of another rate.
    """
    expression = re.compile(pattern)
    if set(expression.groupindex) != {"room", "source"}:
        raise ValueError(f"pattern {pattern!r} has groups {sorted(expression.groupindex)}, wanted room and source")
    if not folder.is_dir():
        raise ValueError(f"{folder}: no such folder")
    paths = sorted(path for path in folder.glob(files) if path.suffix.lower() in (*AUDIO, SOFA, NPZ))
    if not paths:
        raise ValueError(f"{folder}: no WAV, FLAC, SOFA or NPZ files {files!r}")
    measured = []
    for path in paths:
        match = expression.fullmatch(path.name)
        if match is None:
            raise ValueError(f"{path}: the name does not match {pattern!r}")
        named = partial(Measured, file=path, room=match["room"], source=match["source"])
        if path.suffix.lower() == SOFA:
            for number, (rir_CK, position_3) in enumerate(read_sofa(path, sample_rate)):
                measured.append(named(number=number, rir_CK=rir_CK, position_3=position_3))
        elif path.suffix.lower() == NPZ:
            for number, (rir_CK, azimuth) in enumerate(read_npz(path, sample_rate)):
                measured.append(named(number=number, rir_CK=rir_CK, azimuth_deg=azimuth))
        else:
            measured.append(named(number=None, rir_CK=read_audio(path, sample_rate=sample_rate).numpy()))
    return measured


def read_npz(path: Path, sample_rate: int = 16_000) -> list[tuple[NDArray[np.float32], float]]:
    """Responses (C, K) and azimuths in degrees of an NPZ file of ``responses`` (N, K, C), ``azimuth_deg`` (N,) and
    ``sample_rate``."""
    with np.load(path) as file:
        if missing := {"responses", "azimuth_deg", "sample_rate"} - set(file.files):
            raise ValueError(f"{path}: lacks {sorted(missing)}, found {sorted(file.files)}")
        rir_NKC, azimuth_N, rate = file["responses"], file["azimuth_deg"], int(file["sample_rate"])
    if rate != sample_rate:
        raise ValueError(f"{path}: sample_rate is {rate}, wanted {sample_rate}; resample it first")
    if rir_NKC.ndim != 3 or azimuth_N.shape != rir_NKC.shape[:1] or not np.isfinite(rir_NKC).all():
        raise ValueError(f"{path}: responses {rir_NKC.shape} and azimuth_deg {azimuth_N.shape}, wanted (N, K, C), (N,)")
    return [(rir_KC.T.astype(np.float32), float(a)) for rir_KC, a in zip(rir_NKC, azimuth_N, strict=True)]


def read_sofa(path: Path, sample_rate: int = 16_000) -> list[tuple[NDArray[np.float32], Array]]:
    """Responses (C, K) of a SOFA file with FIR data, each with its source in head coordinates.

    The head is SOFA's listener; ``Data.Delay`` is applied, a view other than straight ahead is turned back.
    """
    try:
        import h5py
    except ImportError as error:
        raise ValueError(f"{path}: reading SOFA needs h5py: pip install 'wearllama[sofa]'") from error
    try:
        with h5py.File(path, "r") as file:
            return _responses(path, file, sample_rate)
    except OSError as error:
        raise AudioError(f"{path}: not a SOFA file ({error})") from error


def _responses(path: Path, file: Any, sample_rate: int) -> list[tuple[NDArray[np.float32], Array]]:
    kind = _text(file.attrs.get("DataType"))
    if kind not in ("FIR", "FIR-E", "FIRE"):
        raise ValueError(f"{path}: DataType is {kind!r}, wanted FIR or FIR-E")
    rir_NCK = _array(path, file, "Data.IR")
    if kind != "FIR":
        if rir_NCK.ndim != 4 or 1 not in (rir_NCK.shape[2], rir_NCK.shape[3]):
            raise ValueError(f"{path}: Data.IR has shape {rir_NCK.shape}, wanted one emitter")
        rir_NCK = rir_NCK[:, :, 0] if rir_NCK.shape[2] == 1 else rir_NCK[..., 0]
    if rir_NCK.ndim != 3:
        raise ValueError(f"{path}: Data.IR has shape {rir_NCK.shape}, wanted (measurements, receivers, samples)")
    rates = np.unique(_array(path, file, "Data.SamplingRate"))
    if len(rates) != 1 or rates[0] != sample_rate:
        raise ValueError(f"{path}: sampling rate is {rates.tolist()} Hz, wanted {sample_rate}; resample it first")
    count = len(rir_NCK)
    delay_NC = np.broadcast_to(_array(path, file, "Data.Delay"), rir_NCK.shape[:2])
    source_N3 = _cartesian(path, file, "SourcePosition", count) - _cartesian(path, file, "ListenerPosition", count)
    view_N3 = _cartesian(path, file, "ListenerView", count)
    up_N3 = _cartesian(path, file, "ListenerUp", count)
    responses = []
    for rir_CK, delay_C, source_3, view_3, up_3 in zip(rir_NCK, delay_NC, source_N3, view_N3, up_N3, strict=True):
        left_3 = np.cross(up_3, view_3)
        if np.linalg.norm(left_3) < 0.1 * np.linalg.norm(up_3) * np.linalg.norm(view_3) or not view_3.any():
            raise ValueError(f"{path}: ListenerView {view_3} and ListenerUp {up_3} say no direction")
        ahead_3, left_3 = view_3 / np.linalg.norm(view_3), left_3 / np.linalg.norm(left_3)
        axes_33 = np.stack([left_3, np.cross(ahead_3, left_3), ahead_3])
        responses.append((_delayed(path, rir_CK, delay_C), axes_33 @ source_3))
    return responses


def _delayed(path: Path, rir_CK: Array, delay_C: Array) -> NDArray[np.float32]:
    """Each channel later by its whole number of samples, as the file asks."""
    shift_C = np.round(delay_C).astype(int)
    if np.abs(delay_C - shift_C).max() > 1e-6 or shift_C.min() < 0:
        raise ValueError(f"{path}: Data.Delay is {delay_C.tolist()}, wanted whole samples of 0 or more")
    out_CK = np.zeros((len(rir_CK), rir_CK.shape[1] + shift_C.max()), np.float32)
    for channel, shift in enumerate(shift_C):
        out_CK[channel, shift : shift + rir_CK.shape[1]] = rir_CK[channel]
    return out_CK


def _array(path: Path, file: Any, name: str) -> Array:
    if name not in file:
        raise ValueError(f"{path}: no {name}")
    values = np.asarray(file[name], dtype=np.float64)
    if not np.isfinite(values).all():
        raise ValueError(f"{path}: {name} is not finite")
    return values


def _cartesian(path: Path, file: Any, name: str, count: int) -> Array:
    """A position (count, 3) in metres, x ahead, y left, z up, whatever its type in the file."""
    if name in _LOOKS_AHEAD and name not in file:  # what the standard says where a file does not
        return np.broadcast_to(np.array(_LOOKS_AHEAD[name]), (count, 3))
    values_N3 = _array(path, file, name)
    if values_N3.shape not in ((1, 3), (count, 3)):
        raise ValueError(f"{path}: {name} has shape {values_N3.shape}, wanted (1, 3) or ({count}, 3)")
    kind = _text(file[name].attrs.get("Type"))
    if name == "ListenerUp" and kind is None:  # the standard lets it share the type of the view
        kind = _text(file["ListenerView"].attrs.get("Type"))
    if kind == "spherical":
        azimuth_N, elevation_N = np.deg2rad(values_N3[:, 0]), np.deg2rad(values_N3[:, 1])
        level_N = np.cos(elevation_N)
        unit_3N = np.stack([level_N * np.cos(azimuth_N), level_N * np.sin(azimuth_N), np.sin(elevation_N)])
        values_N3 = (values_N3[:, 2] * unit_3N).T
    elif kind != "cartesian":
        raise ValueError(f"{path}: {name} has type {kind!r}, wanted cartesian or spherical")
    return np.broadcast_to(values_N3, (count, 3))


def _text(value: Any) -> str | None:
    return value.decode() if isinstance(value, bytes) else None if value is None else str(value)
