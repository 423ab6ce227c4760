"""The model card of an exported checkpoint: what it is, how it is used, data, training, results, licence.

Everything is read from what the run left behind; what is not known is said to be unknown.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from wearllama.audio.timebase import SAMPLE_RATE
from wearllama.data.manifest import read_manifest
from wearllama.evaluation.report import facts_of, title_of
from wearllama.evaluation.tables import MARK, tables_of
from wearllama.modeling.modeling_wearllama import WearLlamaForConditionalGeneration
from wearllama.modeling.processing import WearLlamaProcessor

RUN_CONFIG = "config.yaml"
SECTIONS = ("model", "data", "batches", "train", "init", "align", "encoder", "experiment")
"""Of the run's configuration, what the card shows."""

_USAGE = """```python
import soundfile, torch
from transformers import AutoModelForCausalLM, AutoProcessor

name = "FOLDER_OR_REPOSITORY"
model = AutoModelForCausalLM.from_pretrained(name, trust_remote_code=True).eval()
processor = AutoProcessor.from_pretrained(name, trust_remote_code=True)

audio, rate = soundfile.read("clip.wav", dtype="float32", always_2d=True)  # (samples, {mics})
assert rate == {rate}  # nothing is resampled silently
messages = [{{"role": "user", "content": [{{"type": "audio"}}]}}]
batch = processor([messages], [audio.T])
with torch.inference_mode():
    ids = model.generate(**batch, max_new_tokens=96, do_sample=False)
print(processor.batch_decode(ids[:, batch["input_ids"].shape[1]:])[0])  # [Mute], a tool call, or an answer
```"""


@dataclass(kw_only=True)
class CardFacts:
    """What the card says beside what model and processor know themselves."""

    name: str
    licence: str
    """Of the weights, as the hub spells it (``apache-2.0``)."""
    requirements: Sequence[str]
    """Packages that the folder's code imports."""
    run: Mapping[str, Any] | None = None
    """The run's configuration."""
    data_note: str = ""
    """A sentence about where the data came from and under which terms."""
    results: Sequence[Mapping[str, Any]] = ()
    """``results.json`` of evaluations of these weights."""


def run_config(checkpoint: str | Path) -> dict[str, Any] | None:
    """The configuration of the run that wrote a checkpoint: beside it, or in the folder above; None where none is."""
    for folder in (Path(checkpoint), Path(checkpoint).resolve().parent):
        if (folder / RUN_CONFIG).is_file():
            return dict(yaml.safe_load((folder / RUN_CONFIG).read_text(encoding="utf-8")))
    return None


def read_results(path: str | Path, weights: str) -> list[dict[str, Any]]:
    """Benchmarks of a ``results.json`` (one, or several by name); ValueError where it is about other weights."""
    found = json.loads(Path(path).read_text(encoding="utf-8"))
    runs = [found] if "benchmark" in found else list(found.values())
    if not runs or not all(isinstance(run, dict) and "systems" in run for run in runs):
        raise ValueError(f"report={path}: no results of an evaluation, which hold 'benchmark' and 'systems'")
    for run in runs:
        about = run["systems"][0]["identity"]["weights"]
        if about != weights:
            raise ValueError(f"report={path}: found results of weights {about}, wanted those of this model, {weights}")
    return runs


def model_card(facts: CardFacts, model: WearLlamaForConditionalGeneration, processor: WearLlamaProcessor) -> str:
    """README.md."""
    usage = _USAGE.format(mics=processor.array.num_mics, rate=SAMPLE_RATE)
    packages = " ".join([*facts.requirements, *(["peft"] if model.config.lora else []), "soundfile"])
    parts = [
        _header(facts),
        f"# {facts.name}",
        "Hears the microphones of AI glasses and answers its wearer, calls a tool, or says `[Mute]` where nobody "
        "speaks to it: a Conformer on the nose microphone (c_0) and a fixed beam (c_x) feeds a Llama decoder.",
        _facts_table(model, processor),
        "## How to use",
        usage,
        f"Needs `pip install {packages}`. The folder brings its own code, therefore `trust_remote_code=True`.",
        "## Data",
        _data(facts),
        "## Training",
        _training(facts),
        "## Results",
        *_results(facts),
        "## Limits",
        f"Sound at {SAMPLE_RATE} Hz from the array `{processor.array.name}` in its channel order, at most "
        f"{processor.max_audio_seconds:g} s a clip; anything else is refused, nothing is resampled or cut. Other "
        "arrays bring other beams: what the model learnt of who speaks is about this one.",
        "## Licence",
        f"Weights: {facts.licence}. Code: Apache-2.0 (LICENSE).",
    ]
    return "\n\n".join(parts) + "\n"


def _header(facts: CardFacts) -> str:
    fields: dict[str, Any] = {
        "license": facts.licence,
        "library_name": "transformers",
        "pipeline_tag": "audio-text-to-text",
        "tags": ["wearllama", "multichannel", "speech", "tool-use", "wearables"],
    }
    return f"---\n{yaml.safe_dump(fields, sort_keys=False)}---"


def _facts_table(model: WearLlamaForConditionalGeneration, processor: WearLlamaProcessor) -> str:
    config, text = model.config, model.config.decoder_config()
    parts = {name: sum(p.numel() for p in part.parameters()) for name, part in model.named_children()}
    sizes = ", ".join(f"{name} {count / 1e6:.2f} M" for name, count in parts.items())
    positions = processor.array.num_mics
    rows = [
        ("parameters", f"{sum(p.numel() for p in model.parameters()) / 1e6:.2f} M ({sizes})"),
        ("decoder", f"{text.model_type}, {text.num_hidden_layers} layers of width {text.hidden_size}"),
        ("encoder", f"{config.encoder_config().layers} layers of width {config.encoder_config().width}, 12.5 Hz"),
        ("channels", f"`{config.channels}`, {12.5 * config.num_channels:g} embeddings a second"),
        ("array", f"`{processor.array.name}`, {positions} microphones, beam for `{processor.beam.array}`"),
        ("LoRA", f"r {config.lora.get('r', 32)}, not merged" if config.lora else "none, or merged"),
        ("weights", str(model.dtype).removeprefix("torch.")),
    ]
    return "\n".join(["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows)])


def _data(facts: CardFacts) -> str:
    lines = [facts.data_note] if facts.data_note else []
    settings = (facts.run or {}).get("data") or {}
    manifest = settings.get("manifest")
    if manifest and Path(manifest).is_file():
        rows = Counter(example.task for example in read_manifest(manifest) if example.split == settings["train_split"])
        tasks = ", ".join(f"{task} {count}" for task, count in sorted(rows.items()))
        lines.append(
            f"{sum(rows.values())} training rows, each rendered anew in every epoch where it is a mixture: {tasks}."
        )
    elif manifest:
        lines.append(f"Training manifest: `{short(manifest)}`.")
    return "\n\n".join(lines) or "Not recorded."


def _training(facts: CardFacts) -> str:
    if facts.run is None:
        return "Not recorded."
    shown = {name: _short_paths(facts.run[name]) for name in SECTIONS if facts.run.get(name) is not None}
    return f"```yaml\n{yaml.safe_dump(shown, sort_keys=False, allow_unicode=True)}```"


def _results(facts: CardFacts) -> list[str]:
    """Headline tables without the papers' rows: those are about other recordings, which a card has no room to say."""
    if not facts.results:
        return ["None were given at export."]
    parts = []
    for results in facts.results:
        headline = tables_of(results)[0]
        rows = [row for row in headline.rows if not row[0].endswith(MARK)]
        table = headline._replace(rows=rows, note=headline.note.partition(" Published:")[0])
        told = facts_of({**results, "data": short(results["data"])})
        parts += [f"### {title_of(results)}", told, table.markdown().replace("### ", "#### ", 1)]
    return parts


def _short_paths(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _short_paths(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_short_paths(item) for item in value]
    return short(value) if isinstance(value, str) else value


def short(path: str) -> str:
    """The last two parts of an absolute path, so that no card tells how a machine is laid out; others as they are."""
    return "/".join(Path(path).parts[-2:]) if Path(path).is_absolute() else path
