"""Scenes of the demo: who speaks where and when, and what the assistant should do.

A scene becomes a mixture recipe once the clips are spoken and their durations known.
"""

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import soundfile

from wearllama.data.actions import Action, Call, Dialect, answer, format_action, tool
from wearllama.data.demo_speakers import Line
from wearllama.data.manifest import Example
from wearllama.data.prompts import Message, PromptSet, build_messages
from wearllama.data.textgen import Utterance
from wearllama.data.tools import CONSEQUENTIAL_TOOLS, WEARVOX_TOOLS
from wearllama.simulation.mixing import MixtureRecipe, Segment

GAP_S = 0.6
"""Silence of a speaker-switch boundary."""
LEAD_S = (0.1, 0.3)
TAIL_S = 0.3


@dataclass(frozen=True, kw_only=True)
class Spoken:
    """One clip in a scene."""

    line: Line
    role: str = "wearer"
    """Where it comes from: wearer (near), partner or bystander (far)."""
    gap_s: float = 0.0
    """Silence between the part before it and this one."""
    part: str = ""
    """What it is in the benchmark's terms: context, trigger, assistant, person, monologue."""


@dataclass(frozen=True, kw_only=True)
class Scene:
    """One example before it has sound."""

    id: str
    task: str
    dialect: Dialect | Literal["asr"]
    """``wearvox`` or ``vgbench``: the prompt and the form of the target; ``asr`` for transcription."""
    action: Action | None
    """What the assistant should do; None for transcription."""
    spoken: tuple[Spoken, ...] = ()
    background: Line | None = None
    """A bystander who talks at the same time."""
    chatter: str = ""
    """File of real speech that a bystander says at the same time instead, relative to the data's folder."""
    text_only: bool = False
    noise_type: str | None = None
    snr_db: tuple[float, float] = (0.0, 40.0)
    metadata: dict[str, Any] = field(default_factory=dict)

    @property
    def words(self) -> str:
        """All that is said in the foreground."""
        return " ".join(part.line.utterance.text for part in self.spoken)

    @property
    def lines(self) -> list[Line]:
        """Clips that the scene needs."""
        return [part.line for part in self.spoken] + ([self.background] if self.background else [])


def action_of(utterance: Utterance) -> Action:
    """What a sentence asks for when it is meant for the assistant."""
    if utterance.answers:
        return answer(utterance.answers[0])
    assert utterance.kind == "command" and utterance.tool, utterance
    return tool(Call(utterance.tool, dict(utterance.arguments)))


def scene_messages(scene: Scene, prompts: PromptSet) -> list[Message]:
    """The chat of a scene: the same system prompt for requests, side-talk and self-talk of a dialect."""
    tools = {"wearvox": WEARVOX_TOOLS, "vgbench": CONSEQUENTIAL_TOOLS, "asr": ()}[scene.dialect]
    reference = next((part.line.utterance.reference for part in scene.spoken if part.line.utterance.reference), "")
    return build_messages(
        system=prompts.system(scene.dialect, tools),
        reference=prompts.reference(reference) if reference else "",
        user=scene.words if scene.text_only else None,
    )


def scene_target(scene: Scene) -> str:
    """What the model should say."""
    if scene.action is None:
        return scene.words
    assert scene.dialect != "asr", "a transcription asks for no action"
    return format_action(scene.action, scene.dialect)


def timeline(scene: Scene, seconds: Mapping[str, float], rng: random.Random) -> list[tuple[float, float]]:
    """Start and end of each foreground clip, given the clips' durations by file."""
    spans, at = [], rng.uniform(*LEAD_S)
    for part in scene.spoken:
        at += part.gap_s
        end = at + seconds[part.line.file]
        spans.append((round(at, 4), round(end, 4)))
        at = end
    return spans


def scene_recipe(
    scene: Scene, seconds: Mapping[str, float], *, split: str, level_dbfs: tuple[float, float]
) -> tuple[MixtureRecipe, float]:
    """The mixture recipe of a scene, and its length in seconds."""
    rng = random.Random(scene.id)
    spans = timeline(scene, seconds, rng)
    segments = [
        Segment(file=part.line.file, role=part.role, start_s=start)
        for part, (start, _) in zip(scene.spoken, spans, strict=True)
    ]
    end = max([stop for _, stop in spans], default=rng.uniform(1.0, 2.5))
    sidetalk = []
    if scene.background is not None or scene.chatter:
        file = scene.background.file if scene.background else scene.chatter
        start = rng.uniform(0.0, max(0.05, end - min(seconds[file], end)))
        sidetalk.append(Segment(file=file, role="bystander", start_s=round(start, 4)))
        # Whoever talks behind the wearer may be the last to finish.
        end = max(end, start + seconds[file])
    total = round(end + TAIL_S, 4)
    recipe = MixtureRecipe(
        segments=tuple(segments),
        sidetalk=tuple(sidetalk),
        noise_type=scene.noise_type,
        snr_db=scene.snr_db,
        level_dbfs=level_dbfs,
        split=split,
        duration_s=total,
    )
    return recipe, total


def to_example(
    scene: Scene, seconds: Mapping[str, float], prompts: PromptSet, *, level_dbfs: tuple[float, float]
) -> Example:
    """A training row: a recipe that is rendered anew in every epoch, or words alone."""
    metadata = {
        "dialect": "vgbench" if scene.dialect == "vgbench" else "wearvox",
        "voices": [] if scene.text_only else sorted({line.speaker.voice for line in scene.lines}),
        "template": [part.line.utterance.template_id for part in scene.spoken],
        "rooms": "train",
        **scene.metadata,
    }
    audio = None
    if not scene.text_only:
        recipe, metadata["seconds"] = scene_recipe(scene, seconds, split="train", level_dbfs=level_dbfs)
        audio = {"mixture": recipe.to_dict()}
        metadata |= {"transcript": scene.words} if scene.words else {}
    return Example(
        id=scene.id,
        task=scene.task,
        split="train",
        messages=scene_messages(scene, prompts),
        target=scene_target(scene),
        audio=audio,
        metadata=metadata,
    )


def clip_seconds(root: Path, files: Iterable[str]) -> dict[str, float]:
    """Durations of clips under ``root``, by file."""
    durations = {}
    for file in files:
        info = soundfile.info(str(root / file))
        durations[file] = info.frames / info.samplerate
    return durations
