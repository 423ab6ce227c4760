"""Training's scenes of the demo.

Everything a tiny model needs to tell apart comes in both colours with the SAME clips: commands near (act) and far
(mute), person-directed and assistant-directed words of one near voice, framed and plain command cores.
"""

import random
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

from wearllama.data import textgen
from wearllama.data.actions import Action, Dialect, mute
from wearllama.data.demo_scenes import GAP_S, Scene, Spoken, action_of
from wearllama.data.demo_speakers import Line, Speaker, Wordings


@dataclass(frozen=True, kw_only=True)
class TrainRows:
    """How many rows of each kind training gets."""

    tool_call: int = 1500
    far_command: int = 400
    wearer_to_person: int = 350
    far_chat: int = 100
    noise_only: int = 40
    closed_book: int = 320
    far_question: int = 60
    grounding: int = 150
    trigger_near: int = 500
    trigger_far: int = 200
    same_speaker: int = 700
    switch: int = 400
    text_only: int = 200
    self_talk: int = 420
    side_talk: int = 250
    asr: int = 900

    def __post_init__(self) -> None:
        for name, count in asdict(self).items():
            if count < 0:
                raise ValueError(f"train rows: {name} is {count}, wanted >= 0")


class Lines(Protocol):
    """Where sentences come from, kind by kind."""

    def draw(self, kind: str, *, tool: str = "", speaker: Speaker | None = None) -> Line | None: ...

    def must(self, kind: str, *, tool: str = "") -> Line: ...


class WrittenLines:
    """Sentences that nobody reads: endless ones, for rows of text alone."""

    def __init__(self, seed: int) -> None:
        self._wordings = Wordings("train", seed)
        self._nobody = Speaker(voice="none")

    def draw(self, kind: str, *, tool: str = "", speaker: Speaker | None = None) -> Line:
        """The next sentence of a kind; commands and contexts are of ``tool``."""
        if kind in ("command", "context"):
            tool = tool or self._wordings.rng.choice(textgen.consequential_tools())
            utterance = self._wordings.for_tool(tool, context=kind == "context")
        else:
            utterance = self._wordings.next(kind)
        return Line(utterance=utterance, speaker=self._nobody)

    def must(self, kind: str, *, tool: str = "") -> Line:
        return self.draw(kind, tool=tool)


TEXT_SHARES = {
    "tool_call": 0.24,
    "text_only": 0.30,
    "closed_book": 0.14,
    "grounding": 0.08,
    "self_talk": 0.10,
    "side_talk": 0.05,
    "wearer_to_person": 0.09,
}
"""Kinds of the rows that a decoder from scratch reads before it hears anything."""


def written_scenes(count: int, *, seed: int) -> list[Scene]:
    """About ``count`` scenes of text alone, of fresh sentences in training's wordings."""
    planner = TrainPlanner(WrittenLines(seed), chatter=[], seed=seed)
    rows = TrainRows(**dict.fromkeys(asdict(TrainRows()), 0) | {k: round(s * count) for k, s in TEXT_SHARES.items()})
    return [replace(scene, id=f"written-{scene.id}", text_only=True, background=None) for scene in planner.scenes(rows)]


class TrainPlanner:
    """Draws training's scenes from lines."""

    def __init__(self, lines: Lines, *, chatter: list[str], seed: int) -> None:
        self.pool = lines
        self.rng = random.Random(f"scenes/{seed}")
        self.chatter = chatter
        self._tool = {"wearvox": 0, "consequential": 0}

    def scenes(self, rows: TrainRows) -> list[Scene]:
        """All scenes, by kind in order; ids name the kind."""
        scenes: list[Scene] = []
        for name, count in asdict(rows).items():
            make: Callable[[str], Scene] = getattr(self, f"_{name}")
            scenes += [make(f"{name}-{number:05d}") for number in range(count)]
        return scenes

    def _next_tool(self, which: str) -> str:
        names = textgen.wearvox_tools() if which == "wearvox" else textgen.consequential_tools()
        self._tool[which] += 1
        return names[self._tool[which] % len(names)]

    def _far(self) -> str:
        return self.rng.choice(("partner", "bystander"))

    def _behind(self, probability: float) -> dict[str, Any]:
        """Now and then somebody talks behind the wearer's words: recorded chatter, or any other line."""
        if self.rng.random() >= probability:
            return {}
        if self.chatter and self.rng.random() < 0.5:
            return {"chatter": self.rng.choice(self.chatter)}
        return {"background": self.pool.must(self.rng.choice(("command", "side_chat", "general", "question")))}

    def _command(self, which: str) -> Line:
        return self.pool.must("command", tool=self._next_tool(which))

    def _one(self, id: str, task: str, line: Line, action: Action, *, dialect: Dialect, role: str = "wearer") -> Scene:
        behind = self._behind(0.25) if role == "wearer" else {}
        return Scene(id=id, task=task, dialect=dialect, action=action, spoken=(Spoken(line=line, role=role),), **behind)

    # WearVox's tasks
    def _tool_call(self, id: str) -> Scene:
        line = self._command("wearvox")
        return self._one(id, "tool_call", line, action_of(line.utterance), dialect="wearvox")

    def _far_command(self, id: str) -> Scene:
        line = self._command("wearvox" if self.rng.random() < 0.6 else "consequential")
        return self._one(id, "non-assistant-directed", line, mute(), dialect="wearvox", role=self._far())

    def _wearer_to_person(self, id: str) -> Scene:
        line = self.pool.must("side_chat" if self.rng.random() < 0.5 else "side_command")
        dialects: tuple[Dialect, ...] = ("wearvox", "wearvox", "vgbench")
        return self._one(id, "non-assistant-directed", line, mute(), dialect=self.rng.choice(dialects))

    def _far_chat(self, id: str) -> Scene:
        kind = self.rng.choice(("side_chat", "side_command", "general"))
        line = self.pool.must(kind)
        return self._one(id, "non-assistant-directed", line, mute(), dialect="wearvox", role=self._far())

    def _noise_only(self, id: str) -> Scene:
        chatter = self.rng.choice(self.chatter) if self.chatter and self.rng.random() < 0.5 else ""
        dialects: tuple[Dialect, ...] = ("wearvox", "vgbench")
        dialect = self.rng.choice(dialects)
        return Scene(id=id, task="non-assistant-directed", dialect=dialect, action=mute(), chatter=chatter)

    def _closed_book(self, id: str) -> Scene:
        line = self.pool.must("question")
        return self._one(id, "closed_book", line, action_of(line.utterance), dialect="wearvox")

    def _far_question(self, id: str) -> Scene:
        line = self.pool.must("question")
        return self._one(id, "non-assistant-directed", line, mute(), dialect="wearvox", role=self._far())

    def _grounding(self, id: str) -> Scene:
        line = self.pool.must("grounded")
        return self._one(id, "grounding", line, action_of(line.utterance), dialect="wearvox")

    # VGBench's scenarios
    def _trigger_near(self, id: str) -> Scene:
        line = self._command("consequential")
        return self._one(id, "speaker_switch", line, action_of(line.utterance), dialect="vgbench")

    def _trigger_far(self, id: str) -> Scene:
        line = self._command("consequential")
        return self._one(id, "speaker_switch", line, mute(), dialect="vgbench", role=self._far())

    def _pair(self) -> tuple[Line, Line]:
        """A context and a command of one tool by one speaker, where he has read both."""
        for _ in range(20):
            trigger = self._command("consequential")
            tool_name = trigger.utterance.tool or ""
            for wanted in (tool_name, ""):
                context = self.pool.draw("context", tool=wanted, speaker=trigger.speaker)
                if context is not None:
                    return context, trigger
        raise ValueError("no speaker has read both a context and a command; give lines_per_speaker more lines")

    def _gap(self) -> float:
        """Silence before the trigger: the boundary's 600 ms and none occur alike inside both labels."""
        return GAP_S if self.rng.random() < 0.6 else round(self.rng.uniform(0.0, 0.4), 3)

    def _same_speaker(self, id: str) -> Scene:
        context, trigger = self._pair()
        spoken = (Spoken(line=context, part="context"), Spoken(line=trigger, gap_s=self._gap(), part="trigger"))
        return Scene(
            id=id,
            task="speaker_switch",
            dialect="vgbench",
            action=action_of(trigger.utterance),
            spoken=spoken,
            **self._behind(0.1),
        )

    def _switch(self, id: str) -> Scene:
        """Another person says the trigger from afar; in a fifth of the rows it is the wearer's own voice from afar."""
        context, trigger = self._pair()
        if self.rng.random() < 0.8:
            other = self._command("consequential")
            for _ in range(20):
                if other.speaker.voice != context.speaker.voice:
                    break
                other = self._command("consequential")
            trigger = other
        far = Spoken(line=trigger, role=self._far(), gap_s=self._gap(), part="trigger")
        spoken = (Spoken(line=context, part="context"), far)
        return Scene(id=id, task="speaker_switch", dialect="vgbench", action=mute(), spoken=spoken)

    def _text_only(self, id: str) -> Scene:
        context, trigger = self._pair()
        return Scene(
            id=id,
            task="speaker_switch",
            dialect="vgbench",
            action=action_of(trigger.utterance),
            spoken=(Spoken(line=context), Spoken(line=trigger)),
            text_only=True,
        )

    def _self_talk(self, id: str) -> Scene:
        return self._one(id, "self_talk", self.pool.must("self_talk"), mute(), dialect="vgbench")

    def _side_talk(self, id: str) -> Scene:
        """One near speaker, one sentence to the assistant and one to a person; only the first counts."""
        assistant = self._command("consequential") if self.rng.random() < 0.75 else self.pool.must("question")
        kinds = ["side_command", "side_chat"]
        self.rng.shuffle(kinds)
        person = next(filter(None, (self.pool.draw(kind, speaker=assistant.speaker) for kind in kinds)), None)
        person = person or self.pool.must(kinds[0])
        first, second = (assistant, person) if self.rng.random() < 0.5 else (person, assistant)
        gap = round(self.rng.uniform(0.2, 0.7), 3)
        spoken = (Spoken(line=first), Spoken(line=second, gap_s=gap))
        action = action_of(assistant.utterance)
        return Scene(id=id, task="side_talk", dialect="vgbench", action=action, spoken=spoken)

    def _asr(self, id: str) -> Scene:
        kinds = ("general", "command", "side_command", "context", "self_talk", "question")
        line = self.pool.must(self.rng.choice(kinds))
        role = "wearer" if self.rng.random() < 0.8 else self._far()
        return Scene(id=id, task="asr", dialect="asr", action=None, spoken=(Spoken(line=line, role=role),))
