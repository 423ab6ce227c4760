"""Trainer for encoder pre-training, its word error rate, and the folder that the finished encoder is kept in."""

import hashlib
from collections import defaultdict
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import jiwer
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import Trainer, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

from wearllama.atomic import replacing, write_json
from wearllama.audio.frontend import LogMelConfig
from wearllama.data.ctc_text import WordPieces
from wearllama.modeling.pretraining import EncoderForPretraining, PretrainingTargets, greedy_ctc

LOSSES = ("piece", "char", "teacher", "band", "role", "drr")


class EncoderTrainer(Trainer):
    """transformers.Trainer over whole batches; logs every loss by name and stops on a non-finite one."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._sums: dict[str, float] = defaultdict(float)
        self._count = 0

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        with _quick_attention(self.args):
            outputs = model(
                inputs["feats_BTF"],
                inputs["mel_lengths_B"],
                PretrainingTargets(**inputs["targets"]),
                inputs.get("seen_feats_BTF"),
            )
        if not outputs["loss"].isfinite():
            parts = {name: float(outputs[name]) for name in LOSSES}
            raise FloatingPointError(f"step {self.state.global_step}: loss is not finite: {parts}")
        for name in LOSSES:
            self._sums[name] += float(outputs[name].detach())
        self._count += 1
        return (outputs["loss"], outputs) if return_outputs else outputs["loss"]

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        if self._count and "loss" in logs:
            logs |= {name: round(total / self._count, 4) for name, total in self._sums.items()}
            self._sums, self._count = defaultdict(float), 0
        super().log(logs, start_time)


def _quick_attention(args: TrainingArguments) -> AbstractContextManager[None]:
    """On a CPU in bfloat16 the fused attention is slow backward (docs/decisions.md): plain products instead."""
    return sdpa_kernel(SDPBackend.MATH) if args.bf16 and args.use_cpu else nullcontext()


def only_item(items: list[dict[str, Any]]) -> dict[str, Any]:
    """Collator of a loader whose items are whole batches already."""
    assert len(items) == 1
    return items[0]


@torch.no_grad()
def word_error_rate(model: EncoderForPretraining, batches: Iterable[dict[str, Any]], pieces: WordPieces) -> float:
    """Word error rate of greedy CTC over batches of a corpus (jiwer's corpus-level rate)."""
    model.eval()
    wanted: list[str] = []
    heard: list[str] = []
    for batch in batches:
        outputs = model(batch["feats_BTF"], batch["mel_lengths_B"])
        heard += [pieces.decode(ids) for ids in greedy_ctc(outputs["piece_logits"], outputs["lengths"])]
        wanted += _texts(batch["targets"], pieces)
    return float(jiwer.wer(wanted, heard))


def _texts(targets: dict[str, Tensor], pieces: WordPieces) -> list[str]:
    rows = zip(targets["pieces_BU"].tolist(), targets["piece_lengths_B"].tolist(), strict=True)
    return [pieces.decode(ids[:length]) for ids, length in rows]


def export_encoder(model: EncoderForPretraining, pieces: WordPieces, folder: Path, facts: dict[str, Any]) -> Path:
    """Write ``encoder.safetensors`` (fp16; ``encoder.*`` and the heads, so that pre-training can go on from it),
    config, word pieces and the facts of the run."""
    kept = {name: tensor.detach().to(torch.float16).contiguous() for name, tensor in model.state_dict().items()}
    weights = folder / "encoder.safetensors"
    with replacing(weights) as temporary:
        save_file(kept, temporary, metadata={"format": "pt"})
    pieces.save(folder / "pieces.json")
    config = {"encoder": asdict(model.config.encoder), "frontend": asdict(LogMelConfig()), "ctc": "pieces.json"}
    facts = facts | {"sha256": hashlib.sha256(weights.read_bytes()).hexdigest()}
    write_json(folder / "config.json", config, indent=2, ensure_ascii=True)
    write_json(folder / "training.json", facts, indent=2, ensure_ascii=True)
    return weights


def initial_weights(path: Path) -> dict[str, Tensor]:
    """Weights to start from: an exported encoder folder, or the newest checkpoint of a run folder; fp32."""
    newest = get_last_checkpoint(str(path))
    for candidate in (path / "encoder.safetensors", Path(newest or path) / "model.safetensors"):
        if candidate.is_file():
            return {name: tensor.float() for name, tensor in load_file(candidate).items()}
    raise ValueError(f"init={path}: neither encoder.safetensors nor a checkpoint here")
