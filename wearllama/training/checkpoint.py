"""Checkpoints that are known to be whole, and run folders that are known to belong to a config."""

import hashlib
import json
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor
from transformers import PreTrainedModel

from wearllama.atomic import write_json
from wearllama.modeling.encoder_io import stored_tensors
from wearllama.modeling.factory import FINAL, model_folder

WEIGHTS = ("model.safetensors", "model.safetensors.index.json")
"""In one file, or the index of shards."""
NORM_BIAS = "projector.norm_in.bias"
COMPLETE = "complete.json"
"""Written into a checkpoint after everything else; a checkpoint without it was cut short and is not resumed from."""


def mark_complete(folder: str | Path, facts: Mapping[str, Any]) -> None:
    """Say that `folder` is whole; `facts` are kept with it."""
    write_json(Path(folder) / COMPLETE, dict(facts), indent=2, ensure_ascii=True)


def completed_facts(folder: str | Path) -> dict[str, Any] | None:
    """What :func:`mark_complete` wrote; None where `folder` is missing or was cut short."""
    try:
        facts = json.loads((Path(folder) / COMPLETE).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError, json.JSONDecodeError):
        return None
    return facts if isinstance(facts, dict) else None


def complete_checkpoints(run_dir: str | Path) -> list[Path]:
    """The whole ``checkpoint-N`` by step; unfinished ones are passed over."""
    found: list[tuple[int, Path]] = []
    for path in Path(run_dir).glob("checkpoint-*"):
        step = path.name.rpartition("-")[2]
        if step.isdigit() and completed_facts(path) is not None:
            found.append((int(step), path))
    return [path for _, path in sorted(found)]


def last_complete_checkpoint(run_dir: str | Path) -> Path | None:
    """The whole ``checkpoint-N`` of the highest step, or None."""
    return next(reversed(complete_checkpoints(run_dir)), None)


def remove_incomplete_checkpoints(run_dir: str | Path) -> list[Path]:
    """Delete checkpoints that were cut short, so that the Trainer's rotation does not count them; returns them."""
    broken = [path for path in sorted(Path(run_dir).glob("checkpoint-*")) if completed_facts(path) is None]
    for path in broken:
        shutil.rmtree(path)
    return broken


def weights_file(path: str | Path) -> Path:
    """``model.safetensors`` (of shards, their index) of a checkpoint folder, or of a run folder's finished model.

    Raises:
        ValueError: neither is there.
    """
    for name in WEIGHTS:
        folder = model_folder(path, name)
        if folder is not None:
            return folder / name
    looked_for = [f"{path}/{WEIGHTS[0]}", f"{path}/{FINAL}/{WEIGHTS[0]}"]
    raise ValueError(f"init={path}: wanted a checkpoint or a finished run, found neither of {looked_for} nor shards")


def trained_projector(file: Path) -> bool:
    """Whether a checkpoint's projector was ever trained: its first norm's bias starts at zero and moves at once."""
    found = stored_tensors(file, NORM_BIAS)
    if not found:
        raise ValueError(f"{file} has no {NORM_BIAS}: wanted weights of a WearLlama model")
    return bool(found[NORM_BIAS].any())


def load_initial_weights(model: PreTrainedModel, path: str | Path, *, keep: tuple[str, ...] = ()) -> None:
    """Put a checkpoint's weights into a model of the same sizes; what is trained stays as the model has it.

    Args:
        model: receives the weights.
        path: checkpoint folder, or run folder whose finished model is meant.
        keep: beginnings of the names whose weights stay the model's own (``encoder.``).

    Raises:
        ValueError: no checkpoint there, one with other weights than the model's, or a beginning that no name has.
    """
    file = weights_file(path)
    wanted, found = model.state_dict(), type(model).from_pretrained(file.parent).state_dict()
    idle = [beginning for beginning in keep if not any(name.startswith(beginning) for name in wanted)]
    if idle:
        raise ValueError(f"no weight's name begins with {idle}, wanted beginnings such as 'projector.' or 'decoder.'")
    own = {name: weight for name, weight in wanted.items() if name.startswith(keep)}
    found = {name: weight for name, weight in found.items() if not name.startswith(keep)} | own
    sizes = {name: (_size(found.get(name)), _size(wanted.get(name))) for name in sorted(wanted | found)}
    wrong = [name for name, (there, here) in sizes.items() if there != here]
    if wrong:
        there, here = sizes[wrong[0]]
        raise ValueError(
            f"init={path}: {file} does not fit this model: {len(wrong)} weights differ, "
            f"first {wrong[0]}: found {there}, wanted {here}"
        )
    model.load_state_dict(found)


def _size(weight: Tensor | None) -> str:
    return "nothing" if weight is None else str(tuple(weight.shape))


def fingerprint(settings: Any, files: Iterable[str | Path] = ()) -> str:
    """SHA-256 over plain `settings` and the content of `files`: two runs that share it trained the same thing."""
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode())
    for name in files:
        with Path(name).open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()
