"""Late sound: a field of plane waves through the head's own responses, so that the array hears its true coherence.

The library's own tail is drawn for every microphone by itself, without the coherence between microphones that a beam
lives by, which is why the tail is ours.  A field belongs to the space, not to the head: a head that turns or walks
hears the same waves from elsewhere.

Shapes: D directions, B octave bands, M microphones, F frequency bins, K taps.
"""

from typing import NamedTuple

import numpy as np
import scipy.fft
from numpy.typing import NDArray

from wearllama.simulation.heads import HeadResponses
from wearllama.simulation.spaces import SAMPLE_RATE, SPEED_OF_SOUND, Space, band_weights

FADE_S = 0.01
WAVES = 64

Array = NDArray[np.float64]
Complex = NDArray[np.complexfloating]


class WaveField(NamedTuple):
    """Stationary noise of equal power from all directions, drawn once for a source in a space."""

    space: Space
    """With the head where the field was drawn."""
    row_D: NDArray[np.intp]
    """Rows of the head's sampled directions."""
    wave_DF: Complex

    def at(self, space: Space, head: HeadResponses, n_fft: int) -> tuple[NDArray[np.intp], Complex]:
        """Rows of the head's directions and the waves (D, F) as the head of ``space`` meets them."""
        if space == self.space:
            return self.row_D, self.wave_DF
        direction_D3 = self.space.to_room(head.directions_D3[self.row_D])
        step_3 = np.asarray(space.head_m) - np.asarray(self.space.head_m)
        lead_D1 = (direction_D3 @ step_3)[:, None] / SPEED_OF_SOUND
        turn_DF = np.exp(2j * np.pi * lead_D1 * scipy.fft.rfftfreq(n_fft, 1 / SAMPLE_RATE))
        return head.nearest(space.to_head(direction_D3)), self.wave_DF * turn_DF.astype(np.complex64)


def draw_field(space: Space, head: HeadResponses, n_fft: int, rng: np.random.Generator) -> WaveField:
    """Draw the waves of one source."""
    row_D = rng.choice(len(head.directions_D3), size=min(WAVES, len(head.directions_D3)), replace=False)
    shape = (len(row_D), n_fft // 2 + 1)
    wave_DF = rng.standard_normal(shape, np.float32) + 1j * rng.standard_normal(shape, np.float32)
    wave_DF *= np.sqrt(n_fft / 2 / len(row_D))
    return WaveField(space, row_D, wave_DF)


def diffuse_tail(
    field: WaveField, space: Space, head: HeadResponses, energy_B: Array, n_fft: int, fade_in_s: float
) -> Array:
    """Decaying field (M, n_fft) from time zero; its power fades in over the 10 ms before ``fade_in_s``."""
    row_D, wave_DF = field.at(space, head, n_fft)
    plane_DMF = head.plane_spectra(n_fft)
    time_K = np.arange(n_fft) / SAMPLE_RATE
    weights_B1F = band_weights(n_fft)[:, None]
    tail_MK = np.zeros((plane_DMF.shape[1], n_fft))
    for members, decay_BK in space.decays(field.space.to_room(head.directions_D3[field.row_D]), time_K):
        field_MF = np.einsum("df,dmf->mf", wave_DF[members], plane_DMF[row_D[members]])
        field_BMK = scipy.fft.irfft(field_MF * weights_B1F, n_fft)
        envelope_BK = np.sqrt(energy_B[:, None]) * decay_BK
        if fade_in_s > 0:
            envelope_BK *= np.sin(np.pi / 2 * np.clip((time_K - fade_in_s) / FADE_S + 1, 0, 1))
        tail_MK += np.einsum("bmk,bk->mk", field_BMK, envelope_BK)
    return tail_MK
