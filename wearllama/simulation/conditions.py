"""The registry of evaluation conditions: named perturbations that any benchmark applies with ``condition=...``.

``clean`` is the recording as it is.  ``snr:5`` is one condition; ``snr`` is a sweep, ``voxeval`` a group.  Conditions
of *recordings* work on any audio: the change is applied to the array's channels, and c_x follows, either as one more
channel (operations that are the same for all channels) or as the beam of what was added.  Conditions of *scenes* render
the mixture anew from its recipe, which is the only honest way to another room or distance.

Shapes: M channels, N samples.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from wearllama.audio.array import ArrayGeometry
from wearllama.audio.beamforming import Beam, apply_beam
from wearllama.simulation import effects, perturb, scene_edits
from wearllama.simulation.mixing import MixtureRecipe
from wearllama.simulation.noise import NoiseBank
from wearllama.simulation.perturb import Signal, Surroundings
from wearllama.simulation.scene_edits import Surrounding
from wearllama.simulation.timescale import shift_pitch, stretch

CLEAN = "clean"
SAME_FOR_ALL, PER_CHANNEL, SCENE = "same for all channels", "per channel", "scene"
Apply = Callable[[Signal, float, Surroundings], Signal]
Edit = Callable[[MixtureRecipe, float, Surrounding, int], MixtureRecipe]


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One kind of condition."""

    about: str
    sweep: tuple[float, ...]
    """Values that its bare name stands for."""
    how: str
    """:data:`SAME_FOR_ALL`, :data:`PER_CHANNEL` or :data:`SCENE`."""
    apply: Apply | None = None
    edit: Edit | None = None

    def __post_init__(self) -> None:
        assert (self.edit is not None) == (self.how == SCENE) and (self.apply is None) == (self.how == SCENE)


def _effect(effect: effects.Effect) -> Apply:
    return lambda audio_MN, value, around: effect(audio_MN, value, around.rng)


KINDS: dict[str, Kind] = {
    "snr": Kind(
        about="pink noise from everywhere, SNR in dB", sweep=(20, 10, 5, 0, -5), how=PER_CHANNEL,
        apply=perturb.add_diffuse_noise,
    ),
    "wind": Kind(about="wind, SNR in dB", sweep=(15, 5, 0, -5, -10), how=PER_CHANNEL, apply=perturb.add_wind),
    "clipping": Kind(
        about="overload by so many dB", sweep=(6, 12, 20), how=PER_CHANNEL,
        apply=lambda audio_MN, value, around: perturb.overload(audio_MN, value),
    ),
    "dead_microphone": Kind(
        about="this microphone is dead", sweep=(0, 1, 2, 3, 4), how=PER_CHANNEL,
        apply=lambda audio_MN, value, around: perturb.break_microphone(audio_MN, value, around, covered=False),
    ),
    "covered_microphone": Kind(
        about="this microphone is covered", sweep=(0, 1, 2, 3, 4), how=PER_CHANNEL,
        apply=lambda audio_MN, value, around: perturb.break_microphone(audio_MN, value, around, covered=True),
    ),
    "tempo": Kind(
        about="times as fast, same pitch", sweep=(0.5, 0.75, 1.5, 2.0), how=SAME_FOR_ALL,
        apply=lambda audio_MN, value, around: stretch(audio_MN, value, around.reference),
    ),
    "pitch": Kind(
        about="semitones, same tempo", sweep=(-5, -3, 3, 5), how=SAME_FOR_ALL,
        apply=lambda audio_MN, value, around: shift_pitch(audio_MN, value, around.reference),
    ),
    "gain": Kind(
        about="louder by so many dB", sweep=(-20, -10, 10), how=SAME_FOR_ALL,
        apply=lambda audio_MN, value, around: audio_MN * np.float32(10 ** (value / 20)),
    ),
    "gaussian_noise": Kind(
        about="white noise of its own at each channel, SNR in dB", sweep=(10,), how=PER_CHANNEL,
        apply=perturb.add_white_noise,
    ),
    "coloured_noise": Kind(
        about="noise from everywhere of a drawn slope, SNR in dB", sweep=(10,), how=PER_CHANNEL,
        apply=perturb.add_coloured_noise,
    ),
    "background_music": Kind(
        about="music from one direction, SNR in dB", sweep=(10,), how=PER_CHANNEL,
        apply=lambda audio_MN, value, around: perturb.add_point_noise(audio_MN, value, around, "Music"),
    ),
    "background_sounds": Kind(
        about="dishes, steps, engines from one direction, SNR in dB", sweep=(10,), how=PER_CHANNEL,
        apply=lambda audio_MN, value, around: perturb.add_point_noise(audio_MN, value, around, "Other"),
    ),
    "reverberation": Kind(
        about="a room's diffuse tail behind the recording, RT60 in s", sweep=(0.3, 0.6, 0.9), how=PER_CHANNEL,
        apply=perturb.reverberate,
    ),
    "low_pass": Kind(about="cutoff in Hz", sweep=(1000,), how=SAME_FOR_ALL, apply=_effect(effects.low_pass)),
    "high_pass": Kind(about="cutoff in Hz", sweep=(1000,), how=SAME_FOR_ALL, apply=_effect(effects.high_pass)),
    "band_pass": Kind(about="centre in Hz", sweep=(1000,), how=SAME_FOR_ALL, apply=_effect(effects.band_pass)),
    "equaliser": Kind(
        about="seven bands at random within +-dB", sweep=(12,), how=SAME_FOR_ALL, apply=_effect(effects.equaliser)
    ),
    "aliasing": Kind(
        about="sampled at so many Hz without a filter", sweep=(8000,), how=SAME_FOR_ALL,
        apply=_effect(effects.aliasing),
    ),
    "bit_crush": Kind(about="bits", sweep=(6,), how=PER_CHANNEL, apply=_effect(effects.bit_crush)),
    "rt60": Kind(
        about="the scene in a room of this RT60 in s", sweep=(0.2, 0.4, 0.6), how=SCENE, edit=scene_edits.with_rt60
    ),
    "distance": Kind(
        about="everybody but the wearer so many metres away", sweep=(0.7, 1.0, 2.0, 3.0), how=SCENE,
        edit=scene_edits.with_distance,
    ),
    "overlap": Kind(
        about="a bystander talks over this share of the words", sweep=(0.0, 0.25, 0.5, 1.0), how=SCENE,
        edit=scene_edits.with_overlap,
    ),
    "scene_snr": Kind(
        about="the scene's own noise at this SNR in dB", sweep=(20, 10, 5, 0, -5), how=SCENE,
        edit=scene_edits.with_snr,
    ),
}  # fmt: skip
GROUPS: dict[str, tuple[str, ...]] = {
    "voxeval": (
        "pitch:-5", "pitch:5", "tempo:0.5", "tempo:2", "gaussian_noise:10", "coloured_noise:10",
        "background_music:10", "background_sounds:10", "reverberation:0.6", "low_pass:1000", "high_pass:1000",
        "band_pass:1000", "aliasing:8000", "bit_crush:6", "gain:-10", "clipping:12", "equaliser:12",
    ),
}  # fmt: skip
"""VoxEval's kinds: pitch and tempo to their published ends, and thirteen of audio quality, their values ours."""


@dataclass(frozen=True, kw_only=True)
class Condition:
    """One kind with one value."""

    kind: str
    value: float

    @property
    def name(self) -> str:
        """``kind:value``."""
        return f"{self.kind}:{self.value:g}"

    @property
    def is_scene(self) -> bool:
        """Whether it renders the scene anew instead of working on a recording."""
        return KINDS[self.kind].how == SCENE

    def rng(self, key: str, seed: int = 0) -> np.random.Generator:
        """The generator of one recording: the same for the same condition, ``key`` and ``seed`` anywhere."""
        digest = hashlib.sha256(f"{self.name}/{key}".encode()).digest()
        return np.random.default_rng([int.from_bytes(digest[:8], "big"), seed])

    def check(self, channels: int) -> None:
        """ValueError where recordings of so many channels cannot be brought under the condition."""
        if self.kind in ("dead_microphone", "covered_microphone") and (channels < 2 or not 0 <= self.value < channels):
            raise ValueError(f"condition {self.name}: the recordings have {channels} channels, 0..{channels - 1}")

    def seconds(self, seconds: float) -> float:
        """How long a recording of ``seconds`` is under the condition."""
        return seconds / self.value if self.kind == "tempo" else seconds

    def apply(
        self,
        audio_MN: Tensor,
        beam_N: Tensor | None,
        *,
        array: ArrayGeometry,
        beam: Beam,
        noise: NoiseBank,
        key: str,
        seed: int = 0,
    ) -> tuple[Tensor, Tensor | None]:
        """The recording and its beam under the condition (not of scenes).

        ``beam_N`` is a recorded beam, or None where c_x is made of the array anyway; of what was added it gets the
        nominal beam's output.  Mono recordings ``(1, N)`` stay mono.  ValueError where channels and array disagree.
        """
        kind = KINDS[self.kind]
        assert kind.apply is not None, f"{self.name} changes scenes, not recordings"
        mono = audio_MN.shape[0] == 1
        if not mono and audio_MN.shape[0] != array.num_mics:
            raise ValueError(f"{audio_MN.shape[0]} channels, wanted 1 or {array.num_mics} of array {array.name!r}")
        around = Surroundings(array=None if mono else array, noise=noise, rng=self.rng(key, seed))
        if kind.how == SAME_FOR_ALL:
            rows_CN = audio_MN if beam_N is None else torch.cat([audio_MN, beam_N[None]])
            changed_CN = torch.from_numpy(kind.apply(rows_CN.numpy(), self.value, around))
            return changed_CN[: len(audio_MN)], None if beam_N is None else changed_CN[-1]
        changed_MN = torch.from_numpy(kind.apply(audio_MN.numpy(), self.value, around))
        if beam_N is None:
            return changed_MN, None
        added_N = changed_MN[0] - audio_MN[0] if mono else apply_beam(changed_MN - audio_MN, beam)
        return changed_MN, beam_N + added_N

    def edit(self, recipe: MixtureRecipe, around: Surrounding, seed: int) -> MixtureRecipe:
        """The scene under the condition; ValueError where bank and clips have nothing like it."""
        edit = KINDS[self.kind].edit
        assert edit is not None, f"{self.name} changes recordings, not scenes"
        return edit(recipe, self.value, around, seed)


def parse_conditions(names: str | Sequence[str]) -> list[Condition | None]:
    """What names stand for: ``[None]`` for ``clean``, one condition, a sweep, or a group; a repeated one counts once.

    Raises:
        ValueError: a name is unknown or its value is no number.
    """
    found: list[Condition | None] = []
    for name in [names] if isinstance(names, str) else names:
        kind, _, value = name.partition(":")
        if name == CLEAN:
            found.append(None)
        elif name in GROUPS:
            found += parse_conditions(GROUPS[name])
        elif kind not in KINDS:
            raise ValueError(f"condition {name!r} is unknown, wanted {CLEAN} or one of {[*KINDS, *GROUPS]}")
        elif not value and ":" not in name:
            found += [Condition(kind=kind, value=float(item)) for item in KINDS[kind].sweep]
        else:
            found.append(Condition(kind=kind, value=_number(value, name)))
    if not found:
        raise ValueError(f"no condition is given, wanted {CLEAN} or some of {[*KINDS, *GROUPS]}")
    return list(dict.fromkeys(found))


def _number(value: str, name: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = float("nan")
    if not np.isfinite(number):
        raise ValueError(f"condition {name!r}: {value!r} is no number")
    return number
