"""Benchmarks under evaluation conditions: the one place where a recording is changed between file and model.

A model under a condition is another system: the condition and what it draws from are part of its identity, hence of the
key of every prediction, and its results lie in a folder of their own.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from wearllama.audio.array import ArrayGeometry
from wearllama.audio.beamforming import Beam, design_beam, select_channels
from wearllama.data.manifest import Clip, Example, example_seed
from wearllama.data.prompts import content_hash
from wearllama.evaluation.adapters import CheckpointAdapter
from wearllama.evaluation.mono import MonoAdapter
from wearllama.simulation.conditions import Condition
from wearllama.simulation.noise import NoiseBank
from wearllama.simulation.scene_file import NAME, SceneFile


@dataclass(kw_only=True)
class ConditionSettings:
    """What conditions draw from."""

    noise: list[str] = field(default_factory=list)
    """Folders of noise recordings; what they lack is synthesised."""
    speech: list[str] = field(default_factory=list)
    """Folders of speech for conversation and whispers."""
    seed: int = 0
    """Other seeds give other noises and other rooms."""

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise ValueError(f"conditions.seed is {self.seed}, wanted 0 or more")


class Alteration:
    """What a condition makes of the recordings of one benchmark."""

    def __init__(self, condition: Condition, settings: ConditionSettings, root: str | Path) -> None:
        """``root`` is the benchmark's folder, where a condition of scenes finds how they were rendered."""
        self.condition, self.settings = condition, settings
        self._noise = NoiseBank(settings.noise, speech=settings.speech)
        self._scenes = SceneFile(Path(root) / NAME) if condition.is_scene else None

    @property
    def identity(self) -> dict[str, str]:
        """The condition and a hash of what it draws from."""
        described: list[Any] = [self.settings.seed, noise_listing(self._noise)]
        if self._scenes is not None:
            described.append(self._scenes.stamp)
        return {"condition": self.condition.name, "condition_data": content_hash(described)}

    def __call__(self, example: Example, clip: Clip, array: ArrayGeometry, beam: Beam) -> Clip:
        key = condition_key(example)
        if self._scenes is not None:
            seed = example_seed(key, seed=self.settings.seed)
            return Clip(self._scenes.render(example.id, self.condition, seed).audio_MN, None)
        return Clip(*self.condition.apply(
            clip.audio_MN, clip.beam_N, array=array, beam=beam, noise=self._noise, key=key, seed=self.settings.seed
        ))  # fmt: skip


class ConditionedAdapter(CheckpointAdapter):
    """A checkpoint that hears every recording under a condition."""

    def __init__(
        self, model: CheckpointAdapter, condition: Condition, settings: ConditionSettings, root: str | Path
    ) -> None:
        self.__dict__.update(model.__dict__)  # shares the weights in memory
        self._alter = Alteration(condition, settings, root)
        self._identity = {**model.identity, **self._alter.identity}

    def hear(self, example: Example, clip: Clip | None) -> Clip | None:
        return None if clip is None else self._alter(example, clip, self.processor.array, self.processor.beam)


def mono_under(
    model: MonoAdapter, condition: Condition, settings: ConditionSettings, root: str | Path, array: ArrayGeometry
) -> MonoAdapter:
    """A single-channel model that hears every recording under a condition: the beam of what the array then hears."""
    alter, beam = Alteration(condition, settings, root), design_beam(array)

    def heard(example: Example, clip: Clip) -> Clip:
        altered = alter(example, clip, array, beam)
        if altered.beam_N is not None or altered.audio_MN.shape[0] == 1:
            return altered
        return Clip(altered.audio_MN, select_channels(altered.audio_MN, array, beam)[1])

    return model.hearing(heard, alter.identity)


def condition_key(example: Example) -> str:
    """What a condition's draws depend on: the item, or its pair, both of whose members must be treated alike."""
    item = example.metadata.get("item") or {}
    return str(item.get("pair_id") or example.id)


def under_condition(examples: Sequence[Example], condition: Condition) -> list[Example]:
    """The examples with the durations that their recordings have under the condition."""
    return [
        replace(example, metadata={**example.metadata, "seconds": condition.seconds(example.seconds)})
        if example.audio is not None
        else example
        for example in examples
    ]


def condition_folder(folder: Path, condition: Condition | None) -> Path:
    """Where a model's results under a condition lie."""
    return folder if condition is None else folder / "conditions" / condition.name.replace(":", "_")


def noise_listing(noise: NoiseBank) -> list[tuple[str, str, int]]:
    """What a noise bank draws from: kind, file name and size, in order."""
    files = [(kind, path) for kind, paths in noise.files.items() for path in paths]
    files += [(name, path) for name, paths in noise.speakers.items() for path in paths]
    return sorted((kind, path.name, path.stat().st_size) for kind, path in files)
