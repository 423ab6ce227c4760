"""One shoebox room with a head in it: responses from talkers and noises to the microphones on the glasses.

Early sound: image sources from pyroomacoustics up to ``mix_time_s``; every image reaches the microphones through the
head's response of its own direction, and leaves the talker with the directivity of a mouth.  Late sound: a diffuse
field (plane waves from 64 directions through the same head responses, so that the array sees its true coherence) with
the exponential decay of each octave band and the level that follows from the volume: in the 1/r convention used here
the image sources of a room carry 4 pi c / V of energy a second.  The library's own tail is drawn per microphone,
without the coherence between microphones that a beam lives by, which is why the tail is ours.

Shapes: I images, B octave bands, D directions, M microphones, F frequency bins, K taps.
Room coordinates are x, y, z up; head coordinates as in :mod:`wearllama.audio.array`.
"""

from dataclasses import dataclass

import numpy as np
import pyroomacoustics as pra
import scipy.fft
from numpy.typing import NDArray

from wearllama.simulation.heads import HeadResponses

SPEED_OF_SOUND = 343.0
SAMPLE_RATE = 16_000
FADE_S = 0.01
NO_DIRECT_DB = -60.0
BANDS_HZ = (125.0, 250.0, 500.0, 1000.0, 2000.0, 4000.0, 8000.0)
BACK_GAIN_DB = (-2.0, -3.0, -5.0, -7.0, -9.0, -12.0, -15.0)
"""Level behind a talker's head relative to the front, per octave band."""
TALKER_GAIN = 10 ** (-2.6 / 20)
"""Other talkers against the wearer at equal effort, so that the direct sound of one who faces the wearer at .5 / 1 /
2 m is 18 / 24 / 30 dB under own voice at the nose, as measured on glasses; the rigid sphere alone gives 15.4 / 21.4 /
26.5."""
AIR_ABSORPTION = (0.0001, 0.0003, 0.0006, 0.001, 0.0019, 0.0058, 0.0203)
"""Energy attenuation of air per metre at 20 degrees C, 50-70 % humidity (ISO 9613-1 figures)."""

Array = NDArray[np.float64]
Complex = NDArray[np.complexfloating]


@dataclass(frozen=True, kw_only=True)
class RoomSpec:
    """A shoebox and where the wearer's head stands in it."""

    size_m: tuple[float, float, float]
    rt60_s: float
    """Reverberation time at 1 kHz; other bands follow from their absorption."""
    head_m: tuple[float, float, float]
    yaw_deg: float
    """Where the wearer looks: 0 along +x, counted anticlockwise."""
    tilt: float = 0.0
    """Absorption slope: factor 2**(tilt * octaves above 1 kHz)."""
    mix_time_s: float = 0.05

    def __post_init__(self) -> None:
        if min(self.size_m) <= 0 or self.rt60_s <= 0:
            raise ValueError(f"room: size {self.size_m} and rt60 {self.rt60_s} must be positive")
        if any(not 0 < p < s for p, s in zip(self.head_m, self.size_m, strict=True)):
            raise ValueError(f"room: head {self.head_m} is outside the room {self.size_m}")

    @property
    def volume(self) -> float:
        return float(np.prod(self.size_m))

    @property
    def surface(self) -> float:
        x, y, z = self.size_m
        return 2 * (x * y + y * z + x * z)

    def absorption_B(self) -> Array:
        """Energy absorption per band after Eyring, the asked RT60 at 1 kHz."""
        alpha = 1 - np.exp(-0.1611 * self.volume / (self.surface * self.rt60_s))
        octaves = np.log2(np.asarray(BANDS_HZ) / 1000.0)
        return np.clip(alpha * 2 ** (self.tilt * octaves), 0.01, 0.98)

    def rt60_B(self) -> Array:
        """Reverberation time per band in seconds, air included."""
        walls = -self.surface * np.log1p(-self.absorption_B())
        return 0.1611 * self.volume / (walls + 4 * np.asarray(AIR_ABSORPTION) * self.volume)

    def to_head(self, vectors_I3: Array) -> Array:
        """Rotate room vectors into head coordinates (x left, y up, z ahead)."""
        yaw = np.deg2rad(self.yaw_deg)
        ahead = np.array([np.cos(yaw), np.sin(yaw), 0.0])
        left = np.array([-np.sin(yaw), np.cos(yaw), 0.0])
        return np.stack([vectors_I3 @ left, vectors_I3[..., 2], vectors_I3 @ ahead], axis=-1)

    def to_room(self, vector_3: Array) -> Array:
        """Rotate a head vector into room coordinates."""
        yaw = np.deg2rad(self.yaw_deg)
        ahead = np.array([np.cos(yaw), np.sin(yaw), 0.0])
        left = np.array([-np.sin(yaw), np.cos(yaw), 0.0])
        return vector_3[0] * left + vector_3[2] * ahead + np.array([0.0, 0.0, vector_3[1]])


@dataclass(frozen=True, kw_only=True)
class Response:
    """A rendered response and what it is made of."""

    rir_MK: NDArray[np.float32]
    drr_db: float
    distance_m: float


def image_sources(room: RoomSpec, source_3: Array) -> tuple[Array, Array, Array]:
    """Images of a source without itself: positions (I, 3), amplitude per band (B, I), axis parities (I, 3)."""
    walls = {"coeffs": list(room.absorption_B()), "center_freqs": list(BANDS_HZ)}
    reach = SPEED_OF_SOUND * room.mix_time_s
    order = int(np.ceil(reach * np.sqrt(np.sum(1 / np.square(room.size_m)))))
    box = pra.ShoeBox(
        list(room.size_m), fs=SAMPLE_RATE, materials=pra.Material(walls), max_order=order, air_absorption=False
    )
    box.add_source(list(source_3))
    box.add_microphone(list(room.head_m))
    box.image_source_model()
    images = box.sources[0]
    near = np.linalg.norm(images.images.T - np.asarray(room.head_m), axis=1) < reach
    near &= np.linalg.norm(images.images.T - source_3, axis=1) > 1e-6
    return images.images.T[near], images.damping[:, near], np.abs(images.orders_xyz.T[near]) % 2


def mouth_directivity(cosine_I: Array) -> Array:
    """Amplitude (B, I) of a talker against the cosine to the facing direction; 1 straight ahead."""
    back_B1 = 10 ** (np.asarray(BACK_GAIN_DB)[:, None] / 20)
    return back_B1 + (1 - back_B1) * (1 + cosine_I) / 2


def band_weights(n_fft: int) -> Array:
    """Zero-phase octave weights (B, F) that add up to one at every bin."""
    octave_F = np.log2(np.maximum(scipy.fft.rfftfreq(n_fft, 1 / SAMPLE_RATE), 1.0))
    centre_B1 = np.log2(np.asarray(BANDS_HZ))[:, None]
    rising_BF = np.clip(octave_F - centre_B1 + 1, 0, 1)
    falling_BF = np.clip(centre_B1 + 1 - octave_F, 0, 1)
    weights_BF = np.minimum(rising_BF, falling_BF)
    weights_BF[0, octave_F <= np.log2(BANDS_HZ[0])] = 1.0
    return weights_BF / weights_BF.sum(axis=0)


def fractional_impulses(
    delay_I: Array, gain_BI: Array, row_I: NDArray[np.intp], rows: int, length: int, half_width: int = 16
) -> Array:
    """Add windowed-sinc impulses at fractional ``delay_I`` (samples) into (B, rows, length)."""
    bands = len(gain_BI)
    start_I = np.floor(delay_I).astype(int) - half_width + 1
    tap = np.arange(2 * half_width)
    offset_IT = start_I[:, None] + tap - delay_I[:, None]
    kernel_IT = np.sinc(offset_IT) * np.cos(np.pi * offset_IT / (2 * half_width + 1)) ** 2
    index_IT = row_I[:, None] * length + start_I[:, None] + tap
    inside_IT = (start_I[:, None] + tap >= 0) & (start_I[:, None] + tap < length)
    out = np.empty((bands, rows * length))
    for band in range(bands):
        weights = (kernel_IT * gain_BI[band][:, None])[inside_IT]
        out[band] = np.bincount(index_IT[inside_IT], weights, rows * length)
    return out.reshape(bands, rows, length)


def diffuse_tail(
    room: RoomSpec, head: HeadResponses, energy_B: Array, n_fft: int, rng: np.random.Generator, fade_in_s: float
) -> Array:
    """Diffuse decaying field (M, n_fft) from time zero; its power fades in over the 10 ms before ``fade_in_s``."""
    plane_DMF = head.plane_spectra(n_fft)
    chosen = rng.choice(len(plane_DMF), size=min(64, len(plane_DMF)), replace=False)
    shape = (len(chosen), n_fft // 2 + 1)
    wave_DF = rng.standard_normal(shape, np.float32) + 1j * rng.standard_normal(shape, np.float32)
    wave_DF *= np.sqrt(n_fft / 2 / len(chosen))
    field_MF = np.einsum("df,dmf->mf", wave_DF, plane_DMF[chosen])
    field_BMK = scipy.fft.irfft(field_MF * band_weights(n_fft)[:, None], n_fft)
    time_K = np.arange(n_fft) / SAMPLE_RATE
    envelope_BK = np.sqrt(energy_B[:, None]) * 10 ** (-3 * time_K / room.rt60_B()[:, None])
    if fade_in_s > 0:
        envelope_BK *= np.sin(np.pi / 2 * np.clip((time_K - fade_in_s) / FADE_S + 1, 0, 1))
    return np.einsum("bmk,bk->mk", field_BMK, envelope_BK)


def early_reflections(
    room: RoomSpec, head: HeadResponses, source_3: Array, facing_room_3: Array | None, n_fft: int
) -> Complex:
    """Spectra (M, F) of all image sources but the source itself; time zero is the emission."""
    position_I3, damping_BI, parity_I3 = image_sources(room, source_3)
    path_I3 = position_I3 - np.asarray(room.head_m)
    distance_I = np.linalg.norm(path_I3, axis=1)
    gain_BI = damping_BI / np.maximum(distance_I, 0.1)
    gain_BI *= np.exp(-0.5 * np.asarray(AIR_ABSORPTION)[:, None] * distance_I)
    if facing_room_3 is not None:
        mirrored_I3 = np.where(parity_I3 == 1, -1.0, 1.0) * facing_room_3
        gain_BI *= mouth_directivity(np.sum(-path_I3 * mirrored_I3, axis=1) / distance_I)
    delay_I = distance_I / SPEED_OF_SOUND
    gain_BI *= np.cos(np.pi / 2 * np.clip((delay_I - room.mix_time_s) / FADE_S + 1, 0, 1))
    used, row_I = np.unique(head.nearest(room.to_head(path_I3 / distance_I[:, None])), return_inverse=True)
    length = int(room.mix_time_s * SAMPLE_RATE) + 64
    pulses_BDK = fractional_impulses(delay_I * SAMPLE_RATE, gain_BI, row_I, len(used), length)
    spectra_DF = np.einsum("bdf,bf->df", scipy.fft.rfft(pulses_BDK, n_fft), band_weights(n_fft))
    return np.einsum("df,dmf->mf", spectra_DF, head.plane_spectra(n_fft)[used])


def first_arrival(response_N: Array, oversampling: int = 8) -> float:
    """Time in samples of the strongest peak of a direct response, to an eighth of a sample."""
    fine_N = scipy.fft.irfft(scipy.fft.rfft(response_N), oversampling * len(response_N))
    return float(np.argmax(np.abs(fine_N)) / oversampling)


def render_response(
    room: RoomSpec,
    head: HeadResponses,
    source_head_3: Array | None,
    *,
    facing_head_3: Array | None = None,
    own_voice: bool = False,
    taps: int,
    pre_samples: int,
    rng: np.random.Generator,
) -> Response:
    """Response of one source to all microphones, first arrival at c_0 at tap ``pre_samples``.

    ``source_head_3`` is the source in head coordinates (metres), or None for a purely diffuse field;
    ``facing_head_3`` the direction in which a talker faces, or None for a source that radiates evenly; ``own_voice``
    takes the direct sound from the mouth's near-field response.
    """
    n_fft = scipy.fft.next_fast_len(taps + 1024, real=True)
    reference = head.array.reference
    cosines = np.linspace(-1, 1, 65)
    radiated_B = np.ones(len(BANDS_HZ)) if facing_head_3 is None else np.mean(mouth_directivity(cosines) ** 2, axis=1)
    energy_B = 4 * np.pi * SPEED_OF_SOUND / (room.volume * SAMPLE_RATE) * radiated_B
    if source_head_3 is None:
        field_MK = diffuse_tail(room, head, energy_B, n_fft, rng, 0.0)[:, :taps]
        return Response(rir_MK=field_MK.astype(np.float32), drr_db=NO_DIRECT_DB, distance_m=0.0)
    source_3 = np.asarray(room.head_m) + room.to_room(source_head_3)
    facing_room_3 = None if facing_head_3 is None else room.to_room(facing_head_3)
    direct_MF = head.own_voice(n_fft) if own_voice else _talker_direct(head, source_head_3, facing_head_3, n_fft)
    late_MF = early_reflections(room, head, source_3, facing_room_3, n_fft)
    late_MF += scipy.fft.rfft(diffuse_tail(room, head, energy_B, n_fft, rng, room.mix_time_s))
    arrival = first_arrival(scipy.fft.irfft(direct_MF[reference], n_fft))
    turn_F = np.exp(-2j * np.pi * np.arange(n_fft // 2 + 1) / n_fft * (pre_samples - arrival))
    direct_MK = scipy.fft.irfft(direct_MF * turn_F, n_fft)[:, :taps]
    late_MK = scipy.fft.irfft(late_MF * turn_F, n_fft)[:, :taps]
    if facing_head_3 is not None and not own_voice:
        direct_MK, late_MK = direct_MK * TALKER_GAIN, late_MK * TALKER_GAIN
    direct, late = (float(np.sum(x_MK[reference] ** 2)) for x_MK in (direct_MK, late_MK))
    return Response(
        rir_MK=(direct_MK + late_MK).astype(np.float32),
        drr_db=10 * float(np.log10(direct / max(late, 1e-20))),
        distance_m=float(np.linalg.norm(source_head_3 - head.positions_M3[reference])),
    )


def _talker_direct(head: HeadResponses, source_3: Array, facing_3: Array | None, n_fft: int) -> Complex:
    """Direct sound (M, F) of a source some way off, time zero at the emission."""
    distance = float(np.linalg.norm(source_3))
    gain_B = np.exp(-0.5 * np.asarray(AIR_ABSORPTION) * distance)
    if facing_3 is not None:
        gain_B = gain_B * mouth_directivity(np.array([-source_3 @ facing_3 / distance]))[:, 0]
    return head.point(source_3, n_fft) * (gain_B @ band_weights(n_fft))
