"""The evaluation harness: batches against one item at a time with the same outputs; and 3,842 rows scored and reported.

A random model of a real scale answers synthetic recordings through the harness, prompts, logs and all.  Times are
processor time, both ways in turn within each round; the ratio is that of the quickest rounds.
"""

import json
import resource
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch
import yaml

from wearllama.audio.io import write_audio
from wearllama.data.manifest import Example
from wearllama.data.prompts import build_messages
from wearllama.evaluation.adapters import CheckpointAdapter
from wearllama.evaluation.evaluate import BENCHMARKS, System, results
from wearllama.evaluation.harness import HarnessConfig, run
from wearllama.evaluation.items import write_items
from wearllama.evaluation.predictions import Prediction
from wearllama.evaluation.report import write_run
from wearllama.evaluation.wearvox import TITLES
from wearllama.modeling.factory import ModelConfig, build_model, build_processor
from wearllama_launch import CONF_DIR, launch

WANTED = 3.0
ROWS = {
    "closed_book": 588,
    "grounding": 547,
    "tool_call": 1125,
    "non-assistant-directed": 1082,
    "live_translation": 500,
}
"""Items of each task, as published."""


@dataclass(kw_only=True)
class EvaluationBenchmark:
    """What is run."""

    model: str = "demo"
    """Scale of conf/model/."""
    items: int = 64
    """Recordings, of 1 to 3 s."""
    batch_size: int = 32
    """Items decoded together in the quick way."""
    max_new_tokens: int = 32
    """Length of a reply (a random model rarely stops by itself)."""
    rounds: int = 3
    """Times that both ways are run."""
    fast: bool = False
    """One round of 24 items."""
    seed: int = 0

    def __post_init__(self) -> None:
        if min(self.items, self.batch_size, self.max_new_tokens, self.rounds) < 1:
            raise ValueError("items, batch_size, max_new_tokens and rounds must be at least 1")
        if self.fast:
            self.items, self.rounds, self.batch_size = 24, 1, 24


@launch("benchmark_evaluation", EvaluationBenchmark)
def main(config: EvaluationBenchmark) -> None:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        examples, model = recordings(config, folder / "data"), checkpoint(config, folder / "model")
        one, many = batched(config, examples, model, folder)
        seconds, grown_mb = scored(folder / "report")
    ratio = one / many
    print(
        f"{config.items} recordings of 1 to 3 s, model/{config.model} (random), {config.max_new_tokens} tokens a reply"
    )
    print(f"one by one {1000 * one / config.items:7.1f} ms of processor time an item")
    print(f"in batches {1000 * many / config.items:7.1f} ms (batch {config.batch_size}), same outputs")
    print(f"vs_one_by_one: {ratio:.2f}, wanted at least {WANTED:g}: {'met' if ratio >= WANTED else 'NOT MET'}")
    print(
        f"{sum(ROWS.values())} rows scored and reported in {seconds:.1f} s of wall time, {grown_mb:.0f} MB more memory"
    )
    print(json.dumps({"benchmark": "evaluation", "ratios": {"vs_one_by_one": round(ratio, 3)}}))


def checkpoint(config: EvaluationBenchmark, folder: Path) -> CheckpointAdapter:
    """A saved model of the scale."""
    torch.manual_seed(config.seed)
    settings = ModelConfig(**yaml.safe_load((CONF_DIR / "model" / f"{config.model}.yaml").read_text()))
    processor = build_processor(settings)
    build_model(settings, processor).save_pretrained(folder)
    processor.save_pretrained(folder)
    return CheckpointAdapter(folder, max_new_tokens=config.max_new_tokens, device="cpu")


def recordings(config: EvaluationBenchmark, folder: Path) -> list[Example]:
    """Five channels and a beam of noise for each item."""
    draw = torch.Generator().manual_seed(config.seed)
    examples = []
    for number in range(config.items):
        seconds = 1.0 + 2.0 * number / config.items
        audio_MN = 0.05 * torch.randn(6, int(16_000 * seconds), generator=draw)
        write_audio(folder / f"m{number}.wav", audio_MN[:5])
        write_audio(folder / f"b{number}.wav", audio_MN[5:])
        messages = build_messages(system="Wearer asks: answer or call. Else [Mute]. web_search weather stock")
        audio = {"mc": f"m{number}.wav", "beam": f"b{number}.wav"}
        metadata = {"dialect": "wearvox", "seconds": seconds}
        examples.append(Example(id=f"r{number}", task="closed_book", split="test", messages=messages, target="x",
                                audio=audio, metadata=metadata))  # fmt: skip
    return examples


def batched(
    config: EvaluationBenchmark, examples: list[Example], model: CheckpointAdapter, folder: Path
) -> tuple[float, float]:
    """Quickest rounds (processor seconds) one by one and in batches."""
    model.model.eval()  # weights into memory before the clock runs
    times: dict[int, list[float]] = {1: [], config.batch_size: []}
    said: dict[int, list[str]] = {}
    for number in range(config.rounds):
        for size in times:
            harness = HarnessConfig(batch_size=size, ttft_items=0, progress=False)
            started = time.process_time()
            found = run(examples, model, root=folder / "data", folder=folder / f"run{number}-{size}", config=harness)
            times[size].append(time.process_time() - started)
            said[size] = [prediction.raw for prediction in found]
    assert said[1] == said[config.batch_size], "batches changed what the model says"
    return min(times[1]), min(times[config.batch_size])


def scored(folder: Path) -> tuple[float, float]:
    """Wall seconds of scoring and reporting the whole benchmark's rows, and the memory that it took (MB)."""
    examples = [_row(task, number) for task, count in ROWS.items() for number in range(count)]
    predictions = [_said(example, number) for number, example in enumerate(examples)]
    before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
    benchmark = BENCHMARKS["wearvox"]
    outcomes = benchmark.score(examples, predictions)
    system = System(label="model", identity={"model": "synthetic", "weights": "none"}, generation={}, outcomes=outcomes,
                    summary=benchmark.summarise(outcomes), predictions=predictions)  # fmt: skip
    write_run(folder, results(benchmark, examples, [system], "synthetic"), [])
    write_items(folder, "Every item", examples, [system], folder)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return time.perf_counter() - started, grown / 1024


def _row(task: str, number: int) -> Example:
    translation = "\n".join(f"{turn % 2} [{turn},{turn + 1}] turn {turn}" for turn in range(8))
    truths = {
        "closed_book": f"answer {number}",
        "grounding": [f"answer {number}", "another"],
        "tool_call": [{"name": "weather", "parameters": {"search_query": f"weather in town {number}"}}],
        "non-assistant-directed": "[Mute]",
        "live_translation": translation,
    }
    noise = ("Music", "Quiet Office", "Construction Noise: Jackhammer, other (15m)")[number % 3]
    acoustics = {"_noise_type": noise, "environment": ("Indoors", "Outdoors")[number % 2], "noise_level": "Quiet"}
    metadata = {"dialect": "wearvox", "seconds": 3.0, "ground_truth": truths[task], "acoustics": acoustics,
                "transcript": "what is it"}  # fmt: skip
    return Example(id=f"{task}-{number}", task=task, split="test", target=TITLES[task], metadata=metadata,
                   messages=build_messages(system="x"), audio={"mc": f"wav_mc/{number}.wav"})  # fmt: skip


def _said(example: Example, number: int) -> Prediction:
    texts = ("[Mute]", f"answer {number}", "speaker0: a\nspeaker1: b",
             '<|TOOL|>[{"name": "weather", "parameters": {"search_query": "weather in town 3"}}]</|TOOL|>')  # fmt: skip
    return Prediction(id=example.id, key=example.id, task=example.task, model={}, prompt_hash="", generation={},
                      raw=texts[number % 4], action={})  # fmt: skip
