"""How loud noise is where the wearer stands, and how far people raise their voices over it (Lombard).

A mixture's unit is own voice of nominal effort at c_0.  A normal voice has about 60 dB(A) at a metre; the nose
microphone hears its wearer 24 dB louder than somebody a metre away (measured, see docs/decisions.md), so that unit
stands for 84 dB.  Above 50 dB(A) of noise people speak about half a decibel louder for each decibel of noise (slopes
in the literature run from 0.3 to 0.6), up to a shout.
"""

import numpy as np

from wearllama.simulation.noise_kinds import KINDS, level_at
from wearllama.simulation.recipe import MixtureRecipe, draw_from

OWN_VOICE_DBA = 84.0
"""Own voice of nominal effort at c_0."""
LOMBARD_FROM_DBA = 50.0
LOMBARD_SLOPE = 0.5
LOMBARD_MOST_DB = 18.0


def lombard_db(noise_dba: float) -> float:
    """How much louder everybody talks in noise of this level."""
    return float(np.clip(LOMBARD_SLOPE * (noise_dba - LOMBARD_FROM_DBA), 0.0, LOMBARD_MOST_DB))


def draw_noise_dba(recipe: MixtureRecipe, name: str, rng: np.random.Generator) -> float:
    """The noise's level at the wearer's head: the asked one, or the kind's usual one at the asked distance.

    Takes two numbers from ``rng`` either way.
    """
    kind = KINDS[name]
    asked = recipe.noise_dba
    level = draw_from(kind.level_dba if asked == "typical" else asked, rng)  # type: ignore[arg-type]
    distance = kind.distance_m if recipe.noise_distance_m is None else recipe.noise_distance_m
    drawn = draw_from(distance, rng)
    return level_at(kind, level, drawn) if asked == "typical" else level
