"""Which channels a trained model hears at test time (WearVox paper, Table 6).

A pair ``c_x-c_1`` names what stands in for the beam, then what stands in for c_0: trained on (c_x, c_0), a model is
tested with (c_x, c_1) or (c_0, c_1).  ``c_0`` is the array's reference microphone, ``c_1``, ``c_2``, ... the others in
the array's order.  Single-channel models take one name.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from wearllama.audio.array import ArrayGeometry
from wearllama.audio.beamforming import Beam, apply_beam
from wearllama.data.manifest import Clip

OWN = "own"
"""The channels that the model was trained on."""
_OWN_NAMES = {"mc": ("c_x", "c_0"), "sc_beam": ("c_x",), "sc_c0": ("c_0",)}
_CHANNEL = re.compile(r"c_(x|\d+)")


@dataclass(frozen=True)
class ChannelPair:
    """Names of the channels that a model hears: (beam's place, c_0's place), or the single one."""

    names: tuple[str, ...]

    @property
    def name(self) -> str:
        """As it is written on the command line."""
        return "-".join(self.names)

    def is_own(self, channels: str) -> bool:
        """Whether it is what a model of these ``channels`` hears anyway; ValueError for a wrong number of names."""
        own = _OWN_NAMES[channels]
        if len(self.names) != len(own):
            raise ValueError(
                f"pair={self.name} names {len(self.names)} channel(s), but a model of channels={channels} hears "
                f"{len(own)}, such as {'-'.join(own)}"
            )
        return self.names == own

    def check(self, microphones: int) -> None:
        """ValueError where the array has no such microphone."""
        for name in self.names:
            if name != "c_x" and int(name[2:]) >= microphones:
                raise ValueError(f"pair={self.name}: no {name} in an array of {microphones}, wanted c_x or c_0 to "
                                 f"c_{microphones - 1}")  # fmt: skip

    def waveforms(self, clip: Clip, array: ArrayGeometry, beam: Beam) -> tuple[Tensor, Tensor]:
        """What a model takes for (c_0, c_x); the single channel twice."""
        if clip.audio_MN.shape[0] != array.num_mics:
            raise ValueError(
                f"pair={self.name} chooses among microphones: found {clip.audio_MN.shape[0]} channels, wanted "
                f"{array.num_mics} of array {array.name!r}"
            )
        heard = [channel_of(name, clip, array, beam) for name in self.names]
        return heard[-1], heard[0]


def channel_of(name: str, clip: Clip, array: ArrayGeometry, beam: Beam) -> Tensor:
    """The samples of ``c_x`` (the recorded beam where one exists) or of a microphone of the array."""
    if name == "c_x":
        return clip.beam_N if clip.beam_N is not None else apply_beam(clip.audio_MN, beam)
    order = [array.reference, *(mic for mic in range(array.num_mics) if mic != array.reference)]
    return clip.audio_MN[order[int(name[2:])]]


def parse_pairs(names: str | Sequence[str]) -> list[ChannelPair | None]:
    """``[None]`` for ``own``; one pair, or a list of them; a repeated one counts once."""
    found: list[ChannelPair | None] = []
    for text in [names] if isinstance(names, str) else names:
        parts = tuple(text.split("-"))
        if text != OWN and (len(parts) > 2 or not all(_CHANNEL.fullmatch(part) for part in parts)):
            raise ValueError(f"pair={text!r} cannot be read, wanted {OWN}, or channels such as c_x-c_0 or c_0-c_1")
        found.append(None if text == OWN else ChannelPair(parts))
    if not found:
        raise ValueError(f"no pair is given, wanted {OWN} or channels such as c_x-c_0")
    return list(dict.fromkeys(found))
