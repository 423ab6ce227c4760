"""Training rows around clips of a speech manifest: who says them from where, and what the model should say to it."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wearllama.data.manifest import Example
from wearllama.data.prompts import Message
from wearllama.simulation.mixing import MixtureRecipe, Segment

LEAD_S = (0.1, 0.4)
TAIL_S = 0.3


@dataclass(frozen=True, kw_only=True)
class SceneDefaults:
    """What all scenes of a recipe share."""

    snr_db: tuple[float, float] = (0.0, 40.0)
    level_dbfs: tuple[float, float] = (-40.0, -18.0)
    rooms: str = "train"
    """Split of the RIR bank."""


@dataclass(frozen=True)
class Turn:
    """One clip in a scene."""

    row: Mapping[str, Any]
    """Line of a speech manifest."""
    role: str = "wearer"
    gap_s: float = 0.0
    """Silence before it; negative overlaps."""


def relative_file(row: Mapping[str, Any], speech_root: Path, audio_root: Path) -> str:
    """A clip's path relative to the folder that training resolves paths against."""
    path = (speech_root / str(row["file"])).resolve()
    try:
        return str(path.relative_to(audio_root.resolve()))
    except ValueError:
        raise ValueError(
            f"{path} is not below {audio_root}: put clips and examples under one folder (root=...)"
        ) from None


def scene(
    turns: Sequence[Turn],
    files: Sequence[str],
    *,
    seed: str,
    defaults: SceneDefaults,
    behind: tuple[str, float] | None = None,
    silence_s: float = 0.0,
) -> tuple[dict[str, Any], float, list[tuple[float, float]]]:
    """Mixture recipe (JSON), its seconds, and start and end of every turn.

    Args:
        turns: clips in order.
        files: their paths as the recipe shall name them.
        seed: decides the silence before the first turn.
        defaults: levels and rooms.
        behind: file and seconds of somebody who talks at the same time.
        silence_s: length where nobody speaks at all.
    """
    rng = random.Random(seed)
    at, spans, segments = rng.uniform(*LEAD_S), [], []
    for turn, file in zip(turns, files, strict=True):
        start = max(0.0, at + turn.gap_s)
        at = start + float(turn.row["seconds"])
        spans.append((round(start, 3), round(at, 3)))
        segments.append(Segment(file=file, role=turn.role, start_s=round(start, 3)))
    end = max([stop for _, stop in spans], default=silence_s)
    sidetalk = []
    if behind is not None:
        start = rng.uniform(0.0, max(0.05, end - min(behind[1], end)))
        sidetalk = [Segment(file=behind[0], role="bystander", start_s=round(start, 3))]
        end = max(end, start + behind[1])
    seconds = round(end + TAIL_S, 3)
    recipe = MixtureRecipe(
        segments=tuple(segments), sidetalk=tuple(sidetalk), snr_db=defaults.snr_db, level_dbfs=defaults.level_dbfs,
        split=defaults.rooms, duration_s=seconds,
    )  # fmt: skip
    return recipe.to_dict(), seconds, spans


def spoken_example(
    row_id: str,
    task: str,
    turns: Sequence[Turn],
    *,
    messages: list[Message],
    target: str,
    speech_root: Path,
    audio_root: Path,
    defaults: SceneDefaults,
    source: str,
    split: str = "train",
    metadata: Mapping[str, Any] | None = None,
    behind: Mapping[str, Any] | None = None,
    silence_s: float = 0.0,
) -> Example:
    """A row whose sound is rendered anew in every epoch; its metadata have the ``transcript`` of its words."""
    files = [relative_file(turn.row, speech_root, audio_root) for turn in turns]
    hidden = (relative_file(behind, speech_root, audio_root), float(behind["seconds"])) if behind else None
    recipe, seconds, _ = scene(turns, files, seed=row_id, defaults=defaults, behind=hidden, silence_s=silence_s)
    words = " ".join(str(turn.row["text"]) for turn in turns)
    told = {
        "dialect": "wearvox", "seconds": seconds, "source": source, "rooms": defaults.rooms,
        "voices": sorted({str(turn.row["voice"]) for turn in turns}), **({"transcript": words} if words else {}),
    }  # fmt: skip
    return Example(
        id=row_id, task=task, split=split, messages=messages, target=target, audio={"mixture": recipe},
        metadata=told | dict(metadata or {}),
    )  # fmt: skip
