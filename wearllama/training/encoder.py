"""What encoder pre-training ends with: its word error rate, and the folder that the finished encoder is kept in."""

import hashlib
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import jiwer
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers.trainer_utils import get_last_checkpoint

from wearllama.atomic import replacing, write_json
from wearllama.audio.frontend import LogMelConfig
from wearllama.data.ctc_text import WordPieces
from wearllama.modeling.conformer import ConformerConfig, ConformerEncoder
from wearllama.modeling.encoder_io import PREFIX, encoder_config, look_back
from wearllama.modeling.pretraining import EncoderForPretraining, greedy_ctc
from wearllama.training.checkpoint import last_complete_checkpoint
from wearllama.training.resume import LOG


@torch.no_grad()
def word_error_rate(model: EncoderForPretraining, batches: Iterable[dict[str, Any]], pieces: WordPieces) -> float:
    """Word error rate of greedy CTC over batches of a corpus (jiwer's corpus-level rate)."""
    model.eval()
    wanted: list[str] = []
    heard: list[str] = []
    device = next(model.parameters()).device
    for batch in batches:
        outputs = model(batch["feats_BTF"].to(device), batch["mel_lengths_B"].to(device))
        heard += [pieces.decode(ids) for ids in greedy_ctc(outputs["piece_logits"], outputs["lengths"])]
        wanted += _texts(batch["targets"], pieces)
    return float(jiwer.wer(wanted, heard))


def _texts(targets: dict[str, Tensor], pieces: WordPieces) -> list[str]:
    rows = zip(targets["pieces_BU"].tolist(), targets["piece_lengths_B"].tolist(), strict=True)
    return [pieces.decode(ids[:length]) for ids, length in rows]


def export_encoder(
    model: nn.Module,
    encoder: ConformerConfig,
    folder: Path,
    facts: dict[str, Any],
    *,
    pieces: WordPieces | None = None,
    heads: bool = True,
) -> Path:
    """Write an encoder folder as ``encoder=FOLDER`` of recipes/sft.py takes it; returns the weights' path.

    Args:
        model: has its encoder under ``encoder``.
        encoder: its sizes.
        folder: gets ``encoder.safetensors`` (fp16), config.json, training.json and, with words, pieces.json.
        facts: of the run, for training.json.
        pieces: word pieces of the CTC head, if there is one.
        heads: keep the heads too, so that pre-training can go on from the folder.
    """
    names = [name for name in model.state_dict() if heads or name.startswith(PREFIX)]
    kept = {name: model.state_dict()[name].detach().to(torch.float16).contiguous() for name in names}
    weights = folder / "encoder.safetensors"
    with replacing(weights) as temporary:
        save_file(kept, temporary, metadata={"format": "pt"})
    config: dict[str, Any] = {"encoder": asdict(encoder), "frontend": asdict(LogMelConfig())}
    if pieces is not None:
        pieces.save(folder / "pieces.json")
        config["ctc"] = "pieces.json"
    facts = facts | {"sha256": hashlib.sha256(weights.read_bytes()).hexdigest()}
    write_json(folder / "config.json", config, indent=2, ensure_ascii=True)
    write_json(folder / "training.json", facts, indent=2, ensure_ascii=True)
    return weights


def load_start(model: nn.Module, path: Path) -> bool:
    """Start ``model`` from an exported encoder folder, or the newest checkpoint of a run folder.

    Where the stored objective is another one, or its heads were not kept, only the encoder is taken.  A causal encoder
    may start from an exported one with centred convolutions (``look_back``).

    Returns:
        Whether heads came with it.

    Raises:
        ValueError: neither is there, or its encoder is of other sizes.
    """
    found, wanted = initial_weights(path), model.state_dict()
    if isinstance(model.encoder, ConformerEncoder) and model.encoder.config.causal and _is_centred(path):
        found = look_back(found)
    if _sizes(found) == _sizes(wanted):
        model.load_state_dict(found)
        return True
    found, own = _encoder_only(found), _encoder_only(wanted)
    wrong = sorted(name for name in found.keys() | own.keys() if _sizes(found).get(name) != _sizes(own).get(name))
    if wrong:
        there, here = _sizes(found).get(wrong[0], "nothing"), _sizes(own).get(wrong[0], "nothing")
        raise ValueError(
            f"init={path}: {len(wrong)} encoder weights differ, first {wrong[0]}: found {there}, wanted {here}"
        )
    model.load_state_dict(wanted | found)
    return False


def _is_centred(path: Path) -> bool:
    """Whether an exported folder's encoder has centred convolutions; runs go on with their own kind."""
    return (path / "encoder.safetensors").is_file() and not encoder_config(path).causal


def _encoder_only(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor for name, tensor in state.items() if name.startswith(PREFIX)}


def _sizes(state: dict[str, Tensor]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in state.items()}


def initial_weights(path: Path) -> dict[str, Tensor]:
    """Weights to start from: an exported encoder folder, or the newest whole checkpoint of a run folder; fp32."""
    newest = last_complete_checkpoint(path)
    if newest is None and not (path / LOG).is_file():  # a run from before checkpoints were marked
        newest = get_last_checkpoint(str(path))
    for candidate in (path / "encoder.safetensors", Path(newest or path) / "model.safetensors"):
        if candidate.is_file():
            return {name: tensor.float() for name, tensor in load_file(candidate).items()}
    raise ValueError(f"init={path}: neither encoder.safetensors nor a whole checkpoint here")
