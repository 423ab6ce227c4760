"""Who says what in the demo's data: speakers, the lines each of them reads, and what that costs to synthesise.

A speaker is a voice at one speed and pitch.  Every wording of a split is read, free engines read most of it, and the
slow one (Kokoro) reads as many lines as its budget of seconds allows.
"""

import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from wearllama.data import textgen
from wearllama.data.textgen import Split, Utterance
from wearllama.data.voices import EVAL_VOICES, clip_id, voices_of

SECONDS_PER_WORD = 0.3
SECONDS_PER_CLIP = 0.25
"""About what a clip lasts: enough to keep to a budget before anything is spoken."""


@dataclass(frozen=True, kw_only=True)
class Speaker:
    """A voice at one speed and pitch."""

    voice: str
    speed: float = 1.0
    pitch: float = 1.0

    @property
    def engine(self) -> str:
        return self.voice.partition("/")[0]

    @property
    def name(self) -> str:
        return f"{self.voice}@{self.speed:.2f},{self.pitch:.2f}"


@dataclass(frozen=True, kw_only=True)
class Line:
    """One sentence read by one speaker: one clip."""

    utterance: Utterance
    speaker: Speaker

    @property
    def id(self) -> str:
        """Id of the clip: the same sentence by the same speaker is spoken once."""
        return clip_id(self.utterance.text, self.speaker.voice, self.speaker.speed, self.speaker.pitch)

    @property
    def file(self) -> str:
        """Path of the clip, relative to the data's folder."""
        return f"speech/{self.speaker.voice.replace('/', '_')}/{self.id}.flac"

    @property
    def expected_seconds(self) -> float:
        """Rough duration, before it is spoken."""
        words = len(self.utterance.text.split())
        return (SECONDS_PER_CLIP + SECONDS_PER_WORD * words) / self.speaker.speed


@dataclass(frozen=True, kw_only=True)
class ReadingConfig:
    """How much is read for training."""

    pico_speakers: int = 6
    """Speakers made of the two Pico voices by speed and pitch."""
    flite_speakers: int = 14
    """Speakers made of the four Flite voices by speed and pitch (which moves their formants)."""
    kokoro_speakers: int = 20
    """Kokoro voices, half of them as they are, half blended with another."""
    lines_per_speaker: int = 140
    """Lines of each fast speaker."""
    kokoro_seconds: float = 400.0
    """Budget of expected Kokoro seconds for training."""
    seed: int = 0

    def __post_init__(self) -> None:
        if min(self.pico_speakers, self.flite_speakers, self.kokoro_speakers) < 0 or self.lines_per_speaker < 20:
            raise ValueError(f"reading config: {self}: counts of speakers must be >= 0, lines_per_speaker >= 20")


# Shares of a speaker's lines by kind; commands of both tool sets and their contexts come first.
_SHARES = {
    "consequential": 0.24,
    "wearvox": 0.20,
    "context": 0.10,
    "question": 0.12,
    "grounded": 0.04,
    "self_talk": 0.13,
    "side_command": 0.07,
    "side_chat": 0.05,
    "general": 0.05,
}


def train_speakers(config: ReadingConfig, *, engines: tuple[str, ...]) -> list[Speaker]:
    """Training speakers over the engines that work here; none of them has an evaluation voice."""
    speakers: list[Speaker] = []
    for engine, count, pitches in (
        ("pico", config.pico_speakers, (1.0, 0.85, 1.15)),
        ("flite", config.flite_speakers, (1.0, 0.9, 1.12, 0.84, 1.2)),
    ):
        names = voices_of(engine) if engine in engines else ()
        for number in range(count if names else 0):
            pitch = pitches[number // len(names) % len(pitches)]
            speed = (1.0, 1.12, 0.94)[number % 3]
            speakers.append(Speaker(voice=names[number % len(names)], speed=speed, pitch=pitch))
    if "kokoro" in engines:
        speakers += _kokoro_speakers(config.kokoro_speakers)
    return list(dict.fromkeys(speakers))


def _kokoro_speakers(count: int) -> list[Speaker]:
    """Plain voices and, every other one, blends of two: speakers that the packaged encoder never heard."""
    names = voices_of("kokoro")
    # Spread over the registry's order: both accents and both genders come along.
    chosen = list(dict.fromkeys(names[i * len(names) // count] for i in range(count)))
    speakers = []
    for number, name in enumerate(chosen):
        other = chosen[(number + len(chosen) // 2) % len(chosen)].partition("/")[2]
        voice = f"{name}+{other}" if number % 2 else name
        speakers.append(Speaker(voice=voice, speed=(1.1, 1.2, 1.15)[number % 3]))
    return speakers


def eval_speakers() -> list[Speaker]:
    """The held-out voices."""
    return [Speaker(voice=voice, speed=(1.12, 1.18)[i % 2]) for i, voice in enumerate(EVAL_VOICES)]


class Wordings:
    """Endless sentences by kind that run through all wordings before any comes again."""

    def __init__(self, split: Split, seed: int) -> None:
        self.split = split
        self.rng = random.Random(f"{split}/{seed}")
        self._streams = {kind: self._stream(kind) for kind in _SHARES}

    def next(self, kind: str) -> Utterance:
        """The next sentence of a kind."""
        return next(self._streams[kind])

    def for_tool(self, tool: str, *, context: bool = False) -> Utterance:
        """The next command (or context) of one tool."""
        key = f"{'context' if context else 'command'}/{tool}"
        if key not in self._streams:
            self._streams[key] = self._tool_stream(tool, context)
        return next(self._streams[key])

    def question(self, fact: int, index: int) -> Utterance:
        """A given fact in a given wording."""
        return textgen.question(fact, self.split, self.rng, index=index)

    def _tool_stream(self, tool: str, context: bool) -> Iterator[Utterance]:
        order = list(range(len(textgen.contexts(tool, self.split) if context else textgen.templates(tool, self.split))))
        make = textgen.context if context else textgen.command
        while True:
            self.rng.shuffle(order)
            for index in order:
                yield make(tool, self.split, self.rng, index)

    def _stream(self, kind: str) -> Iterator[Utterance]:
        number = 0
        rng, split = self.rng, self.split
        facts = list(range(textgen.num_facts()))
        rng.shuffle(facts)
        tools = {"wearvox": textgen.wearvox_tools(), "consequential": textgen.consequential_tools()}
        tools["context"] = tools["consequential"]
        cycle = textgen.consequential_tools()
        while True:
            if kind in tools:
                yield self.for_tool(tools[kind][number % len(tools[kind])], context=kind == "context")
            elif kind == "question":
                yield self.question(facts[number % len(facts)], number // len(facts))
            elif kind == "grounded":
                yield textgen.grounded_question(split, rng, index=number)
            elif kind == "self_talk":
                count = len(textgen.DISCOURSE)
                discourse, tool = textgen.DISCOURSE[number % count], cycle[(number // count) % len(cycle)]
                yield textgen.self_talk(discourse, split, rng, tool=tool, index=number // count)
            elif kind == "side_command":
                yield textgen.side_command(split, rng, tool=cycle[number % len(cycle)], index=number)
            elif kind == "side_chat":
                yield textgen.side_chat(split, rng, index=number)
            else:
                yield textgen.general(rng)
            number += 1


def train_lines(config: ReadingConfig, *, engines: tuple[str, ...]) -> list[Line]:
    """Every clip that training reads, in a fixed order: fast speakers first, then Kokoro's within its budget."""
    wordings = Wordings("train", config.seed)
    speakers = train_speakers(config, engines=engines)
    lines: dict[str, Line] = {}
    for speaker in (s for s in speakers if s.engine != "kokoro"):
        for kind, share in _SHARES.items():
            for _ in range(max(1, round(share * config.lines_per_speaker))):
                line = Line(utterance=wordings.next(kind), speaker=speaker)
                lines[line.id] = line
    slow = [s for s in speakers if s.engine == "kokoro"]
    kinds = [kind for kind, share in _SHARES.items() for _ in range(round(share * 50))]
    wordings.rng.shuffle(kinds)
    seconds, number = 0.0, 0
    while slow and seconds < config.kokoro_seconds:
        # One line of every voice in turn, so that a smaller budget still has all voices.
        kind = kinds[number // len(slow) % len(kinds)]
        line = Line(utterance=wordings.next(kind), speaker=slow[number % len(slow)])
        number += 1
        if line.id not in lines:
            lines[line.id] = line
            seconds += line.expected_seconds
    return list(lines.values())


class Pool:
    """Lines by kind, tool and speaker, drawn round robin; Kokoro's lines come ``boost`` times as often."""

    def __init__(self, lines: list[Line], seed: int, *, boost: int = 2) -> None:
        self.rng = random.Random(f"pool/{seed}")
        self._by_key: dict[tuple[str, ...], list[Line]] = defaultdict(list)
        self._next: dict[tuple[str, ...], int] = {}
        for line in lines:
            kind, tool, name = line.utterance.kind, line.utterance.tool or "", line.speaker.name
            for key in ((kind,), (kind, tool), (kind, tool, name), (kind, "", name)):
                self._by_key[key] += [line] * (boost if line.speaker.engine == "kokoro" else 1)

    def draw(self, kind: str, *, tool: str = "", speaker: Speaker | None = None) -> Line | None:
        """The next line of a kind (of a tool, of a speaker); None where there is none."""
        key: tuple[str, ...] = (kind, tool, speaker.name) if speaker else (kind, tool) if tool else (kind,)
        lines = self._by_key.get(key)
        if not lines:
            return None
        at = self._next.get(key, len(lines))
        if at >= len(lines):
            self.rng.shuffle(lines)
            at = 0
        self._next[key] = at + 1
        return lines[at]

    def must(self, kind: str, *, tool: str = "") -> Line:
        """Like :meth:`draw` where some line is known to exist."""
        line = self.draw(kind, tool=tool)
        assert line is not None, f"no line of kind {kind!r}, tool {tool!r}"
        return line
