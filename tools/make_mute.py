"""What the assistant must stay silent on, in the sound of the same assistant's prompts: rows with [Mute] as the target.

- ``bystander``, ``partner``: the corpus' clips, said by somebody else (side-talk)
- ``to_partner``: the wearer's own voice in conversation with a partner who answers; clips must be talk between people
- ``self_talk``: the wearer thinks aloud, in sentences of wearllama/data/textgen.py, spoken by synthetic voices
- ``noise``: nobody speaks

Run as: python tools/make_mute.py speech=data/speech/en out_dir=data/mute rows.bystander=200 rows.to_partner=200
        python tools/make_mute.py speech=... out_dir=... rows.self_talk=50 engines=[flite]
"""

import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from synthesize import synthesize_all  # beside this script

from wearllama.data import textgen
from wearllama.data.actions import MUTE
from wearllama.data.faults import Faults
from wearllama.data.manifest import Example, write_manifest
from wearllama.data.prompts import PromptStyle, build_messages, load_prompts
from wearllama.data.speech_rows import MANIFEST, read_rows
from wearllama.data.spoken_examples import SceneDefaults, Turn, spoken_example
from wearllama.data.tools import WEARVOX_TOOLS
from wearllama.data.voices import clip_id, voices_of
from wearllama_launch import launch


@dataclass(frozen=True, kw_only=True)
class MuteRows:
    """How many rows of each kind."""

    bystander: int = 100
    partner: int = 100
    to_partner: int = 100
    self_talk: int = 0
    noise: int = 20

    def __post_init__(self) -> None:
        for name, count in asdict(self).items():
            if count < 0:
                raise ValueError(f"rows.{name} is {count}, wanted 0 or more")


@dataclass(kw_only=True)
class MakeMute:
    speech: str
    """Folder of a speech manifest."""
    out_dir: str
    """Gets examples.jsonl and, for self-talk, speech/."""
    root: str | None = None
    """Folder that paths are relative to; out_dir if not given."""
    rows: MuteRows = field(default_factory=MuteRows)
    engines: list[str] = field(default_factory=lambda: ["kokoro"])
    style: PromptStyle = "full"
    scenes: SceneDefaults = field(default_factory=SceneDefaults)
    max_seconds: float = 8.0
    """Of a clip."""
    behind: float = 0.2
    """Probability that somebody else talks at the same time."""
    noise_seconds: tuple[float, float] = (1.5, 5.0)
    tolerance: float = 0.02
    workers: int = 1
    seed: int = 0


@launch("make_mute", MakeMute)
def main(config: MakeMute) -> None:
    speech, out_dir = Path(config.speech), Path(config.out_dir)
    clips = [row for row in read_rows(speech / MANIFEST) if row.get("text") and row["seconds"] <= config.max_seconds]
    if len({row["voice"] for row in clips}) < 2:
        raise ValueError(f"{speech / MANIFEST}: wanted clips of at least two voices under {config.max_seconds} s")
    maker = Maker(config, clips)
    examples = list(maker.examples())
    if config.rows.self_talk:
        examples += self_talk(config)
    count = write_manifest(out_dir / "examples.jsonl", examples)
    print(f"{out_dir / 'examples.jsonl'}: {count} rows of [Mute]: {asdict(config.rows)}")


class Maker:
    """Draws rows of a corpus' clips; of the seed alone."""

    def __init__(self, config: MakeMute, clips: list[dict[str, Any]]) -> None:
        self.config, self.clips = config, clips
        self.rng = random.Random(config.seed)
        system = load_prompts(style=config.style).system("wearvox", WEARVOX_TOOLS)
        self.messages = build_messages(system=system)

    def examples(self) -> Iterator[Example]:
        """Rows by kind in order."""
        for kind in ("bystander", "partner", "to_partner", "noise"):
            for number in range(getattr(self.config.rows, kind)):
                yield self._row(kind, number)

    def _row(self, kind: str, number: int) -> Example:
        rng, config = self.rng, self.config
        turns: list[Turn] = []
        if kind in ("bystander", "partner"):
            turns = [Turn(rng.choice(self.clips), kind)]
        elif kind == "to_partner":
            mine = rng.choice(self.clips)
            turns = [Turn(mine, "wearer"), Turn(self._other(mine), "partner", gap_s=round(rng.uniform(0.1, 0.8), 3))]
            turns = turns[: rng.choice((1, 2, 2))]
        behind = self._other(turns[0].row) if turns and rng.random() < config.behind else None
        return spoken_example(
            f"mute-{kind}-{number:06d}", "non-assistant-directed", turns, messages=self.messages, target=MUTE,
            speech_root=Path(config.speech), audio_root=Path(config.root or config.out_dir), defaults=config.scenes,
            source=f"mute_{kind}", behind=behind, silence_s=round(rng.uniform(*config.noise_seconds), 3),
        )  # fmt: skip

    def _other(self, row: dict[str, Any] | Any) -> dict[str, Any]:
        """A clip of another voice."""
        while True:
            other = self.rng.choice(self.clips)
            if other["voice"] != row["voice"]:
                return other


def self_talk(config: MakeMute) -> list[Example]:
    """Thinking aloud, spoken."""
    rng, voices = random.Random(f"self-talk/{config.seed}"), voices_of(*config.engines)
    if not voices:
        raise ValueError(f"engines={config.engines}: no training voice of these")
    requests = []
    for number in range(config.rows.self_talk):
        kinds = len(textgen.DISCOURSE)
        said = textgen.self_talk(textgen.DISCOURSE[number % kinds], "train", rng, index=number // kinds)
        text, voice = said.text, rng.choice(voices)
        requests.append(
            {"text": text, "voice": voice, "speed": 1.0, "pitch": 1.0, "id": clip_id(text, voice, 1.0, 1.0)}
        )
    out_dir = Path(config.out_dir)
    faults = Faults(out_dir / "faults.jsonl", config.tolerance)
    unique = {ask["id"]: ask for ask in requests}
    for failure in synthesize_all(list(unique.values()), out_dir / "speech", workers=config.workers):
        faults.add("cannot be spoken", failure["id"], failure["error"])
    faults.good(len(unique))
    faults.finish()
    clips = {row["id"]: row for row in read_rows(out_dir / "speech" / MANIFEST)}
    system = load_prompts(style=config.style).system("vgbench", WEARVOX_TOOLS)
    return [
        spoken_example(
            f"mute-self_talk-{number:06d}", "self_talk", [Turn(clips[ask["id"]])],
            messages=build_messages(system=system), target=MUTE, speech_root=out_dir / "speech",
            audio_root=Path(config.root or config.out_dir), defaults=config.scenes, source="mute_self_talk",
            metadata={"dialect": "vgbench"},
        )
        for number, ask in enumerate(requests) if ask["id"] in clips
    ]  # fmt: skip


if __name__ == "__main__":
    main()
