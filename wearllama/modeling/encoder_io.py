"""Encoder weights as a folder: ``encoder.safetensors`` and ``config.json``, with or without a pre-training head.

The same reader takes what ``recipes/pretrain_encoder.py`` exports, the packaged encoder, and any WearLlama checkpoint
(``model.safetensors``, or its shards): it wants ``encoder.*`` tensors and leaves others alone.  An encoder whose
convolutions look back only may start from one whose convolutions are centred (``look_back``).
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch.nn.functional as F
from safetensors import safe_open
from torch import Tensor

from wearllama.modeling.conformer import ConformerConfig, ConformerEncoder

PACKAGED = Path(__file__).resolve().parents[1] / "assets" / "encoder_demo"
WEIGHTS = ("encoder.safetensors", "model.safetensors", "model.safetensors.index.json")
HEAD = "piece_head"
"""Name of the CTC head over word pieces in what recipes/pretrain_encoder.py exports."""
PREFIX = "encoder."
SUBSAMPLING, DEPTHWISE = r"subsampling\.convs\.\d+\.weight$", r"convolution\.depthwise\.weight$"


def find_encoder(name_or_path: str | Path) -> Path:
    """The weights file (of shards, their index) of ``packaged``, a folder or a file; else a ValueError that says so."""
    path = PACKAGED if str(name_or_path) == "packaged" else Path(name_or_path)
    candidates = [path] if path.suffix == ".safetensors" else [path / name for name in WEIGHTS]
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    raise ValueError(
        f"encoder={name_or_path}: no {' or '.join(str(c) for c in candidates)}; "
        "wanted packaged, scratch or such a folder"
    )


def weight_files(file: Path) -> list[Path]:
    """A weights file itself, or the shards that an index names."""
    if file.suffix != ".json":
        return [file]
    names = json.loads(file.read_text(encoding="utf-8"))["weight_map"].values()
    shards = [file.with_name(name) for name in sorted(set(names))]
    missing = [path.name for path in shards if not path.is_file()]
    if missing:
        raise ValueError(f"{file} names {len(shards)} shards, but {', '.join(missing)} is not there")
    return shards


def stored_tensors(file: Path, beginning: str) -> dict[str, Tensor]:
    """Tensors whose names begin so, float32, of a weights file or of the shards that an index names."""
    found: dict[str, Tensor] = {}
    for path in weight_files(file):
        with safe_open(path, framework="pt") as stored:
            names = [name for name in sorted(stored.keys()) if name.startswith(beginning)]
            found |= {name: stored.get_tensor(name).float() for name in names}
    return found


def stored_config(name_or_path: str | Path) -> dict[str, Any]:
    """The config.json beside the weights: ``encoder`` and, where it was exported, ``frontend``."""
    path = find_encoder(name_or_path).with_name("config.json")
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(f"encoder={name_or_path}: weights without {path}") from None
    if "encoder" not in fields:
        raise ValueError(f"{path}: no field 'encoder' with the sizes, found {sorted(fields)}")
    return fields


def encoder_config(name_or_path: str | Path) -> ConformerConfig:
    """Sizes of the stored encoder, from the config.json beside its weights."""
    path = find_encoder(name_or_path).with_name("config.json")
    fields = stored_config(name_or_path)["encoder"]
    unknown = set(fields) - set(ConformerConfig.__dataclass_fields__)
    if unknown:
        raise ValueError(f"{path}: unknown encoder field {sorted(unknown)}")
    return ConformerConfig(**fields)


def load_encoder(name_or_path: str | Path) -> ConformerEncoder:
    """Read an encoder in float32; ValueError where tensors are missing, unknown or of another size."""
    encoder = ConformerEncoder(encoder_config(name_or_path))
    load_encoder_weights(encoder, name_or_path)
    return encoder


def load_encoder_weights(encoder: ConformerEncoder, name_or_path: str | Path) -> None:
    """Fill ``encoder`` in place from ``encoder.*`` tensors."""
    path = find_encoder(name_or_path)
    state = {name.removeprefix(PREFIX): weight for name, weight in stored_tensors(path, PREFIX).items()}
    if encoder.config.causal and not encoder_config(name_or_path).causal:
        state = look_back(state)
    wanted = {name: tuple(value.shape) for name, value in encoder.state_dict().items()}
    found = {name: tuple(value.shape) for name, value in state.items()}
    wrong = sorted(name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name))
    if wrong:
        name = wrong[0]
        raise ValueError(
            f"{path}: {len(wrong)} encoder tensors differ, first {PREFIX}{name}: "
            f"found {found.get(name, 'nothing')}, wanted {wanted.get(name, 'nothing')}"
        )
    encoder.load_state_dict(state)


def look_back(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weights of centred convolutions for causal ones: every tap stays with its frame, taps on later frames fall away.

    What is lost has to be learnt again: this is a start for training (``encoder.causal``), no conversion.
    """
    found = dict(state)
    for name, weight in state.items():
        taps = weight.shape[-1] if weight.ndim else 0
        later = 1 if re.search(SUBSAMPLING, name) else taps // 2 if re.search(DEPTHWISE, name) else 0
        if later:  # a causal subsampling frame ends one frame before the centred one's window does
            found[name] = F.pad(weight, (later, 0))[..., :taps].contiguous()
    return found


def stored_head(weights: Path) -> tuple[Tensor, Tensor]:
    """Weight (V, D) and bias of the CTC head beside a stored encoder; ValueError where none was kept."""
    found = stored_tensors(weights, f"{HEAD}.")
    if found.keys() != {f"{HEAD}.weight", f"{HEAD}.bias"}:
        raise ValueError(f"{weights} has no {HEAD}.weight with its bias, wanted an encoder exported with its CTC head")
    return found[f"{HEAD}.weight"], found[f"{HEAD}.bias"]
