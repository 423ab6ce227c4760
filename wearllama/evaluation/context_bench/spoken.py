"""Spoken turns: the same conversations, with the user's words as sound that five microphones picked up.

Scenes stay text, as in the original; only what the user says changes from words to a voice at the wearer's place in a
simulated room.  So a speech LLM takes the same test with ears, and the difference to its own text run is its hearing.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from wearllama.data.assets import cache_root
from wearllama.data.manifest import Clip, Example, example_seed
from wearllama.data.prompts import Message, content_hash
from wearllama.data.voices import get_voice, synthesize_cached
from wearllama.evaluation.adapters import CheckpointAdapter
from wearllama.simulation.bank import RirBank
from wearllama.simulation.mixing import MixtureRecipe, Segment, render
from wearllama.simulation.noise import NoiseBank

_OPEN, _CLOSE = "[Camera: ", "]"


@dataclass(frozen=True, kw_only=True)
class SpeechConfig:
    """Who speaks, where, and over what."""

    bank: str = "data/demo/rir_bank"
    """Bank of room responses with a wearer."""
    split: str = "eval"
    """Rooms of the bank."""
    voice: str = "kokoro/af_sarah"
    """Voice of the wearer; the default is held out of all training here."""
    noise_type: str | None = None
    """Kind of noise, with ``snr_db``; null draws one where there is an SNR."""
    snr_db: float | None = None
    """Own voice over noise at c_0; null for no noise."""
    level_dbfs: float = -26.0
    """Level of own voice at c_0."""
    seed: int = 0

    def __post_init__(self) -> None:
        get_voice(self.voice)
        if self.noise_type is not None and self.snr_db is None:
            raise ValueError(f"speech.noise_type={self.noise_type} is not heard without speech.snr_db, in dB")


class Speaker:
    """Turns words into what the array records; the same words give the same samples anywhere."""

    def __init__(self, config: SpeechConfig, cache_dir: str | None = None) -> None:
        self.config, self.cache_dir = config, cache_dir
        self.bank = RirBank.open(config.bank)
        self.noise = NoiseBank([])
        meta = (Path(config.bank) / "meta.json").read_text(encoding="utf-8")
        settings = {name: value for name, value in asdict(config).items() if name != "bank"}
        self.stamp = content_hash([settings, meta])

    def say(self, words: str) -> Tensor:
        """(M, N) at 16 kHz: the words from the wearer's mouth, from two tenths of a second on."""
        root = cache_root(self.cache_dir)
        path = synthesize_cached(words, self.config.voice, cache_dir=self.cache_dir)
        recipe = MixtureRecipe(
            segments=(Segment(file=str(path.relative_to(root)), role="wearer", start_s=0.2),),
            noise_type=self.config.noise_type, snr_db=self.config.snr_db, split=self.config.split,
            level_dbfs=self.config.level_dbfs, effort_db=0.0,
        )  # fmt: skip
        seed = example_seed(words, seed=self.config.seed)
        return render(recipe, bank=self.bank, noise=self.noise, seed=seed, audio_root=root).audio_MN


class SpokenAdapter(CheckpointAdapter):
    """A checkpoint that hears what text conversations have the user say."""

    def __init__(self, model: CheckpointAdapter, speaker: Speaker) -> None:
        self.__dict__.update(model.__dict__)  # shares the weights in memory
        self.speaker = speaker
        self._identity = {**model.identity, "input": "spoken turns", "speech": speaker.stamp}

    def _prepare(self, example: Example, clip: Clip | None) -> tuple[list[dict[str, Any]], Any]:
        assert clip is None, "spoken turns are made from text conversations"
        return spoken_turns(example.messages, self.speaker)


def spoken_turns(messages: Sequence[Message], speaker: Speaker) -> tuple[list[Message], list[Tensor]]:
    """The conversation with a sound in the place of each turn's words, and the sounds (M, N) in order."""
    turns: list[Message] = []
    sounds: list[Tensor] = []
    for message in messages:
        scene, words = split_turn(message["content"]) if message["role"] == "user" else (message["content"], "")
        if not words:
            turns.append(message)
            continue
        sounds.append(speaker.say(words))
        parts = [{"type": "text", "text": f"{scene}\n"}] if scene else []
        turns.append({"role": "user", "content": [*parts, {"type": "audio"}]})
    return turns, sounds


def split_turn(content: str) -> tuple[str, str]:
    """A user's turn as (camera block, words); either may be empty."""
    if not content.startswith(_OPEN):
        return "", content
    scene, mark, words = content.partition(f"{_CLOSE}\n")
    return (scene + _CLOSE, words) if mark else (content, "")
