"""The noise of a mixture: points, a diffuse field or wind, at the asked SNR at c_0 or at the asked level.

A point goes through the response of a place in the room; people who talk among themselves have a place each.  A diffuse
noise is one signal through a response without direct sound: an unseen source in that room.  An isotropic one is made of
independent signals and has the array's diffuse coherence at every moment and frequency.  Wind is independent per
microphone.

Shapes: M microphones, N samples, F bins.
"""

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import scipy.fft
from numpy.typing import NDArray

from wearllama.audio.array import ArrayGeometry
from wearllama.simulation.bank import RirBank
from wearllama.simulation.convolve import BlockPlan, SourceSpectra, channel_image, transform_source
from wearllama.simulation.fields import FIELD_TAPS, field_filters
from wearllama.simulation.levels import OWN_VOICE_DBA, draw_noise_dba, lombard_db
from wearllama.simulation.motion import Waypoints
from wearllama.simulation.moving import follow
from wearllama.simulation.noise import NoiseBank, draw_wind
from wearllama.simulation.recipe import MixtureRecipe, draw_from
from wearllama.simulation.sources import PlacedSource, cut_at_waypoints, power

Signal = NDArray[np.float32]


class NoisePlan(NamedTuple):
    """What noise there will be, drawn before anybody speaks, since people raise their voices over it."""

    name: str | None
    """None: no noise."""
    snr_db: float | None
    """Asked; None where a level is asked."""
    level_dba: float | None

    @property
    def lombard_db(self) -> float:
        """What everybody's vocal effort grows by."""
        return 0.0 if self.level_dba is None else lombard_db(self.level_dba)


def plan_noise(recipe: MixtureRecipe, noise: NoiseBank, rng: np.random.Generator) -> NoisePlan:
    """Draw the kind and the SNR or level."""
    drawn = noise.drawn[int(rng.integers(len(noise.drawn)))]
    name = recipe.noise_type if recipe.noise_type is not None else drawn
    if recipe.noise_dba is not None:
        return NoisePlan(name, None, draw_noise_dba(recipe, name, rng))
    if recipe.snr_db is None:
        return NoisePlan(None, None, None)
    return NoisePlan(name, draw_from(recipe.snr_db, rng), None)


class Background:
    """Noise of a mixture: drawn, convolved at c_0 and scaled."""

    def __init__(
        self,
        recipe: MixtureRecipe,
        noise_plan: NoisePlan,
        plan: BlockPlan,
        bank: RirBank,
        noise: NoiseBank,
        room: str,
        track: Waypoints,
        sources: list[PlacedSource],
        own_power: float,
        rng: np.random.Generator,
    ) -> None:
        self.parts: list[tuple[SourceSpectra, NDArray[np.complex64]]] = []
        """Signals and the responses (M, F) that they go through, at unit gain."""
        self.wind_MN: Signal | None = None
        self.image_N: Signal | None = None
        """At c_0, at unit gain."""
        self.gain = 0.0
        self.rows: dict[str, Any] = {"noise_type": noise_plan.name, "snr_db": None}
        if noise_plan.name is None:
            return
        self.draw = noise.draw(noise_plan.name, plan.length + bank.num_taps, rng)
        self.field = self.draw.field if recipe.noise_field is None else recipe.noise_field
        self.image_N = self._image(plan, bank, room, track, rng)
        self._scale(noise_plan, sources, own_power, bank)

    def _image(self, plan: BlockPlan, bank: RirBank, room: str, track: Waypoints, rng: np.random.Generator) -> Signal:
        if self.field == "wind":
            self.wind_MN = draw_wind(bank.num_channels, plan.length, rng, loops=self.draw.loops)
            return self.wind_MN[bank.reference]
        if self.field == "isotropic":  # the same from everywhere, however the head turns
            signals = self.draw.independent(bank.num_channels, plan.length + bank.num_taps, rng)
            responses = _field_spectra(_isotropic_array(bank), plan.n_fft)
            heard = [(-bank.num_taps, s_N, r_MF) for s_N, r_MF in zip(signals, responses, strict=True)]
        else:
            places = _noise_places(bank, room, self.field, len(self.draw.signals), rng)
            heard = [
                (start, piece_N, bank.spectrum(rir, plan.n_fft))
                for signal_N, place in zip(self.draw.signals, places, strict=True)
                for path in (follow(track, bank, place),)
                for (start, piece_N), (_, rir) in zip(
                    cut_at_waypoints(signal_N, path, -bank.num_taps), path, strict=True
                )
            ]
        image_N = np.zeros(plan.length, np.float32)
        for start, piece_N, response_MF in heard:
            spectra = transform_source(plan, piece_N, start)
            self.parts.append((spectra, response_MF))
            image_N += channel_image(plan, spectra, response_MF[bank.reference])
        return image_N

    def _scale(self, noise_plan: NoisePlan, sources: list[PlacedSource], own_power: float, bank: RirBank) -> None:
        assert self.image_N is not None
        speech_N = np.zeros(len(self.image_N), np.float32)
        active_N = np.zeros(len(self.image_N), bool)
        direct = 0.0
        for source in (s for s in sources if not s.sidetalk):
            speech_N += source.image_N
            active_N[source.start : source.end] |= source.active_N
            direct += source.gain**2 * bank.energy(source.rir)[1] * int(source.active_N.sum())
        has_speech = bool(active_N.any())
        signal_power = power(speech_N[active_N]) if has_speech else own_power
        noise_power = power(self.image_N[active_N] if has_speech else self.image_N)
        if noise_plan.level_dba is not None:
            wanted = own_power * 10 ** ((noise_plan.level_dba - OWN_VOICE_DBA) / 10)
            self.gain = float(np.sqrt(wanted / max(power(self.image_N), 1e-30)))
        else:
            assert noise_plan.snr_db is not None
            self.gain = float(np.sqrt(signal_power / max(noise_power, 1e-30) / 10 ** (noise_plan.snr_db / 10)))
        self.rows = {"noise_type": noise_plan.name, "noise_source": self.draw.source, "noise_field": self.field}
        self.rows["snr_db"] = None if noise_plan.snr_db is None else round(noise_plan.snr_db, 3)
        if noise_plan.level_dba is not None:
            self.rows["noise_dba"] = round(noise_plan.level_dba, 2)
            self.rows["lombard_db"] = round(noise_plan.lombard_db, 2)
        if has_speech and noise_power > 0:
            scaled = power(np.float32(self.gain) * self.image_N[active_N])
            self.rows["snr_measured_db"] = round(10 * float(np.log10(max(signal_power, 1e-30) / scaled)), 3)
            self.rows["snr_dry_db"] = round(10 * float(np.log10(max(direct, 1e-20) / int(active_N.sum()) / scaled)), 3)

    def metadata(self) -> dict[str, Any]:
        """Name, source, field; SNR or level asked; SNR measured on images, and of the direct sound alone."""
        return self.rows


def _noise_places(bank: RirBank, room: str, field: str, count: int, rng: np.random.Generator) -> list[int]:
    """Responses for each signal: several talkers stand where people stand, in places of their own while there are."""
    if field == "diffuse":
        wanted = bank.select(role="diffuse", room=room)
    elif count > 1:
        wanted = bank.select(role="bystander", room=room) + bank.select(role="noise", room=room)
    else:
        wanted = bank.select(role="noise", room=room)
    others = bank.select(role="noise", room=room) or bank.select(role="bystander", room=room)
    candidates = wanted or others or bank.select(room=room)
    places: list[int] = []
    for _ in range(count):
        free = [index for index in candidates if index not in places] or candidates
        places.append(free[int(rng.integers(len(free)))])
    return places


def _isotropic_array(bank: RirBank) -> ArrayGeometry:
    if bank.num_taps < FIELD_TAPS:
        raise ValueError(f"{bank.path}: an isotropic field needs {FIELD_TAPS} taps, the bank has {bank.num_taps}")
    return bank.array


@lru_cache(maxsize=4)
def _field_spectra(array: ArrayGeometry, n_fft: int) -> NDArray[np.complex64]:
    """Spectra (M, M, F) of the filters that make a field of independent noises."""
    return scipy.fft.rfft(field_filters(array), n_fft)
