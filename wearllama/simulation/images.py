"""Early sound: image sources up to the mixing time, each through the head's response of its own direction.

A talker leaves the mouth with its directivity, mirrored at every wall.
Shapes: I images, B octave bands, D directions, M microphones, F frequency bins, K taps.
"""

import numpy as np
import pyroomacoustics as pra
import scipy.fft
from numpy.typing import NDArray

from wearllama.simulation.heads import HeadResponses
from wearllama.simulation.spaces import (
    AIR_ABSORPTION,
    BANDS_HZ,
    GROUNDS,
    SAMPLE_RATE,
    SPEED_OF_SOUND,
    OpenAir,
    RoomSpec,
    Space,
    band_weights,
)

FADE_S = 0.01
BACK_GAIN_DB = {
    "mouth": (-2.0, -3.0, -5.0, -7.0, -9.0, -12.0, -15.0),
    "monitor": (-1.0, -3.0, -8.0, -14.0, -18.0, -22.0, -24.0),
}
"""Level behind a talker's head or a small two-way loudspeaker relative to the front, per octave band."""
BEAM_POWER = {"monitor": (1.0, 1.0, 1.0, 1.2, 1.4, 1.7, 2.0)}
"""How much narrower than a cardioid the front lobe is, per octave band."""
_WALLS = ("west", "east", "south", "north", "floor", "ceiling")

Array = NDArray[np.float64]
Complex = NDArray[np.complexfloating]


def image_sources(space: Space, source_3: Array) -> tuple[Array, Array, Array]:
    """Images of a source without itself: positions (I, 3), amplitude per band (B, I), axis parities (I, 3)."""
    if isinstance(space, OpenAir):
        mirrored_13 = source_3[None] * np.array([1.0, 1.0, -1.0])
        return mirrored_13, np.sqrt(1 - np.asarray(GROUNDS[space.ground]))[:, None], np.array([[0, 0, 1]])
    assert isinstance(space, RoomSpec)
    reach = SPEED_OF_SOUND * space.mix_time_s
    order = int(np.ceil(reach * np.sqrt(np.sum(1 / np.square(space.size_m)))))
    box = pra.ShoeBox(
        list(space.size_m), fs=SAMPLE_RATE, materials=_materials(space), max_order=order, air_absorption=False
    )
    box.add_source(list(source_3))
    box.add_microphone(list(space.head_m))
    box.image_source_model()
    images = box.sources[0]
    near = np.linalg.norm(images.images.T - np.asarray(space.head_m), axis=1) < reach
    near &= np.linalg.norm(images.images.T - source_3, axis=1) > 1e-6
    return images.images.T[near], images.damping[:, near], np.abs(images.orders_xyz.T[near]) % 2


def _materials(room: RoomSpec) -> pra.Material | dict[str, pra.Material]:
    bands = list(BANDS_HZ)
    if len(set(room.wall_weights)) == 1:
        return pra.Material({"coeffs": list(room.absorption_B()), "center_freqs": bands})
    walls = zip(_WALLS, room.wall_absorption_WB(), strict=True)
    return {name: pra.Material({"coeffs": list(absorption_B), "center_freqs": bands}) for name, absorption_B in walls}


def directivity(cosine_I: Array, kind: str = "mouth") -> Array:
    """Amplitude (B, I) of a talker or loudspeaker against the cosine to where it faces; 1 straight ahead."""
    back_B1 = 10 ** (np.asarray(BACK_GAIN_DB[kind])[:, None] / 20)
    lobe_BI = (1 + cosine_I) / 2
    if kind != "mouth":
        lobe_BI = lobe_BI ** np.asarray(BEAM_POWER[kind])[:, None]
    return back_B1 + (1 - back_B1) * lobe_BI


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


def early_reflections(
    space: Space, head: HeadResponses, source_3: Array, facing_3: Array | None, n_fft: int, kind: str = "mouth"
) -> Complex:
    """Spectra (M, F) of all image sources but the source itself; time zero is the emission.

    ``source_3`` and ``facing_3`` (a talker's direction, or None) in space coordinates; ``kind`` of directivity.
    """
    position_I3, damping_BI, parity_I3 = image_sources(space, source_3)
    path_I3 = position_I3 - np.asarray(space.head_m)
    distance_I = np.linalg.norm(path_I3, axis=1)
    gain_BI = damping_BI / np.maximum(distance_I, 0.1)
    gain_BI *= np.exp(-0.5 * np.asarray(AIR_ABSORPTION)[:, None] * distance_I)
    if facing_3 is not None:
        mirrored_I3 = np.where(parity_I3 == 1, -1.0, 1.0) * facing_3
        gain_BI *= directivity(np.sum(-path_I3 * mirrored_I3, axis=1) / distance_I, kind)
    delay_I = distance_I / SPEED_OF_SOUND
    gain_BI *= np.cos(np.pi / 2 * np.clip((delay_I - space.mix_time_s) / FADE_S + 1, 0, 1))
    used, row_I = np.unique(head.nearest(space.to_head(path_I3 / distance_I[:, None])), return_inverse=True)
    length = int(space.mix_time_s * SAMPLE_RATE) + 64
    pulses_BDK = fractional_impulses(delay_I * SAMPLE_RATE, gain_BI, row_I, len(used), length)
    spectra_DF = np.einsum("bdf,bf->df", scipy.fft.rfft(pulses_BDK, n_fft), band_weights(n_fft))
    return np.einsum("df,dmf->mf", spectra_DF, head.plane_spectra(n_fft)[used])
