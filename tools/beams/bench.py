"""What tools/beam_report.py judges: beams, the fields they work in, and sources around the device.

Shapes: D directions, F frequencies, M microphones, K taps.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from wearllama.audio.array import ArrayGeometry
from wearllama.audio.beam_metrics import Field, own_voice_field
from wearllama.audio.beamforming import Beam, delay_and_sum, design_beam, design_freqs_hz
from wearllama.audio.head import diffuse_covariance, place_around, point_transfer
from wearllama.audio.measured import measured_field, read_directions, read_mouth, transfer_of
from wearllama.audio.nlcmv import design_nlcmv, direction_transfer

OWN = "own voice"

Complex = NDArray[np.complex128]
FieldAt = Callable[[NDArray[np.float64]], Field]


@dataclass(frozen=True, kw_only=True, eq=False)
class Bench:
    """Beams with the source that each is judged by, and the device's surroundings."""

    name: str
    array: ArrayGeometry
    """Only its number of microphones and its reference count where responses are measured."""
    cases: list[tuple[str, Beam, str]]
    """Beam by name, and the source that it should hear."""
    fields: dict[str, Field]
    """By source, at ``design_freqs_hz()``."""
    azimuth_D: NDArray[np.float64]
    transfers_DFM: Complex
    """Sources around the device, at ``design_freqs_hz()``."""
    own_voice_at: FieldAt
    """The field of own voice at any frequencies."""
    talker_at: Callable[[float, NDArray[np.float64]], Complex]
    """Transfer ``(F, M)`` of a talker at an azimuth, at any frequencies."""

    @property
    def reference(self) -> int:
        return self.array.reference


def modelled_bench(array: ArrayGeometry, wng_floor_db: float, azimuths_deg: Sequence[float]) -> Bench:
    """All beams of a geometry by the head model."""
    freqs_F = design_freqs_hz()
    diffuse_FMM = diffuse_covariance(array.positions_M3, freqs_F)
    fields = {OWN: own_voice_field(array, freqs_F)}
    cases = [
        ("fixed", design_beam(array, wng_floor_db=wng_floor_db), OWN),
        ("delay and sum", delay_and_sum(array), OWN),
    ]
    for azimuth, beam in zip(azimuths_deg, design_nlcmv(array, azimuths_deg), strict=True):
        source = f"{azimuth:g} degrees"
        fields[source] = Field(
            freqs_F=freqs_F,
            target_FM=direction_transfer(array, azimuth),
            diffuse_FMM=diffuse_FMM,
            reference=array.reference,
        )
        cases.append((f"NLCMV {azimuth:g}", beam, source))
    azimuth_D = np.arange(0.0, 360.0, 6.0)

    def talker_at(azimuth_deg: float, freqs_F: NDArray[np.float64]) -> Complex:
        return point_transfer(place_around(azimuth_deg), array.positions_M3, freqs_F)

    return Bench(
        name=f"{array.name} (head model)",
        array=array,
        cases=cases,
        fields=fields,
        azimuth_D=azimuth_D,
        transfers_DFM=np.stack([talker_at(azimuth, freqs_F) for azimuth in azimuth_D]),
        own_voice_at=lambda freqs_F: own_voice_field(array, freqs_F),
        talker_at=talker_at,
    )


def measured_bench(mouths: Sequence[Path], directions: Path, channels: Sequence[int], wng_floor_db: float) -> Bench:
    """The fixed beam and delay-and-sum, designed on the first mouth response and judged on each."""
    freqs_F = design_freqs_hz()
    around = read_directions(directions, channels)
    responses = {path.stem: read_mouth(path, channels) for path in mouths}
    fields = {name: measured_field(response_KM, around, freqs_F) for name, response_KM in responses.items()}
    design = next(iter(fields.values()))
    # The positions are not used: mouth and surroundings are measured.
    array = ArrayGeometry(
        name=directions.parent.name, positions=tuple((0.01 * m, 0.0, 0.0) for m in range(len(channels)))
    )
    beams = {
        "fixed": design_beam(
            array, wng_floor_db=wng_floor_db, mouth_transfer_FM=design.target_FM, diffuse_FMM=design.diffuse_FMM
        ),
        "delay and sum": delay_and_sum(array, mouth_transfer_FM=design.target_FM),
    }
    first_KM = next(iter(responses.values()))

    def talker_at(azimuth_deg: float, freqs_F: NDArray[np.float64]) -> Complex:
        apart_D = np.abs((around.azimuth_D - azimuth_deg + 180.0) % 360.0 - 180.0)
        return transfer_of(around.response_DKM[int(np.argmin(apart_D))], freqs_F)

    return Bench(
        name=f"{directions.parent.name} (measured, microphones {list(channels)})",
        array=array,
        cases=[(name, beam, source) for name, beam in beams.items() for source in fields],
        fields=fields,
        azimuth_D=around.azimuth_D,
        transfers_DFM=transfer_of(around.response_DKM, freqs_F),
        own_voice_at=lambda freqs_F: measured_field(first_KM, around, freqs_F),
        talker_at=talker_at,
    )
