"""The fixed statistics of ``frontend.LogMel``, shared by c_0 and c_x and by every clip.

Measured once over 10 minutes of speech: 160 flite clips (four voices) and 80 espeak-ng clips (four voices), each at an
active level drawn from -45..-15 dBFS, under pink noise at -5..40 dB SNR, with self-noise 52 dB below the speech and
16-bit steps.  Means are smoothed over five bins; one deviation serves all bins (per bin it is 3.2 to 3.85).
They only centre the numbers: nothing depends on their being exact, but a trained encoder depends on their not moving.
"""

# fmt: off
MEAN: tuple[float, ...] = (
    -2.0, -1.9, -1.7, -1.6, -1.7, -1.9, -2.2, -2.4, -2.5, -2.6, -2.7, -2.9, -3.1, -3.2, -3.5, -3.7, -3.9, -4.1,
    -4.3, -4.4, -4.5, -4.7, -4.8, -4.9, -4.9, -5.0, -5.0, -5.0, -5.0, -5.0, -5.0, -5.0, -5.0, -4.9, -4.9, -4.9,
    -5.0, -5.0, -5.0, -5.0, -5.0, -5.0, -5.0, -5.0, -5.0, -5.0, -4.9, -4.8, -4.7, -4.6, -4.6, -4.6, -4.6, -4.7,
    -4.7, -4.7, -4.6, -4.6, -4.6, -4.6, -4.6, -4.7, -4.8, -4.9, -5.0, -5.1, -5.2, -5.2, -5.2, -5.2, -5.2, -5.2,
    -5.2, -5.2, -5.2, -5.1, -5.1, -5.2, -5.3, -5.4,
)
# fmt: on
"""Natural logarithm of the mel power, per bin."""

STD: tuple[float, ...] = (3.45,)
