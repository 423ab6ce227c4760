"""The noise of a mixture: point, diffuse or wind, scaled to the asked SNR at c_0.

Shapes: M microphones, N samples.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from wearllama.simulation.bank import RirBank
from wearllama.simulation.convolve import BlockPlan, SourceSpectra, channel_image, transform_source
from wearllama.simulation.noise import NoiseBank, NoiseDraw, draw_wind
from wearllama.simulation.recipe import MixtureRecipe, draw_from
from wearllama.simulation.sources import PlacedSource, power

Signal = NDArray[np.float32]


class Background:
    """Noise of a mixture: drawn, convolved at c_0 and scaled to the asked SNR."""

    def __init__(
        self,
        recipe: MixtureRecipe,
        plan: BlockPlan,
        bank: RirBank,
        noise: NoiseBank,
        room: str,
        sources: list[PlacedSource],
        own_power: float,
        rng: np.random.Generator,
    ) -> None:
        self.name: str | None = None
        self.spectra: SourceSpectra | None = None
        self.wind_MN: Signal | None = None
        self.rir: int | None = None
        self.gain = 0.0
        self.rows: dict[str, Any] = {"noise_type": None, "snr_db": None}
        names = noise.names
        drawn = names[int(rng.integers(len(names)))]
        if recipe.snr_db is None:
            return
        self.asked = draw_from(recipe.snr_db, rng)
        self.name = recipe.noise_type if recipe.noise_type is not None else drawn
        self.draw = noise.draw(self.name, plan.length + bank.num_taps, rng)
        image_N = self._image(plan, bank, room, rng)
        self._scale(image_N, sources, own_power, bank)

    def _image(self, plan: BlockPlan, bank: RirBank, room: str, rng: np.random.Generator) -> Signal:
        if self.draw.field == "wind":
            self.wind_MN = draw_wind(bank.num_channels, plan.length, rng)
            return self.wind_MN[bank.reference]
        self.rir = _noise_rir(bank, room, self.draw, rng)
        self.spectra = transform_source(plan, self.draw.signal_N, -bank.num_taps)
        self.image_N = channel_image(plan, self.spectra, bank.spectrum(self.rir, plan.n_fft)[bank.reference])
        return self.image_N

    def _scale(self, image_N: Signal, sources: list[PlacedSource], own_power: float, bank: RirBank) -> None:
        speech_N = np.zeros(len(image_N), np.float32)
        active_N = np.zeros(len(image_N), bool)
        direct = 0.0
        for source in (s for s in sources if not s.sidetalk):
            speech_N += source.image_N
            active_N[source.start : source.end] |= source.active_N
            direct += source.gain**2 * bank.energy(source.rir)[1] * int(source.active_N.sum())
        has_speech = bool(active_N.any())
        signal_power = power(speech_N[active_N]) if has_speech else own_power
        noise_power = power(image_N[active_N] if has_speech else image_N)
        self.gain = float(np.sqrt(signal_power / max(noise_power, 1e-30) / 10 ** (self.asked / 10)))
        self.rows = {"noise_type": self.name, "noise_source": self.draw.source, "noise_field": self.draw.field}
        self.rows["snr_db"] = round(self.asked, 3)
        if has_speech and noise_power > 0:
            scaled = power(np.float32(self.gain) * image_N[active_N])
            self.rows["snr_measured_db"] = round(10 * float(np.log10(signal_power / scaled)), 3)
            self.rows["snr_dry_db"] = round(10 * float(np.log10(max(direct, 1e-20) / int(active_N.sum()) / scaled)), 3)

    def metadata(self) -> dict[str, Any]:
        """Name, place and SNR: asked, measured on images, and of the direct sound alone over the noise."""
        return self.rows


def _noise_rir(bank: RirBank, room: str, draw: NoiseDraw, rng: np.random.Generator) -> int:
    wanted = bank.select(role="diffuse" if draw.field == "diffuse" else "noise", room=room)
    others = bank.select(role="noise", room=room) or bank.select(role="bystander", room=room)
    candidates = wanted or others or bank.select(room=room)
    return candidates[int(rng.integers(len(candidates)))]
