"""What beams leave of another talker and of the wearer: the fixed ones, and the adaptive one that has to find out.

Shapes: M microphones, N samples, F frequencies.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from beams.bench import Bench
from numpy.typing import NDArray
from scipy.signal import lfilter
from torch import Tensor

from wearllama.audio.adaptive import adaptive_mvdr, apply_weights, window_freqs_hz
from wearllama.audio.beam_metrics import BANDS_HZ
from wearllama.audio.beamforming import apply_beam
from wearllama.audio.timebase import SAMPLE_RATE

SECONDS = 4
TALKER_DB = -6.0
"""The talker's level under own voice at c_0."""


@dataclass(frozen=True)
class TalkerTable:
    """Levels in the beam relative to c_0 by beam, source and band."""

    talker_deg: float
    rows: list[dict[str, Any]]

    def text(self) -> str:
        """Markdown."""
        bands = " / ".join(f"{low}-{high}" for low, high in BANDS_HZ)
        lines = [
            f"|c_x| over |c_0| in dB, {bands} Hz: the wearer speaks in the second half, a talker at "
            f"{self.talker_deg:g} degrees all the time, {-TALKER_DB:g} dB weaker.",
            "",
            "| beam | own voice | talker |",
            "|---|---|---|",
        ]
        for row in self.rows:
            own, talker = (" / ".join(f"{value:.1f}" for value in row[key]) for key in ("own_db", "talker_db"))
            lines.append(f"| {row['beam']} | {own} | {talker} |")
        return "\n".join(lines)


def talker_table(bench: Bench, talker_deg: float) -> TalkerTable:
    """Both sources through each beam for own voice, and through the weights that the adaptive beam found for both."""
    own_MN, talker_MN = _sources(bench, talker_deg)
    reference = bench.reference
    # Each beam for own voice once; NLCMV's look elsewhere.
    mouth = {name: beam for name, beam, _ in bench.cases if not name.startswith("NLCMV")}
    heard = {name: (apply_beam(own_MN, beam), apply_beam(talker_MN, beam)) for name, beam in mouth.items()}
    fixed = mouth["fixed"]
    adaptive = adaptive_mvdr(own_MN + talker_MN, bench.array, beam=fixed, field=bench.own_voice_at(window_freqs_hz()))
    heard["adaptive MVDR"] = (
        apply_weights(own_MN, adaptive.weights_TFM),
        apply_weights(talker_MN, adaptive.weights_TFM),
    )
    rows = [
        {
            "beam": name,
            "own_db": _bands_db(own_N, own_MN[reference]),
            "talker_db": _bands_db(talker_N, talker_MN[reference]),
        }
        for name, (own_N, talker_N) in heard.items()
    ]
    return TalkerTable(talker_deg, rows)


def _sources(bench: Bench, talker_deg: float) -> tuple[Tensor, Tensor]:
    """Noise with the slope of speech through each source's transfer, scaled at c_0."""
    samples = SECONDS * SAMPLE_RATE
    rng = np.random.default_rng(0)
    voice_N, other_N = lfilter([1.0], [1.0, -0.9], rng.standard_normal((2, samples)))
    voice_N[: samples // 2] = 0.0
    freqs_F = np.linspace(0, SAMPLE_RATE / 2, samples // 2 + 1)
    own_MN = _through(bench.own_voice_at(freqs_F).target_FM, voice_N)
    talker_MN = _through(bench.talker_at(talker_deg, freqs_F), other_N)
    reference = bench.reference
    talker_MN *= np.sqrt(np.mean(own_MN[reference, samples // 2 :] ** 2) / np.mean(talker_MN[reference] ** 2))
    return torch.from_numpy(own_MN).float(), torch.from_numpy(talker_MN * 10 ** (TALKER_DB / 20)).float()


def _through(transfer_FM: NDArray[np.complex128], signal_N: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.fft.irfft(np.fft.rfft(signal_N)[:, None] * transfer_FM, axis=0).T


def _bands_db(beam_N: Tensor, alone_N: Tensor) -> list[float]:
    """Levels in the last 1.4 seconds, when the adaptive beam has settled and both speak."""
    later = slice(int((SECONDS - 1.5) * SAMPLE_RATE), int((SECONDS - 0.1) * SAMPLE_RATE))
    power_F, alone_F = (np.abs(np.fft.rfft(x_N[later].double().numpy())) ** 2 for x_N in (beam_N, alone_N))
    freqs_F = np.linspace(0, SAMPLE_RATE / 2, len(power_F))
    levels = []
    for low, high in BANDS_HZ:
        inside_F = (freqs_F >= low) & (freqs_F < high)
        levels.append(round(float(10 * np.log10(power_F[inside_F].sum() / alone_F[inside_F].sum())), 1))
    return levels
