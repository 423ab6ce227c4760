"""What the launchers of eval/ share: settings of a run, and the way from examples to a report."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wearllama.atomic import write_text
from wearllama.audio.array import load_array
from wearllama.data.manifest import Example
from wearllama.data.prompts import content_hash
from wearllama.evaluation.adaptations import Adaptation, AdaptedAdapter
from wearllama.evaluation.adapters import CheckpointAdapter
from wearllama.evaluation.clips import clip_views
from wearllama.evaluation.conditions import (
    ConditionedAdapter,
    ConditionSettings,
    condition_folder,
    mono_under,
    under_condition,
)
from wearllama.evaluation.evaluate import BENCHMARKS, Control, evaluate, results
from wearllama.evaluation.harness import Adapter, HarnessConfig
from wearllama.evaluation.items import PAGE, write_items
from wearllama.evaluation.judging import Judges, JudgesConfig
from wearllama.evaluation.models import AudioModel, ModelSettings, open_model
from wearllama.evaluation.mono import MonoAdapter
from wearllama.evaluation.pairs import OWN, ChannelPair, parse_pairs
from wearllama.evaluation.report import section_of, write_run
from wearllama.evaluation.tables import conditions_table
from wearllama.simulation.conditions import CLEAN, Condition, parse_conditions

OWN_ARRAY = "glasses5"
"""Array of WearVox's recordings, for models that have none."""


@dataclass(kw_only=True)
class RunCommand(ModelSettings):
    """Settings that every benchmark's launcher has."""

    out: str = "runs/eval"
    """Results go to OUT/BENCHMARK/MODEL-WEIGHTS/."""
    controls: tuple[Control, ...] = ("silence", "majority")
    """What stands beside the model: ``silence``, ``transcript``, ``majority``."""
    clips: int = 10
    """Recordings to listen to in the report."""
    condition: str | tuple[str, ...] = CLEAN
    """``clean``, one evaluation condition (``snr:5``), a sweep (``snr``), a group (``voxeval``), or a list of those."""
    conditions: ConditionSettings = field(default_factory=ConditionSettings)
    """What conditions draw from."""
    pair: str | tuple[str, ...] = OWN
    """``own``, or channels heard in place of (c_x, c_0): ``c_x-c_1``, ``c_0-c_1``, or a list of pairs (Table 6)."""
    adaptation: Adaptation | None = None
    """Training-free adaptation around the model: ``self_report``, ``measured`` or ``chunked``."""
    harness: HarnessConfig = field(default_factory=HarnessConfig)
    """How the run goes."""
    judges: JudgesConfig = field(default_factory=JudgesConfig)
    """Who judges answers, translations and side-talk; the same command with another judge judges again, no more."""


def pair_folder(folder: Path, pair: ChannelPair | None) -> Path:
    """Where a model's results with other channels lie."""
    return folder if pair is None else folder / "pairs" / pair.name


def adaptation_folder(folder: Path, adaptation: Adaptation | None) -> Path:
    """Where an adapted model's results lie."""
    return folder if adaptation is None else folder / "adaptations" / adaptation


def run_folder(out: str | Path, benchmark: str, model: Adapter) -> Path:
    """Where a model's results of a benchmark lie."""
    name, weights = model.identity["model"], model.identity["weights"]
    if not isinstance(model, CheckpointAdapter):  # a server's address is no name for a folder
        name, weights = re.sub(r"[^\w.+-]+", "-", name), content_hash(model.identity)
    settings = ""
    if isinstance(model, CheckpointAdapter):
        settings += f"-{model.array.name}" if model.array else ""
        settings += f"-ahead{model.look_ahead}" if model.look_ahead is not None else ""
    return Path(out) / benchmark / f"{name.replace('/', '-')}-{weights[:8]}{settings}"


def run_benchmark(
    name: str,
    command: RunCommand,
    examples: Sequence[Example],
    *,
    root: Path,
    channels: int | None,
    notes: Mapping[str, Any] | None = None,
) -> list[Path]:
    """Predict, score and report with every pair of channels under every condition; the pages (rank 0; else []).

    ``notes`` is what the loader has to say (rows left out); it stands in results.json.

    Prints each one's headline tables and, where there are several, one table of all.
    """
    command.judges.check(name)
    conditions = parse_conditions(command.condition)
    if command.adaptation == "chunked" and any(condition is not None for condition in conditions):
        raise ValueError(
            f"adaptation=chunked cuts recordings, and a condition would be drawn anew for each piece: leave "
            f"condition={CLEAN}"
        )
    model = open_model(command)
    base = adaptation_folder(run_folder(command.out, name, model), command.adaptation)
    for condition in conditions:
        if condition is not None and channels is not None:
            condition.check(channels)
    # All adapters first: what a condition lacks is told before hours are spent on another.
    systems = [
        (asked.name if asked else OWN, condition, _under(_with_pair(model, asked), condition, command, root))
        for asked in parse_pairs(command.pair)
        for condition in conditions
    ]
    pages, found = [], []
    for asked, condition, system in systems:
        heard = examples if condition is None else under_condition(examples, condition)
        folder = condition_folder(pair_folder(base, _pair(system)), condition)
        adapted = system if command.adaptation is None else AdaptedAdapter(system, command.adaptation)
        run = _run_one(name, command, heard, adapted, folder, root=root, channels=channels, notes=notes)
        if run is not None:
            pages.append(run[0])
            title = CLEAN if condition is None else condition.name
            found.append((title if command.pair == OWN else f"{asked} {title}", run[1]))
    if len(found) > 1:
        kind, title = ("conditions", "Under evaluation conditions")
        if command.pair != OWN:
            kind, title = "pairs", "Hearing other channels: (in the beam's place)-(in c_0's place), condition"
        table = conditions_table(name, found, title)
        write_text(base / kind / f"{kind}.md", table.markdown())
        print(f"\n{table.text()}")
    return pages


def _with_pair(model: AudioModel, pair: ChannelPair | None) -> AudioModel:
    if pair is None:
        return model
    if not isinstance(model, CheckpointAdapter):
        raise ValueError(f"pair={pair.name}: only checkpoints hear other channels, not {model.identity['model']}")
    return model.with_pair(pair)


def _pair(system: AudioModel) -> ChannelPair | None:
    return system.pair if isinstance(system, CheckpointAdapter) else None


def _under(model: AudioModel, condition: Condition | None, command: RunCommand, root: Path) -> AudioModel:
    if condition is None:
        return model
    if isinstance(model, CheckpointAdapter):
        return ConditionedAdapter(model, condition, command.conditions, root)
    assert isinstance(model, MonoAdapter), "adaptations come around it later"
    return mono_under(model, condition, command.conditions, root, load_array(command.array or OWN_ARRAY))


def _run_one(
    name: str,
    command: RunCommand,
    examples: Sequence[Example],
    model: AudioModel,
    folder: Path,
    *,
    root: Path,
    channels: int | None,
    notes: Mapping[str, Any] | None,
) -> tuple[Path, dict[str, Any]] | None:
    benchmark = BENCHMARKS[name]
    judges = Judges(command.judges, folder, progress=command.harness.progress)
    systems = evaluate(
        benchmark, examples, model, root=root, folder=folder, harness=command.harness, controls=command.controls,
        channels=channels, judges=judges,
    )  # fmt: skip
    if int(os.environ.get("RANK", 0)) != 0:
        return None
    first = systems[0]
    clips = clip_views(examples, first.outcomes, first.predictions, model, root, command.clips)
    found = results(benchmark, examples, systems, data=str(root), judges=judges, notes=notes)
    page = write_run(folder, found, clips)
    write_items(folder, f"{name}: every item of {first.identity['model']}", examples, systems, root)
    for table in section_of(found).tables[:2]:
        print(f"\n{table.text()}")
    print(f"\nreport: {page}; every item: {folder / PAGE}")
    return page, found
