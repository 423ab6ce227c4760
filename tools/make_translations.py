"""Dialogues of two people with a language each, translated both ways turn by turn.

The wearer speaks one language, the partner the other; the target has a line for every turn, as WearVox's ground truth
of live translation: ``SPEAKER [START,END] TRANSLATION``. Clips come from two speech manifests whose lines carry the
translation: a column ``translations`` ({language: text}), or ``translation_LANGUAGE``. Such columns
survive tools/import_speech.py.

Run as: python tools/make_translations.py wearer=data/speech/en partner=data/speech/es out=data/tr.jsonl
"""

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wearllama.data.manifest import Example, write_manifest
from wearllama.data.prompts import build_messages
from wearllama.data.speech_rows import MANIFEST, read_rows
from wearllama.data.spoken_examples import SceneDefaults, Turn, relative_file, scene
from wearllama_launch import launch

NAMES = {"en": "English", "es": "Spanish", "fr": "French", "de": "German", "it": "Italian", "pt": "Portuguese"}
PROMPT = (
    "The wearer of the glasses speaks {wearer}, the person opposite speaks {partner}. Translate every turn into the "
    "other language, one line a turn: who speaks (wearer or partner), [start,end] in seconds, the translation."
)


@dataclass(kw_only=True)
class MakeTranslations:
    wearer: str
    """Folder of a speech manifest in the wearer's language."""
    partner: str
    """The same for the partner's."""
    languages: tuple[str, str] = ("en", "es")
    """The wearer's and the partner's."""
    out: str
    root: str | None = None
    """Folder that paths are relative to; the folder of ``out`` if not given."""
    dialogues: int = 200
    turns: tuple[int, int] = (2, 4)
    """Turns of a dialogue, least and most."""
    gap_s: tuple[float, float] = (0.2, 1.0)
    max_seconds: float = 7.0
    """Of a clip."""
    scenes: SceneDefaults = field(default_factory=SceneDefaults)
    seed: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.turns[0] <= self.turns[1] or self.languages[0] == self.languages[1]:
            raise ValueError(f"turns {self.turns} must grow from 1 and languages {self.languages} must differ")


@launch("make_translations", MakeTranslations)
def main(config: MakeTranslations) -> None:
    here, there = config.languages
    mine = usable(Path(config.wearer), there, config.max_seconds)
    theirs = usable(Path(config.partner), here, config.max_seconds)
    rng = random.Random(config.seed)
    examples = [dialogue(number, mine, theirs, rng, config) for number in range(config.dialogues)]
    count = write_manifest(config.out, examples)
    print(f"{config.out}: {count} dialogues of {len(mine)} {here} and {len(theirs)} {there} clips")


def usable(folder: Path, into: str, max_seconds: float) -> list[dict[str, Any]]:
    """Lines with a translation into a language, each with it under ``into``; ValueError where there is none."""
    rows = []
    for row in read_rows(folder / MANIFEST):
        text = (row.get("translations") or {}).get(into) or row.get(f"translation_{into}")
        if text and row["seconds"] <= max_seconds:
            rows.append({**row, "into": str(text)})
    if not rows:
        raise ValueError(f"{folder / MANIFEST}: no clip under {max_seconds} s with a translation into {into!r}")
    return rows


def dialogue(
    number: int, mine: list[dict[str, Any]], theirs: list[dict[str, Any]], rng: random.Random, config: MakeTranslations
) -> Example:
    """Turns in alternation, whoever begins; one voice a side."""
    voices = [rng.choice(rows)["voice"] for rows in (mine, theirs)]
    pools = [[row for row in rows if row["voice"] == voice] for rows, voice in zip((mine, theirs), voices, strict=True)]
    first, count = rng.randrange(2), rng.randint(*config.turns)
    folders = (Path(config.wearer), Path(config.partner))
    turns, files = [], []
    audio_root = Path(config.root) if config.root else Path(config.out).parent
    for place in range(count):
        side = (first + place) % 2
        gap = round(rng.uniform(*config.gap_s), 3) if place else 0.0
        turns.append(Turn(rng.choice(pools[side]), ("wearer", "partner")[side], gap))
        files.append(relative_file(turns[-1].row, folders[side], audio_root))
    row_id = f"translation-{'-'.join(config.languages)}-{number:06d}"
    recipe, seconds, spans = scene(turns, files, seed=row_id, defaults=config.scenes)
    lines = [
        f"{turn.role} [{start:.1f},{end:.1f}] {turn.row['into']}"
        for turn, (start, end) in zip(turns, spans, strict=True)
    ]
    system = PROMPT.format(wearer=_name(config.languages[0]), partner=_name(config.languages[1]))
    return Example(
        id=row_id, task="live_translation", split="train", messages=build_messages(system=system),
        target="\n".join(lines), audio={"mixture": recipe},
        metadata={
            "seconds": seconds, "source": "translation", "rooms": config.scenes.rooms, "voices": sorted(set(voices)),
            "transcript": " ".join(str(turn.row["text"]) for turn in turns), "turns": [turn.role for turn in turns],
        },
    )  # fmt: skip


def _name(language: str) -> str:
    return NAMES.get(language, language)


if __name__ == "__main__":
    main()
