"""Encoder weights as a folder: ``encoder.safetensors`` and ``config.json``, with or without a pre-training head.

The same reader takes what ``recipes/pretrain_encoder.py`` exports, the packaged encoder, and any WearLlama checkpoint
(``model.safetensors``): it wants ``encoder.*`` tensors and leaves others alone.
"""

import json
from pathlib import Path
from typing import Any

from safetensors import safe_open

from wearllama.modeling.conformer import ConformerConfig, ConformerEncoder

PACKAGED = Path(__file__).resolve().parents[1] / "assets" / "encoder_demo"
WEIGHTS = ("encoder.safetensors", "model.safetensors")
PREFIX = "encoder."


def find_encoder(name_or_path: str | Path) -> Path:
    """The weights file of ``packaged``, a folder or a file; ValueError names what was looked for."""
    path = PACKAGED if str(name_or_path) == "packaged" else Path(name_or_path)
    candidates = [path] if path.suffix == ".safetensors" else [path / name for name in WEIGHTS]
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    raise ValueError(
        f"encoder={name_or_path}: no {' or '.join(str(c) for c in candidates)}; "
        "wanted packaged, scratch or such a folder"
    )


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
    with safe_open(path, framework="pt") as stored:
        names = [name for name in sorted(stored.keys()) if name.startswith(PREFIX)]
        state = {name.removeprefix(PREFIX): stored.get_tensor(name).float() for name in names}
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
