"""Scenes of the demo's two benchmarks: held-out wordings by held-out voices, for rooms of the bank's ``eval`` split."""

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from wearllama.data import textgen
from wearllama.data.actions import mute
from wearllama.data.demo_scenes import GAP_S, Scene, Spoken, action_of
from wearllama.data.demo_speakers import Line, Speaker, Wordings, eval_speakers

QUIET = "Quiet Office"
QUIET_SNR_DB = (22.0, 38.0)
NOISY_SNR_DB = (5.0, 18.0)


@dataclass(frozen=True, kw_only=True)
class BenchmarkSizes:
    """Items of each kind in the demo's benchmarks."""

    tool_call: int = 60
    side_talk: int = 60
    closed_book: int = 40
    grounding: int = 24
    switch_pairs: int = 40
    self_talk: int = 40
    consecutive: int = 30
    """Items of VGBench's side-talk scenario: two sentences, one to the assistant."""
    seed: int = 0

    def __post_init__(self) -> None:
        for name, count in asdict(self).items():
            if count < 0:
                raise ValueError(f"benchmark sizes: {name} is {count}, wanted >= 0")
        if self.side_talk and not self.tool_call:
            raise ValueError("benchmark sizes: side_talk needs tool_call, whose clips bystanders repeat")


class Cast:
    """Voices in turn, and sentences of one split's wordings in turn."""

    def __init__(
        self,
        seed: int,
        speakers: Sequence[Speaker] | None,
        *,
        wordings: textgen.Split = "heldout",
        said: set[str] | None = None,
    ) -> None:
        """``said``: what other casts said; a case whose words are in it is worded anew."""
        self.speakers = list(speakers or eval_speakers())
        self.words = Wordings(wordings, seed)
        self.rng = random.Random(f"benchmarks/{seed}")
        self.said = said
        self._turn = 0

    def speaker(self) -> Speaker:
        self._turn += 1
        return self.speakers[self._turn % len(self.speakers)]

    def other(self, speaker: Speaker) -> Speaker:
        return self.rng.choice([other for other in self.speakers if other.voice != speaker.voice])

    def line(self, kind: str, speaker: Speaker | None = None) -> Line:
        return Line(utterance=self.words.next(kind), speaker=speaker or self.speaker())

    def fresh(self, draw: Callable[[], list[Line]]) -> list[Line]:
        """What ``draw`` gives, drawn again while another case has the same words; ValueError after a hundred times."""
        for _ in range(100):
            lines = draw()
            words = textgen.normalise(" ".join(line.utterance.text for line in lines))
            if self.said is None:
                return lines
            if words not in self.said:
                self.said.add(words)
                return lines
        raise ValueError(f"the wordings give no further case, last tried {words!r}: give fewer items or more wordings")


def wearvox_scenes(
    sizes: BenchmarkSizes, noise_types: Sequence[str], *, speakers: Sequence[Speaker] | None = None
) -> list[Scene]:
    """WearVox's four turn-based tasks, by the held-out voices unless others are given.

    The far commands of the side-talk task are clips of the tool task heard from a bystander's place: nothing but the
    sound tells them apart.  The other half of that task is the wearer talking to a person.
    """
    cast = Cast(sizes.seed, speakers)
    scenes = []
    commands = [cast.line("wearvox") for _ in range(sizes.tool_call)]
    for number, line in enumerate(commands):
        # A bystander talks behind every fifth request; the wearer is served all the same.
        behind = commands[(number + 7) % len(commands)] if number % 5 == 0 else None
        behind = behind if behind and behind.speaker.voice != line.speaker.voice else None
        scenes.append(_turn("tool_call", number, line, action_of(line.utterance), background=behind))
    talk = [cast.line("side_command" if number % 2 else "side_chat") for number in range(2 * sizes.side_talk // 5)]
    for number in range(sizes.side_talk):
        kind = number % 5
        if kind < 2:
            # A stride that shares no factor with the usual counts: all tools come up.
            line = commands[(number // 5 * 2 + kind) * 7 % len(commands)]
            role = "bystander" if number % 2 else "partner"
        else:
            line, role = talk[(number // 5 * 2 + kind % 2) % len(talk)], "partner" if kind == 4 else "wearer"
        scenes.append(_turn("non-assistant-directed", number, line, mute(), role=role))
    facts = list(range(textgen.num_facts()))
    cast.rng.shuffle(facts)
    for number in range(sizes.closed_book):
        utterance = cast.words.question(facts[number % len(facts)], number // len(facts))
        line = Line(utterance=utterance, speaker=cast.speaker())
        scenes.append(_turn("closed_book", number, line, action_of(utterance)))
    for number in range(sizes.grounding):
        line = cast.line("grounded")
        scenes.append(_turn("grounding", number, line, action_of(line.utterance)))
    return [_with_noise(scene, noise_types[number % len(noise_types)]) for number, scene in enumerate(scenes)]


def _turn(task: str, number: int, line: Line, action: Any, *, role: str = "wearer", background: Any = None) -> Scene:
    spoken = (Spoken(line=line, role=role),)
    return Scene(
        id=f"wearvox-{task}-{number:04d}",
        task=task,
        dialect="wearvox",
        action=action,
        spoken=spoken,
        background=background,
    )


def _with_noise(scene: Scene, noise_type: str) -> Scene:
    return replace(scene, noise_type=noise_type, snr_db=QUIET_SNR_DB if noise_type == QUIET else NOISY_SNR_DB)


@dataclass(frozen=True, kw_only=True)
class VgItem:
    """One condition of one VGBench item: a scene and the manifest's own fields."""

    scene: Scene
    scenario: str
    fields: dict[str, Any]
    seed_id: str
    """Scenes of one pair share the seed, hence room and device."""
    split: str = "eval"


def vgbench_items(sizes: BenchmarkSizes, *, speakers: Sequence[Speaker] | None = None) -> list[VgItem]:
    """VGBench's three scenarios."""
    cast = Cast(sizes.seed + 1, speakers)
    pairs, commands = switch_pairs(range(sizes.switch_pairs), cast)
    items = pairs + self_talk(range(sizes.self_talk), cast)
    items += consecutive(range(sizes.consecutive), cast, commands, asks=lambda number: number % 4 == 3)
    return [in_quiet(item) for item in items]


def in_quiet(item: VgItem) -> VgItem:
    """The item in a quiet room."""
    return replace(item, scene=_with_noise(item.scene, QUIET))


def switch_pairs(numbers: Iterable[int], cast: Cast) -> tuple[list[VgItem], list[Line]]:
    """Speaker-switch cases of these numbers, three conditions each, the tools in turn; and their commands."""
    items, commands = [], []
    tools = textgen.consequential_tools()
    for number in numbers:
        tool = tools[number % len(tools)]
        first = cast.speakers[(number + number // len(tools)) % len(cast.speakers)]
        second = cast.other(first)

        def draw(tool: str = tool, first: Speaker = first) -> list[Line]:
            words = (cast.words.for_tool(tool, context=True), cast.words.for_tool(tool))
            return [Line(utterance=utterance, speaker=first) for utterance in words]

        context, command = cast.fresh(draw)
        trigger = command.utterance
        own, others = Line(utterance=trigger, speaker=first), Line(utterance=trigger, speaker=second)
        commands.append(own)
        pair = f"switch-{number:04d}"
        # The same silence in both conditions: only who speaks and from where is left.
        conditions = (
            ("same_speaker", own, "wearer", action_of(trigger)),
            ("switch", others, "bystander", mute()),
            ("text_only", own, "wearer", action_of(trigger)),
        )
        for condition, line, role, action in conditions:
            spoken = (
                Spoken(line=context, part="context"),
                Spoken(line=line, role=role, gap_s=GAP_S, part="trigger"),
            )
            heard = condition != "text_only"
            scene = Scene(
                id=f"{pair}-{condition}",
                task="speaker_switch",
                dialect="vgbench",
                action=action,
                spoken=spoken,
                text_only=not heard,
            )
            fields = {
                "condition": condition,
                "pair_id": pair,
                "tool": tool,
                "boundary_s": GAP_S if heard else None,
                "gap_ms": round(GAP_S * 1000) if heard else None,
            }
            items.append(VgItem(scene=scene, scenario="speaker_switch", fields=fields, seed_id=pair))
    return items, commands


def self_talk(numbers: Iterable[int], cast: Cast) -> list[VgItem]:
    """Self-talk items of these numbers, the discourse frames in turn."""
    items = []
    for number in numbers:
        (line,) = cast.fresh(lambda: [cast.line("self_talk")])
        scene = Scene(
            id=f"self-{number:04d}",
            task="self_talk",
            dialect="vgbench",
            action=mute(),
            spoken=(Spoken(line=line, part="monologue"),),
        )
        fields = {"discourse": line.utterance.discourse, "tool": line.utterance.tool}
        items.append(VgItem(scene=scene, scenario="self_talk", fields=fields, seed_id=scene.id))
    return items


def consecutive(
    numbers: Iterable[int], cast: Cast, commands: list[Line], *, asks: Callable[[int], bool]
) -> list[VgItem]:
    """Two sentences of one near speaker: order, and what kind of sentence each is, in balance.

    ``asks(number)`` says whether item ``number`` puts a question to the assistant, or one of ``commands``.
    """
    items = []
    for number in numbers:
        question = asks(number) or not commands
        commands_person = number // 2 % 2 == 0

        def draw(number: int = number, question: bool = question, command: bool = commands_person) -> list[Line]:
            said = cast.line("question") if question else commands[number * 3 % len(commands)]
            return [said, cast.line("side_command" if command else "side_chat", said.speaker)]

        assistant, person = cast.fresh(draw)
        parts = [("assistant", assistant), ("person", person)]
        parts = parts if number % 2 == 0 else parts[::-1]
        spoken = tuple(Spoken(line=line, part=part, gap_s=0.4 * at) for at, (part, line) in enumerate(parts))
        action = action_of(assistant.utterance)
        scene = Scene(id=f"side-{number:04d}", task="side_talk", dialect="vgbench", action=action, spoken=spoken)
        fields: dict[str, Any] = {
            "order": f"{parts[0][0]}_first",
            "content_types": {
                "assistant": "conversation" if question else "tool",
                "person": "tool" if commands_person else "conversation",
            },
            "tool": None if question else assistant.utterance.tool,
        }
        if commands_person:
            fields["person_tool"] = person.utterance.tool
        if question:
            fields["answers"] = list(assistant.utterance.answers)
        items.append(VgItem(scene=scene, scenario="side_talk", fields=fields, seed_id=scene.id))
    return items
