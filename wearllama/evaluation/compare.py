"""Two runs on the same items: McNemar's exact test, scenario by scenario, from their prediction logs."""

from collections.abc import Sequence
from pathlib import Path

from wearllama.data.manifest import Example
from wearllama.evaluation.evaluate import Benchmark
from wearllama.evaluation.intervals import mcnemar, rate_of
from wearllama.evaluation.predictions import Prediction, prompt_hash_of, read_log
from wearllama.evaluation.scoring import Outcome
from wearllama.evaluation.tables import Table


def model_outcomes(benchmark: Benchmark, examples: Sequence[Example], folder: str | Path) -> list[Outcome]:
    """The hearing model's outcomes in a run folder, scored anew.

    Raises ValueError where an item is missing, was asked with another prompt, or two models have answered it.
    """
    found: dict[str, Prediction] = {}
    wanted = {example.id: prompt_hash_of(example) for example in examples}
    for prediction in read_log(folder).values():
        if prediction.model.get("input") != "audio" or prediction.id not in wanted:
            continue
        if prediction.prompt_hash != wanted[prediction.id]:
            continue
        before = found.setdefault(prediction.id, prediction)
        if before.model != prediction.model:
            raise ValueError(f"{folder}: item {prediction.id!r} was answered by two models: {before.model} and "
                             f"{prediction.model}")  # fmt: skip
    missing = [example.id for example in examples if example.id not in found]
    if missing:
        raise ValueError(f"{folder}: {len(missing)} of {len(examples)} items have no prediction under this prompt, "
                         f"first {missing[0]!r}")  # fmt: skip
    return benchmark.score(examples, [found[example.id] for example in examples])


def paired_table(benchmark: Benchmark, examples: Sequence[Example], first: Path, second: Path) -> Table:
    """Both runs' rates on each task and the paired test."""
    sides = [model_outcomes(benchmark, examples, folder) for folder in (first, second)]
    rows = []
    for task in [*dict.fromkeys(example.task for example in examples), "all"]:
        marks = [{o.id: o.marks["correct"] for o in side if task in (o.task, "all")} for side in sides]
        test = mcnemar(*marks)
        rows.append((task, *(str(rate_of(part.values())) for part in marks), str(test.only_first),
                     str(test.only_second), f"{test.p_value:.2g}"))  # fmt: skip
    header = ("task", first.name, second.name, "only the first right", "only the second right", "p (McNemar, exact)")
    return Table("Two runs on the same items", header, rows)
