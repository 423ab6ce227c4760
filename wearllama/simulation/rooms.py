"""Responses from talkers and noises to the microphones on a head in a space.

Direct sound: the wearer through the mouth's near field, everybody else as a point source before the head.  Early sound
(:mod:`wearllama.simulation.images`) up to ``mix_time_s``, then a diffuse field (:mod:`wearllama.simulation.tails`) with
the decay of each octave band and the level that follows from the volume: in the 1/r convention used here the image
sources of a room carry 4 pi c / V of energy a second.

Shapes: M microphones, B octave bands, F frequency bins, K taps, P poses.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy.fft
from numpy.typing import NDArray

from wearllama.simulation.heads import HeadResponses
from wearllama.simulation.images import directivity, early_reflections
from wearllama.simulation.spaces import AIR_ABSORPTION, BANDS_HZ, Space, band_weights
from wearllama.simulation.tails import WaveField, diffuse_tail, draw_field

NO_DIRECT_DB = -60.0
NO_REVERB_DB = 60.0

Array = NDArray[np.float64]
Complex = NDArray[np.complexfloating]


@dataclass(frozen=True, kw_only=True)
class Emitter:
    """Who sounds, in head coordinates of the pose it was drawn for."""

    position_3: Array | None
    """Metres; None for a purely diffuse field."""
    facing_3: Array | None = None
    """Direction in which a talker faces, None for a source that radiates evenly."""
    own_voice: bool = False
    """The wearer: direct sound from the mouth's near field, and the mouth goes where the head goes."""
    directivity: str = "mouth"
    """How one that faces somewhere radiates: mouth or monitor (a small loudspeaker)."""


@dataclass(frozen=True, kw_only=True)
class Response:
    """A rendered response and what it is made of."""

    rir_MK: NDArray[np.float32]
    drr_db: float
    distance_m: float
    position_3: Array | None
    """The source in head coordinates of this pose."""


def first_arrival(response_N: Array, oversampling: int = 8) -> float:
    """Time in samples of the strongest peak of a direct response, to an eighth of a sample."""
    fine_N = scipy.fft.irfft(scipy.fft.rfft(response_N), oversampling * len(response_N))
    return float(np.argmax(np.abs(fine_N)) / oversampling)


def render_response(
    space: Space, head: HeadResponses, emitter: Emitter, *, taps: int, pre_samples: int, rng: np.random.Generator
) -> Response:
    """Response of one source to all microphones, first arrival at c_0 at tap ``pre_samples``."""
    return render_poses([space], head, emitter, taps=taps, pre_samples=pre_samples, rng=rng)[0]


def render_poses(
    spaces: Sequence[Space],
    head: HeadResponses,
    emitter: Emitter,
    *,
    taps: int,
    pre_samples: int,
    rng: np.random.Generator,
) -> list[Response]:
    """Responses (P) of one source to a head that stands differently in each of ``spaces``.

    The emitter is given for the first; it stays where it is while the head turns and walks, and so does the late
    field.  ``rng`` is used as much as for one pose.
    """
    n_fft = scipy.fft.next_fast_len(taps + 1024, real=True)
    field = draw_field(spaces[0], head, n_fft, rng)
    return [
        _render(space, head, _seen_from(space, spaces[0], emitter), field, n_fft, taps, pre_samples) for space in spaces
    ]


def _seen_from(space: Space, first: Space, emitter: Emitter) -> Emitter:
    if space == first or emitter.own_voice or emitter.position_3 is None:
        return emitter
    place_3 = np.asarray(first.head_m) + first.to_room(emitter.position_3)
    facing_3 = None if emitter.facing_3 is None else space.to_head(first.to_room(emitter.facing_3))
    return replace(emitter, position_3=space.to_head(place_3 - np.asarray(space.head_m)), facing_3=facing_3)


def _render(
    space: Space, head: HeadResponses, emitter: Emitter, field: WaveField, n_fft: int, taps: int, pre_samples: int
) -> Response:
    reference = head.array.reference
    cosines = np.linspace(-1, 1, 65)
    evenly = emitter.facing_3 is None
    radiated_B = np.ones(len(BANDS_HZ)) if evenly else np.mean(directivity(cosines, emitter.directivity) ** 2, axis=1)
    if emitter.position_3 is None:
        energy_B = (space.tail_energy() or 1.0) * radiated_B
        field_MK = diffuse_tail(field, space, head, energy_B, n_fft, 0.0)[:, :taps]
        rir_MK = field_MK.astype(np.float32)
        return Response(rir_MK=rir_MK, drr_db=NO_DIRECT_DB, distance_m=0.0, position_3=None)
    source_3 = np.asarray(space.head_m) + space.to_room(emitter.position_3)
    facing_room_3 = None if emitter.facing_3 is None else space.to_room(emitter.facing_3)
    direct_MF = head.own_voice(n_fft) if emitter.own_voice else _talker_direct(head, emitter, n_fft)
    late_MF = early_reflections(space, head, source_3, facing_room_3, n_fft, emitter.directivity)
    if space.tail_energy() > 0:
        energy_B = space.tail_energy() * radiated_B
        late_MF += scipy.fft.rfft(diffuse_tail(field, space, head, energy_B, n_fft, space.mix_time_s))
    arrival = first_arrival(scipy.fft.irfft(direct_MF[reference], n_fft))
    turn_F = np.exp(-2j * np.pi * np.arange(n_fft // 2 + 1) / n_fft * (pre_samples - arrival))
    direct_MK = scipy.fft.irfft(direct_MF * turn_F, n_fft)[:, :taps]
    late_MK = scipy.fft.irfft(late_MF * turn_F, n_fft)[:, :taps]
    if not evenly and not emitter.own_voice:
        direct_MK, late_MK = direct_MK * head.talker_gain, late_MK * head.talker_gain
    direct, late = (float(np.sum(x_MK[reference] ** 2)) for x_MK in (direct_MK, late_MK))
    return Response(
        rir_MK=(direct_MK + late_MK).astype(np.float32),
        drr_db=min(10 * float(np.log10(direct / max(late, 1e-20))), NO_REVERB_DB),
        distance_m=float(np.linalg.norm(emitter.position_3 - head.positions_M3[reference])),
        position_3=emitter.position_3,
    )


def _talker_direct(head: HeadResponses, emitter: Emitter, n_fft: int) -> Complex:
    """Direct sound (M, F) of a source some way off, time zero at the emission."""
    assert emitter.position_3 is not None
    distance = float(np.linalg.norm(emitter.position_3))
    gain_B = np.exp(-0.5 * np.asarray(AIR_ABSORPTION) * distance)
    if emitter.facing_3 is not None:
        towards = float(-emitter.position_3 @ emitter.facing_3) / distance
        gain_B = gain_B * directivity(np.array([towards]), emitter.directivity)[:, 0]
    return head.point(emitter.position_3, n_fft) * (gain_B @ band_weights(n_fft))
