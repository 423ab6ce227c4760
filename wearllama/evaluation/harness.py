"""Runs a model over a benchmark's examples and logs every output once, on any number of ranks, resumably.

The examples are dealt to ranks by their place in the list, never by what is still to do: ranks that start at different
moments, or a run resumed on another number of ranks, neither repeat nor miss an item.
"""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from tqdm import tqdm

from wearllama.audio.io import AudioError
from wearllama.data.actions import parse_action
from wearllama.data.manifest import Clip, Example, Renderer, load_audio
from wearllama.evaluation.batches import in_batches, prefetch
from wearllama.evaluation.predictions import (
    Prediction,
    PredictionLog,
    collect,
    prediction_key,
    prompt_hash_of,
    read_log,
    unique_ids,
)


class Adapter(Protocol):
    """What the harness needs of a model."""

    @property
    def identity(self) -> dict[str, str]:
        """Name, hash of the weights, kind of input: part of every prediction's key."""

    @property
    def generation(self) -> dict[str, Any]:
        """Generation settings: part of every prediction's key."""

    @property
    def max_audio_seconds(self) -> float | None:
        """Longest recording that the model takes; None where it does not matter."""

    def generate(self, examples: Sequence[Example], clips: Sequence[Clip | None]) -> list[str]:
        """Raw outputs of a batch, in order."""

    def first_token_seconds(self, example: Example, clip: Clip | None) -> float | None:
        """Time from the sound in memory to the first token, alone (batch of one); None where there is no model."""


@dataclass(kw_only=True)
class HarnessConfig:
    """How a run goes; nothing here changes what a model answers."""

    batch_size: int = 8
    """Items decoded together, of similar length. A server or a text model gets as many as it takes at once
    (``endpoint.concurrency``, ``llm.batch_size``) where those are more."""
    batch_seconds: float | None = None
    """Most seconds of sound in a batch, padding included: long recordings then go in smaller batches."""
    ttft_items: int = 20
    """Items of each task whose time to first token is measured; 0 for none."""
    bad_item: Literal["error", "score_wrong"] = "error"
    """An unreadable or too long recording, or an item that the model refuses: stop, or log the error and count the item
    as wrong. Later runs with ``score_wrong`` leave such an item alone; with ``error`` they ask it again."""
    progress: bool = True
    """Show a progress bar (rank 0)."""

    def __post_init__(self) -> None:
        if self.batch_size < 1 or self.ttft_items < 0:
            raise ValueError(f"batch_size {self.batch_size} or ttft_items {self.ttft_items} is too small")
        if self.batch_seconds is not None and self.batch_seconds <= 0:
            raise ValueError(f"batch_seconds is {self.batch_seconds}, wanted more than 0")
        if self.bad_item not in ("error", "score_wrong"):
            raise ValueError(f"bad_item is {self.bad_item!r}, wanted 'error' or 'score_wrong'")


def run(
    examples: Sequence[Example],
    adapter: Adapter,
    *,
    root: str | Path,
    folder: str | Path,
    config: HarnessConfig,
    channels: int | None = None,
    renderer: Renderer | None = None,
) -> list[Prediction]:
    """Predict what the log in ``folder`` lacks, wait for the other ranks, and return ALL predictions in order.

    Args:
        examples: unique ids, audio paths relative to ``root``.
        folder: run folder; may hold predictions of other models or prompts, which are left alone.
        channels: microphones that a recording must have; None takes any number.
        renderer: makes the sound of examples that are recipes.
    """
    rank, world_size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    predict(
        examples,
        adapter,
        root=root,
        folder=folder,
        config=config,
        channels=channels,
        renderer=renderer,
        rank=rank,
        world_size=world_size,
    )
    keys = keys_of(examples, adapter, root)
    if world_size > 1:
        _wait_for_ranks(keys, folder, config)
    return collect(examples, keys, folder)


def keys_of(examples: Sequence[Example], adapter: Adapter, root: str | Path) -> list[str]:
    """Keys under which the adapter's predictions stand in the log."""
    identity, generation = adapter.identity, adapter.generation
    return [prediction_key(example, identity, generation, root) for example in examples]


def predict(
    examples: Sequence[Example],
    adapter: Adapter,
    *,
    root: str | Path,
    folder: str | Path,
    config: HarnessConfig,
    channels: int | None = None,
    renderer: Renderer | None = None,
    rank: int = 0,
    world_size: int = 1,
) -> None:
    """One rank's share of :func:`run`: every ``world_size``-th example that the log lacks."""
    unique_ids(examples)
    refused = _too_long(examples, adapter, config)
    keys = keys_of(examples, adapter, root)
    timed = _timed_ids(examples, config.ttft_items)
    done = _settled(folder, config)
    mine = list(zip(examples, keys, strict=True))[rank::world_size]
    todo = sorted(((e, k) for e, k in mine if k not in done), key=lambda pair: -pair[0].seconds)
    log = PredictionLog(folder, rank)

    def load(example: Example) -> Clip | AudioError | None:
        if example.id in refused:
            return AudioError(refused[example.id])
        try:
            return load_audio(example, root, renderer, channels=channels)
        except AudioError as error:
            if config.bad_item == "error":
                raise
            return error

    size = max(config.batch_size, getattr(adapter, "at_once", 1))  # fewer would leave a server waiting
    bar = tqdm(
        total=len(mine), initial=len(mine) - len(todo), unit="item", desc=f"predict ({adapter.identity['model']})",
        disable=not config.progress or rank != 0 or not mine,
    )  # fmt: skip
    with bar:
        for batch, clips in prefetch(in_batches(todo, size, config.batch_seconds), load):
            predictions, failed = _predict(batch, clips, adapter, timed, rank)
            refusals = [p for p in predictions if p.id in failed]
            log.append(
                predictions if config.bad_item == "score_wrong" else [p for p in predictions if p.id not in failed]
            )
            bar.update(len(predictions))
            if len(predictions) < len(batch):
                raise ValueError(_unanswered(batch, predictions, failed))
            if refusals and config.bad_item == "error":
                raise ValueError(
                    f"{refusals[0].id}: {refusals[0].error}; harness.bad_item=score_wrong counts such items as wrong"
                )


def _predict(
    batch: Sequence[tuple[Example, str]],
    clips: Sequence[Clip | AudioError | None],
    adapter: Adapter,
    timed: set[str],
    rank: int,
) -> tuple[list[Prediction], dict[str, str]]:
    """Predictions, and why the adapter has no output, by id; what failed for a passing reason is only in the latter."""
    good = [(e, clip) for (e, _), clip in zip(batch, clips, strict=True) if not isinstance(clip, AudioError)]
    started = time.perf_counter()
    outputs = adapter.generate([e for e, _ in good], [clip for _, clip in good]) if good else []
    batch_s = time.perf_counter() - started
    raw = {example.id: text for (example, _), text in zip(good, outputs, strict=True)}
    predictions, failed = [], {}
    for (example, key), clip in zip(batch, clips, strict=True):
        output = raw.get(example.id, "")
        reason = str(clip) if isinstance(clip, AudioError) else getattr(output, "error", "")
        if reason and not isinstance(clip, AudioError):
            failed[example.id] = reason
        if getattr(output, "transient", False):
            continue
        latency: dict[str, float] = {"batch_s": batch_s, "batch_size": len(good)}
        if example.id in timed and not reason and not isinstance(clip, AudioError):
            ttft = adapter.first_token_seconds(example, clip)
            latency |= {} if ttft is None else {"ttft_s": ttft}
        text = str(output)
        predictions.append(Prediction(
            id=example.id, key=key, task=example.task, model=adapter.identity, prompt_hash=prompt_hash_of(example),
            generation=adapter.generation, raw=text, rank=rank, latency=latency, error=reason,
            action=parse_action(text, example.dialect).to_dict(), extra=dict(getattr(output, "extra", {})),  # type: ignore[arg-type]
        ))  # fmt: skip
    return predictions, failed


def _unanswered(batch: Sequence[tuple[Example, str]], predictions: Sequence[Prediction], failed: dict[str, str]) -> str:
    answered = {prediction.id for prediction in predictions}
    waiting = [example.id for example, _ in batch if example.id not in answered]
    return (
        f"{len(waiting)} items have no answer yet (first: {waiting[0]}: {failed[waiting[0]]}); the same command goes on"
    )


def _too_long(examples: Sequence[Example], adapter: Adapter, config: HarnessConfig) -> dict[str, str]:
    """Find what is too long before hours are spent, not after: an error, or the reason by id."""
    limit = adapter.max_audio_seconds
    too_long = [example for example in examples if limit is not None and example.seconds > limit]
    if too_long and config.bad_item == "error":
        first = too_long[0]
        raise ValueError(
            f"{len(too_long)} recordings exceed the model's {limit:g} s (first: {first.id}, {first.seconds:.2f} s); "
            "leave them out, cut them with too_long=truncate (marked in the tables), count them as wrong with "
            "harness.bad_item=score_wrong, or train with a larger max_audio_seconds"
        )
    return {e.id: f"{e.seconds:.2f} s of audio, the model takes {limit:g} s" for e in too_long}


def _timed_ids(examples: Sequence[Example], per_task: int) -> set[str]:
    """An evenly spread sample of every task."""
    tasks: dict[str, list[str]] = {}
    for example in examples:
        tasks.setdefault(example.task, []).append(example.id)
    timed: set[str] = set()
    for ids in tasks.values():
        count = min(per_task, len(ids))
        timed.update(ids[index * len(ids) // count] for index in range(count))
    return timed


def _settled(folder: str | Path, config: HarnessConfig) -> set[str]:
    """Keys that are not asked again. A logged failure is settled only where it counts as a wrong answer."""
    log = read_log(folder)
    return {key for key, found in log.items() if not found.error or config.bad_item == "score_wrong"}


def _wait_for_ranks(keys: Sequence[str], folder: str | Path, config: HarnessConfig) -> None:
    """Return once every rank has logged its share.

    The log is shared anyway, so it is asked rather than a process group: ranks need no network between them.  A rank
    that dies takes the others with it, as torchrun has it.
    """
    pause = 0.1
    while not set(keys) <= _settled(folder, config):
        time.sleep(pause)
        pause = min(5.0, 1.5 * pause)
