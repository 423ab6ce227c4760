"""The published layout from text questions: what is said, by whom, and under which of the 26 fine conditions.

Six speakers are voices; five linguistic conditions change the words; pitch, tempo and thirteen of audio quality change
the recording through the shared conditions.  All parameters are ours, since none are published; they stand in
``made.json`` beside the data, and which condition each file is under in ``conditions.jsonl``.
"""

import csv
import io
import json
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm

from wearllama.atomic import write_json, write_text
from wearllama.audio.array import load_array
from wearllama.audio.beamforming import design_beam
from wearllama.data.manifest import example_seed
from wearllama.data.prompts import content_hash
from wearllama.data.verbalise import verbalise
from wearllama.data.voices import get_voice, synthesize, write_clip
from wearllama.evaluation.voxeval.layout import CONDITIONS as CONDITION_FILE
from wearllama.evaluation.voxeval.layout import (
    COT_SHOTS,
    COT_SUBJECTS,
    LETTERS,
    SETTINGS,
    SHOTS,
    TEST,
    Item,
)
from wearllama.evaluation.voxeval.linguistic import STYLES
from wearllama.evaluation.voxeval.questions import Written
from wearllama.simulation.conditions import parse_conditions
from wearllama.simulation.noise import NoiseBank

MADE = "made.json"
INSTRUCTION = "Please explain your reasoning step by step."
_LINGUISTIC = "alloy_linguistic_variation"


def _voices() -> dict[str, str]:
    return {
        "alloy": "kokoro/af_sarah", "echo": "kokoro/am_michael", "fable": "kokoro/bm_george", "nova": "kokoro/bf_emma",
        "onyx": "kokoro/am_fenrir", "shimmer": "kokoro/af_bella",
    }  # fmt: skip


def _recorded() -> dict[str, tuple[str, ...]]:
    return {
        "alloy_pitch": ("pitch:-5", "pitch:-3", "pitch:3", "pitch:5"),
        "alloy_tempo": ("tempo:0.5", "tempo:0.75", "tempo:1.5", "tempo:2"),
        "alloy_noise": ("gaussian_noise:10", "coloured_noise:10", "background_music:10", "background_sounds:10"),
        "alloy_env_acoustics": (
            "reverberation:0.6", "low_pass:1000", "high_pass:1000", "band_pass:1000", "aliasing:8000", "bit_crush:6",
            "gain:-10", "clipping:12", "equaliser:12",
        ),
    }  # fmt: skip


@dataclass(kw_only=True)
class BuildConfig:
    """What is made."""

    settings: tuple[str, ...] = ("alloy",)
    """Of the eleven."""
    subjects: tuple[str, ...] = ()
    """All by default."""
    limit: int | None = None
    """Only the first so many questions of each subject."""
    max_characters: int | None = None
    """Leave out questions that are longer as they are said (15 characters take about a second)."""
    shots: int = 0
    """So many questions of each subject become examples instead, its last ones."""
    voices: dict[str, str] = field(default_factory=_voices)
    """Voice of each speaker; the altered settings are alloy's."""
    recorded: dict[str, tuple[str, ...]] = field(default_factory=_recorded)
    """Conditions of recordings by setting; each question gets one of them, in turn."""
    every: dict[str, int] = field(default_factory=lambda: dict(zip(STYLES, (6, 3, 8, 8, 3), strict=True)))
    """Linguistic conditions: about one change in so many words."""
    noise: tuple[str, ...] = ()
    """Folders of noise recordings; what they lack is synthesised."""
    seed: int = 0

    def __post_init__(self) -> None:
        unknown = sorted(set(self.settings) - set(SETTINGS))
        if unknown or not self.settings:
            raise ValueError(
                f"build.settings {list(self.settings)}: unknown {unknown}, wanted some of {list(SETTINGS)}"
            )
        for voice in self.voices.values():
            get_voice(voice)
        for names in self.recorded.values():
            parse_conditions(names)
        if set(self.every) != set(STYLES) or min(self.every.values()) < 1:
            raise ValueError(f"build.every is {self.every}, wanted a number of 1 or more for each of {list(STYLES)}")
        if self.shots < 0 or (self.limit is not None and self.limit < 1):
            raise ValueError(f"build.shots {self.shots} or build.limit {self.limit} is too small")
        if self.max_characters is not None and self.max_characters < 1:
            raise ValueError(f"build.max_characters is {self.max_characters}, wanted 1 or more")


@dataclass(frozen=True, kw_only=True)
class Line:
    """One file to make."""

    path: Path
    """Below the output folder."""
    words: str
    voice: str
    condition: str = ""
    """Of recordings; "" for none."""
    fine: str = ""
    """The fine condition, for the table beside a setting."""


def spoken_question(item: Item, style: str = "", rng: random.Random | None = None, every: int = 6) -> str:
    """A question as it is said, options included; a linguistic style changes the question, not the letters."""
    question = verbalise(item.question)
    if style:
        assert rng is not None
        question = STYLES[style](question, rng, every)
    question += "" if question.endswith((".", "?", "!", ":")) else "."
    options = " ".join(
        f"Option {letter}: {verbalise(option).rstrip('.')}."
        for letter, option in zip(LETTERS, item.options, strict=True)
    )
    return f"{question} Please choose from A, B, C and D. {options}"


def spoken_answer(item: Item) -> str:
    """The answer of an example."""
    return f"The answer is {item.key}: {verbalise(item.options[LETTERS.index(item.key)]).rstrip('.')}."


def plan(questions: Mapping[str, Sequence[Written]], config: BuildConfig) -> list[Line]:
    """Every file of every setting, in order."""
    chosen = choose_questions(questions, config)
    return [line for setting in config.settings for line in _plan_setting(setting, chosen, config)]


def build(questions: Mapping[str, Sequence[Written]], config: BuildConfig, out: Path, *, progress: bool = True) -> int:
    """Make what is missing in ``out``; returns the number of files made.

    ValueError where ``out`` was made with other parameters or questions.
    """
    write_tables(questions, config, out)
    lines = plan(questions, config)
    for setting in config.settings:
        told = [
            {"file": f"{line.path.parent.name}/{line.path.name}", "condition": line.fine}
            for line in lines
            if line.fine and line.path.parts[:2] == (TEST, setting)
        ]
        if told:
            write_text(out / TEST / setting / CONDITION_FILE, "".join(json.dumps(row) + "\n" for row in told))
    todo = [line for line in lines if not (out / line.path).is_file()]
    recorder = Recorder(config)
    for line in tqdm(todo, desc="speak", unit="file", disable=not progress):
        write_clip(out / line.path, recorder(line))
    return len(todo)


def write_tables(questions: Mapping[str, Sequence[Written]], config: BuildConfig, out: Path) -> None:
    """Write the questions, the examples and ``made.json``; ValueError as for :func:`build`."""
    chosen = choose_questions(questions, config)
    told = content_hash([[name, [written.item for written in items]] for name, items in chosen.items()])
    _check_made(out / MADE, {"by": "tools/build_voxeval.py, parameters ours", **asdict(config), "questions": told})
    for name, items in chosen.items():
        test, shots = _divide(items, config)
        write_text(out / TEST / f"{name}.csv", _table([written.item for written in test]))
        if shots:
            write_text(out / SHOTS / f"{name}.csv", _table([written.item for written in shots]))


class Recorder:
    """Speaks a line and brings it under its condition; (N,) at 16 kHz, below full scale."""

    def __init__(self, config: BuildConfig) -> None:
        self.config = config
        self._noise = NoiseBank(list(config.noise))
        self._array = load_array("glasses5")  # recordings of one channel take nothing of it
        self._beam = design_beam(self._array)

    def __call__(self, line: Line) -> np.ndarray:
        audio_N = synthesize(line.words, line.voice)
        if line.condition:
            (condition,) = parse_conditions(line.condition)
            assert condition is not None
            audio_MN, _ = condition.apply(
                torch.from_numpy(audio_N)[None], None, array=self._array, beam=self._beam, noise=self._noise,
                key=str(line.path), seed=self.config.seed,
            )  # fmt: skip
            audio_N = audio_MN[0].numpy()
        return audio_N / max(1.0, float(np.abs(audio_N).max()))


def choose_questions(questions: Mapping[str, Sequence[Written]], config: BuildConfig) -> dict[str, list[Written]]:
    """Questions by subject that ``subjects`` and ``max_characters`` let in; ValueError where too few are left."""
    unknown = sorted(set(config.subjects) - set(questions))
    if unknown:
        raise ValueError(f"build.subjects: {unknown} are not in the source; it has {sorted(questions)}")
    names = [name for name in sorted(questions) if not config.subjects or name in config.subjects]
    longest = math.inf if config.max_characters is None else config.max_characters
    fitting = {name: [w for w in questions[name] if len(spoken_question(w.item)) <= longest] for name in names}
    chosen = {name: items for name, items in fitting.items() if items or config.max_characters is None}
    if not chosen:
        raise ValueError(f"build.max_characters={config.max_characters} leaves no question")
    short = [name for name, items in chosen.items() if len(items) <= config.shots]
    if short:
        raise ValueError(f"build.shots={config.shots} leaves no question of {short}")
    return chosen


def _divide(items: Sequence[Written], config: BuildConfig) -> tuple[list[Written], list[Written]]:
    """Questions to ask, and examples."""
    count = len(items) - config.shots
    return list(items[:count])[: config.limit], list(items[count:])


def _plan_setting(setting: str, chosen: Mapping[str, Sequence[Written]], config: BuildConfig) -> Iterator[Line]:
    voice = config.voices["alloy" if setting.startswith("alloy") else setting]
    turn = 0
    for subject, items in chosen.items():
        test, shots = _divide(items, config)
        for number, written in enumerate(test):
            path = Path(TEST, setting, subject, f"{number:08d}_question.flac")
            yield _question(path, written.item, setting, voice, turn, config)
            turn += 1
        for number, written in enumerate(shots):
            folder = Path(SHOTS, setting, subject)
            yield _question(folder / f"{number:08d}_question.flac", written.item, setting, voice, number, config)
            yield Line(path=folder / f"{number:08d}_answer.flac", words=spoken_answer(written.item), voice=voice)
        if subject in COT_SUBJECTS:
            folder = Path(COT_SHOTS, setting, subject)
            for number, written in enumerate(w for w in shots if w.worked):
                yield Line(
                    path=folder / f"{number:08d}_question.flac", words=spoken_question(written.item), voice=voice
                )
                yield Line(path=folder / f"{number:08d}_CoT_answer.flac", words=verbalise(written.worked), voice=voice)
    if any(subject in COT_SUBJECTS for subject in chosen):
        yield Line(path=Path(COT_SHOTS, setting, "instruction.flac"), words=INSTRUCTION, voice=voice)


def _question(path: Path, item: Item, setting: str, voice: str, turn: int, config: BuildConfig) -> Line:
    if setting == _LINGUISTIC:
        style = list(STYLES)[turn % len(STYLES)]
        rng = random.Random(example_seed(item.question, seed=config.seed))
        words = spoken_question(item, style, rng, config.every[style])
        return Line(path=path, words=words, voice=voice, fine=style)
    names = config.recorded.get(setting, ())
    condition = names[turn % len(names)] if names else ""
    return Line(path=path, words=spoken_question(item), voice=voice, condition=condition, fine=condition)


def _table(items: Sequence[Item]) -> str:
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n").writerows([item.question, *item.options, item.key] for item in items)
    return stream.getvalue()


def _check_made(path: Path, made: dict[str, object]) -> None:
    """Settings may be added later; anything else would mix two makes."""
    told = json.loads(json.dumps(made))
    if path.is_file():
        before = json.loads(path.read_text(encoding="utf-8"))
        changed = sorted(k for k in told if k != "settings" and before.get(k) != told[k])
        if changed:
            raise ValueError(f"{path.parent} was made with other {changed}; take another out_dir")
        told["settings"] = sorted({*before["settings"], *told["settings"]}, key=SETTINGS.index)
    write_json(path, told)
