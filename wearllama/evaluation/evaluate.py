"""One benchmark run from examples to a results folder: the model, its controls, and everything that is reported.

The folder holds the prediction log, ``results.json`` (every figure), ``clips.json`` (ten recordings with what was
said), ``report.md`` and ``report.html``.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from wearllama.data.manifest import Example, Renderer
from wearllama.data.prompts import content_hash
from wearllama.evaluation import transcription, vgbench, wearvox_scores
from wearllama.evaluation.adapters import MajorityAdapter
from wearllama.evaluation.chat import EndpointConfig
from wearllama.evaluation.harness import Adapter, HarnessConfig, run
from wearllama.evaluation.intervals import ErrorRate, Mean, Rate, mcnemar
from wearllama.evaluation.judging import Judges
from wearllama.evaluation.models import AudioModel
from wearllama.evaluation.predictions import Prediction, prompt_hash_of
from wearllama.evaluation.scoring import Outcome

Control = Literal["silence", "transcript", "majority"]
RESULTS, CLIPS = "results.json", "clips.json"


class Benchmark(NamedTuple):
    """How one benchmark is scored."""

    name: str
    score: Callable[[Sequence[Example], Sequence[Prediction]], list[Outcome]]
    summarise: Callable[[Sequence[Outcome]], dict[str, Any]]


BENCHMARKS = {
    "wearvox": Benchmark("wearvox", wearvox_scores.score, wearvox_scores.summarise),
    "vgbench": Benchmark("vgbench", vgbench.score, vgbench.summarise),
    "asr": Benchmark("asr", transcription.score, transcription.summarise),
}


@dataclass(kw_only=True)
class System:
    """One row of the table: a model (or control) and all its outcomes."""

    label: str
    identity: dict[str, str]
    generation: dict[str, Any]
    summary: dict[str, Any]
    outcomes: list[Outcome]
    predictions: list[Prediction]
    ttft_ms: dict[str, dict[str, float]] = field(default_factory=dict)
    usage: dict[str, float] = field(default_factory=dict)

    @property
    def correct(self) -> dict[str, bool]:
        """``correct`` by id."""
        return {outcome.id: o for outcome in self.outcomes if (o := outcome.marks.get("correct")) is not None}


def evaluate(
    benchmark: Benchmark,
    examples: Sequence[Example],
    model: AudioModel,
    *,
    root: str | Path,
    folder: str | Path,
    harness: HarnessConfig,
    controls: Sequence[Control] = (),
    channels: int | None = None,
    renderer: Renderer | None = None,
    judges: Judges | None = None,
) -> list[System]:
    """Run (or resume) the model and its controls; the first system is the model itself. Rank 0 asks the judges."""
    adapters: list[tuple[str, Adapter]] = [("model", model)]
    for control in controls:
        if control == "majority":
            adapters.append(("majority class", MajorityAdapter(examples)))
        else:
            adapters.append((f"model, {control}", model.with_input(control)))
    systems = []
    for label, adapter in adapters:
        predictions = run(
            examples, adapter, root=root, folder=folder, config=harness, channels=channels, renderer=renderer
        )
        outcomes = benchmark.score(examples, predictions)
        if judges is not None and int(os.environ.get("RANK", 0)) == 0:
            outcomes = judges.apply(benchmark.name, examples, predictions, outcomes)
        systems.append(System(
            label=label, identity=dict(adapter.identity), generation=dict(adapter.generation), outcomes=outcomes,
            predictions=predictions, summary=benchmark.summarise(outcomes), ttft_ms=_latencies(predictions),
            usage=_usage(predictions, getattr(adapter, "prices", None)),
        ))  # fmt: skip
    return systems


def _usage(predictions: Sequence[Prediction], prices: EndpointConfig | None) -> dict[str, float]:
    """Tokens that the logged outputs cost, and money where prices are known, whichever launch paid for them."""
    names = ("prompt_tokens", "completion_tokens", "attempts")
    tokens: dict[str, float] = {name: sum(int(p.extra.get(name, 0)) for p in predictions) for name in names}
    return tokens if prices is None else {**tokens, "usd": prices.usd(tokens)}


def _latencies(predictions: Sequence[Prediction]) -> dict[str, dict[str, float]]:
    """Time to first token by task: n, p50 and p95 in milliseconds."""
    times: dict[str, list[float]] = {}
    for prediction in predictions:
        if "ttft_s" in prediction.latency:
            for name in (prediction.task, "all"):
                times.setdefault(name, []).append(1000 * prediction.latency["ttft_s"])
    return {
        name: {"n": len(v), "p50": float(np.percentile(v, 50)), "p95": float(np.percentile(v, 95))}
        for name, v in sorted(times.items())
    }


def results(
    benchmark: Benchmark,
    examples: Sequence[Example],
    systems: Sequence[System],
    data: str,
    *,
    judges: Judges | None = None,
    notes: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Everything the run found, JSON-ready; ``notes`` is what the loader has to say."""
    first = systems[0]
    return {
        "benchmark": benchmark.name,
        "data": data,
        "items": len(examples),
        "prompts": content_hash(sorted({prompt_hash_of(example) for example in examples})),
        "judges": judges.used if judges is not None else {},
        "notes": dict(notes or {}),
        "systems": [
            {
                "label": system.label,
                "identity": system.identity,
                "generation": system.generation,
                "errors": sum(bool(prediction.error) for prediction in system.predictions),
                "ttft_ms": system.ttft_ms,
                "usage": system.usage,
                **jsonable(system.summary),
            }
            for system in systems
        ],
        "paired_tests": [
            {"first": first.label, "second": other.label, **mcnemar(first.correct, other.correct)._asdict()}
            for other in systems[1:]
        ],
    }


def jsonable(value: Any) -> Any:
    """Rates as objects with their interval, all the way down."""
    if isinstance(value, Rate | Mean | ErrorRate):
        return value.to_dict()
    if isinstance(value, dict):
        return {key: jsonable(item) for key, item in value.items()}
    return value
