"""What eval/voxeval.py does with its settings: the model, every condition, and one table of all."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from wearllama.atomic import write_json, write_text
from wearllama.data.manifest import Example
from wearllama.evaluation.cascade import AsrConfig, open_recogniser
from wearllama.evaluation.chat import ChatConfig, open_chat
from wearllama.evaluation.chat_adapter import ChatAdapter
from wearllama.evaluation.commands import run_folder
from wearllama.evaluation.conditions import ConditionSettings
from wearllama.evaluation.evaluate import Benchmark, Control, evaluate, results
from wearllama.evaluation.harness import HarnessConfig
from wearllama.evaluation.models import ModelSettings, open_model
from wearllama.evaluation.report import Section, render_html, render_markdown
from wearllama.evaluation.voxeval import benchmark
from wearllama.evaluation.voxeval.benchmark import VoxEvalConfig, load_voxeval
from wearllama.evaluation.voxeval.layout import QUESTIONS
from wearllama.evaluation.voxeval.prompt_audio import PromptReader
from wearllama.evaluation.voxeval.spoken_answers import SpokenAnswers
from wearllama.evaluation.voxeval.tables import Found, voxeval_tables
from wearllama.simulation.conditions import CLEAN, parse_conditions
from wearllama.unread import refuse_unread

BENCHMARK = Benchmark("voxeval", benchmark.score, benchmark.summarise)


@dataclass(kw_only=True)
class VoxEvalCommand(ModelSettings):
    """The whole of conf/voxeval.yaml."""

    data: str
    """Folder in the published layout, or what tools/build_voxeval.py made."""
    voxeval: VoxEvalConfig = field(default_factory=VoxEvalConfig)
    """What is read, and how it is asked."""
    reader: ChatConfig = field(default_factory=ChatConfig)
    """Instead of ``ckpt`` and ``model``, with ``voxeval.input=text``: ``reader.model=smollm2``, ``hf:PATH``, ..."""
    spoken_answers: str | None = None
    """Instead of all these: recorded replies, ``FOLDER/SETTING/SUBJECT/NNNNNNNN.wav``, that ``asr`` writes down."""
    asr: AsrConfig = field(default_factory=AsrConfig)
    """Of ``model=cascade``, and of ``spoken_answers``; Whisper-large-v3 as published."""
    controls: tuple[Control, ...] = ("majority",)
    """What stands beside the model: ``silence``, ``transcript``, ``majority``."""
    condition: str | tuple[str, ...] = CLEAN
    """``clean``, an evaluation condition, a sweep, the group ``voxeval``, or a list; the whole prompt is heard so."""
    conditions: ConditionSettings = field(default_factory=ConditionSettings)
    out: str = "runs/eval"
    """Results go to OUT/voxeval/MODEL-WEIGHTS/INPUT-MODE-SHOTS/."""
    harness: HarnessConfig = field(default_factory=HarnessConfig)

    def __post_init__(self) -> None:
        others = [self.reader.model, self.spoken_answers]
        if sum(name is not None for name in (self.ckpt, self.model, *others)) != 1:
            raise ValueError("wanted one of ckpt=, model=, reader.model= and spoken_answers=")
        if others == [None, None]:
            super().__post_init__()
        else:  # neither a checkpoint's settings nor an audio model's; spoken answers are written down by asr
            kept = ("ckpt", "model", "asr") if self.reader.model is None else ("ckpt", "model")
            names = [name for name in ModelSettings.__dataclass_fields__ if name not in kept]
            refuse_unread(self, names, f"with {'reader.model' if self.spoken_answers is None else 'spoken_answers'}")
        if self.reader.model is None:
            refuse_unread(self, ("reader",), "without reader.model")
        if self.reader.model is not None and self.voxeval.input != "text":
            raise ValueError("reader.model reads: give voxeval.input=text, or model=cascade to have it hear")


def run_command(command: VoxEvalCommand) -> Path | None:
    """Run under every condition and report; the page's path on rank 0, None on the others."""
    conditions = parse_conditions(command.condition)
    if command.voxeval.input == "text" and conditions != [None]:
        raise ValueError(f"condition={command.condition} changes sound, and voxeval.input is text")
    root = Path(command.data)
    if command.spoken_answers is not None:
        # What was asked was asked elsewhere: the questions are only needed for their keys.
        command.voxeval = replace(command.voxeval, input="text", shots=0)
    examples = load_voxeval(root, command.voxeval, progress=command.harness.progress)
    model = _model(command)
    controls = command.controls
    if not hasattr(model, "with_input"):
        controls = tuple(control for control in controls if control == "majority")
    reader = PromptReader(root, command.conditions)
    heard = [(CLEAN if c is None else c.name, examples if c is None else reader.under(examples, c)) for c in conditions]
    config = command.voxeval
    folder = run_folder(command.out, "voxeval", model) / f"{config.input}-{config.mode}-{config.shots}"
    found: list[tuple[str, dict[str, Any]]] = []
    for name, under in heard:
        systems = evaluate(
            BENCHMARK, under, model, root=root, folder=folder, harness=command.harness, controls=controls,
            renderer=reader,
        )  # fmt: skip
        found.append((name, results(BENCHMARK, under, systems, data=str(root))))
    if int(os.environ.get("RANK", 0)) != 0:
        return None
    return write_report(folder, found, config, examples)


def write_report(folder: Path, found: Found, config: VoxEvalConfig, examples: Sequence[Example]) -> Path:
    """Write results.json, report.md and report.html; print the headline; returns the page's path."""
    tables = voxeval_tables(found)
    section = Section("VoxEval", _facts(found[0][1], config, examples), tables, [], [])
    write_json(folder / "results.json", {"conditions": [{"condition": name, **result} for name, result in found]})
    write_text(folder / "report.md", render_markdown("WearLlama on VoxEval", [section]))
    write_text(folder / "report.html", render_html("WearLlama on VoxEval", [section]))
    print(f"\n{section.facts}\n\n{tables[0].text()}\n\nreport: {folder / 'report.html'}")
    return folder / "report.html"


def _facts(result: Mapping[str, Any], config: VoxEvalConfig, examples: Sequence[Example]) -> str:
    cut = result["systems"][0]["cut_prompts"]
    full = QUESTIONS * len(config.settings)
    of_all = "" if len(examples) == full else f" (the publication has {full} in these settings)"
    said = f"{result['items']} items{of_all} of {result['data']}; {config.mode}, {config.shots} examples before each"
    if config.input == "audio":
        said += (
            f"; the last {config.keep_seconds:g} s of each prompt are heard, which cuts {cut['items']} prompts, the "
            f"longest by {cut['longest_cut_s']:.1f} s"
        )
    return f"{said}; prompts {result['prompts']}; {result['systems'][0]['errors']} items failed."


def _model(command: VoxEvalCommand) -> Any:
    if command.spoken_answers is not None:
        return SpokenAnswers(Path(command.spoken_answers), open_recogniser(command.asr))
    if command.reader.model is not None:
        return ChatAdapter(open_chat(command.reader))
    return open_model(command)
