"""The kinds of background noise: how each reaches the microphones, how loud it is, and what files hold it.

The names are WearVox's ``_noise_type``.  Levels are usual ones in dB(A) at the distance that the name tells
(engineering handbooks: a jackhammer 80-90 at 15 m, a vacuum cleaner about 70, a quiet office about 40).  Aircraft are
quieter than their name says, since nobody talks thirty metres from a jet's take-off.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from wearllama.simulation.noise_synthesis import (
    Loop,
    coloured,
    conversation,
    harmonics,
    jackhammer,
    leaves,
    mix,
    music,
    other,
    singing,
    slow,
    whisper,
)


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One kind of noise."""

    folder: str
    """Sub-folder of recordings."""
    field: str
    """point, diffuse or wind: how it reaches the microphones."""
    words: tuple[str, ...]
    """What the names of loose files say."""
    synthesise: Callable[[np.random.Generator], Loop]
    level_dba: tuple[float, float]
    """Usual level at the wearer's head when the source is ``distance_m`` away."""
    distance_m: float = 1.0
    speech: str = ""
    """babble or whisper: made from real speakers where the noise bank has some."""


KINDS: dict[str, Kind] = {
    "Quiet Office": Kind(
        folder="office",
        level_dba=(38.0, 48.0),
        field="diffuse",
        words=("office",),
        synthesise=lambda rng: mix((coloured(rng, -5.0), 0.0), (harmonics(rng, 100.0, 6, -8.0), -8.0)),
    ),
    "Normal Conversation (1m)": Kind(
        folder="conversation",
        level_dba=(56.0, 64.0),
        speech="babble",
        field="point",
        words=("conversation", "babble", "talk"),
        synthesise=conversation,
    ),
    "Vehicles: Car, Bus, Truck, Motorcycle (15m)": Kind(
        folder="vehicles",
        level_dba=(65.0, 80.0),
        distance_m=15.0,
        field="diffuse",
        words=("vehicle", "traffic", "truck", "engine", "_car"),
        synthesise=lambda rng: mix(
            (coloured(rng, -6.0, 50, 4000) * slow(rng, 0.2, 4.0), 0.0),
            (harmonics(rng, rng.uniform(28, 60), 20, -5.0) * slow(rng, 0.3, 5.0), -6.0),
        ),
    ),
    "Music": Kind(
        folder="music",
        level_dba=(60.0, 80.0),
        field="point",
        words=("music", "moh_", "cello", "violin", "drum", "bassoon"),
        synthesise=music,
    ),
    "Construction Noise: Jackhammer, other (15m)": Kind(
        folder="construction",
        level_dba=(78.0, 90.0),
        distance_m=15.0,
        field="point",
        words=("construction", "jackhammer", "lumberjack", "drill", "saw"),
        synthesise=jackhammer,
    ),
    "Vacuum Cleaning": Kind(
        folder="vacuum",
        level_dba=(66.0, 76.0),
        field="point",
        words=("vacuum",),
        synthesise=lambda rng: mix(
            (coloured(rng, -1.0, 200, 6000), 0.0), (harmonics(rng, rng.uniform(180, 320), 12, -3.0), -4.0)
        ),
    ),
    "Lawnmower (1m)": Kind(
        folder="lawnmower",
        level_dba=(84.0, 94.0),
        field="point",
        words=("lawn", "mower"),
        synthesise=lambda rng: mix(
            (harmonics(rng, rng.uniform(40, 60), 40, -3.0) * slow(rng, 2.0, 1.0), 0.0),
            (coloured(rng, -3.0, 100), -5.0),
        ),
    ),
    "Aircraft: Jet plane, military jet take-off (30m)": Kind(
        folder="aircraft",
        level_dba=(75.0, 95.0),
        distance_m=30.0,
        field="diffuse",
        words=("aircraft", "plane", "jet", "lander", "flying"),
        synthesise=lambda rng: coloured(rng, -3.5, 80, 5000) * slow(rng, 0.15, 5.0),
    ),
    "Wind": Kind(
        folder="wind",
        level_dba=(60.0, 85.0),
        field="wind",
        words=("wind",),
        synthesise=lambda rng: coloured(rng, -9.0, 30, 1500) * slow(rng, 4.0, 2.0),
    ),
    "Pink": Kind(
        folder="pink",
        level_dba=(40.0, 70.0),
        field="diffuse",
        words=("pink",),
        synthesise=lambda rng: coloured(rng, -3.0),
    ),
    "Loud Singing": Kind(
        folder="singing",
        level_dba=(74.0, 86.0),
        field="point",
        words=("singing", "singer", "song", "choir"),
        synthesise=singing,
    ),
    "Quiet Whisper (1m)": Kind(
        folder="whisper",
        level_dba=(30.0, 40.0),
        speech="whisper",
        field="point",
        words=("whisper",),
        synthesise=whisper,
    ),
    "Rustling Leaves": Kind(
        folder="leaves",
        level_dba=(25.0, 45.0),
        field="diffuse",
        words=("leaves", "rustl", "foliage"),
        synthesise=leaves,
    ),
    "Other": Kind(folder="other", level_dba=(50.0, 75.0), field="point", words=(), synthesise=other),
}
"""WearVox's thirteen names, and plain pink noise; new ones at the end, since a loop's seed is its place here.

The spellings of the first eight are those seen in the data, those of the others stand in the paper's table."""

WEARVOX_TYPES = tuple(name for name in KINDS if name != "Pink")
"""The thirteen."""
FIRST_TYPES = tuple(KINDS)[:10]
"""What a recipe without a noise type draws from unless told otherwise; kept, so that a seed keeps its samples."""


def level_at(kind: Kind, level_dba: float, distance_m: float) -> float:
    """Level of a source when it is ``distance_m`` away: 6 dB less for each doubling."""
    return level_dba - 20.0 * float(np.log10(distance_m / kind.distance_m))
