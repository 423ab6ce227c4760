"""Distillation from the transcript: where the model hears, it shall answer as its decoder does when it reads.

The teacher is the same decoder without its LoRA, under the same prompt with ``metadata.transcript`` in place of the
sound; the loss is KL(teacher || student) over the target's positions, as in response distillation for speech language
models (AudioChatLlama, Fathullah et al. 2024, aligns by the text of the replies; this keeps their distribution too).

Shapes: N supervised positions of a batch, K those of rows with a transcript, V vocabulary.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from peft.tuners.lora import LoraLayer
from torch import Tensor, nn

from wearllama.data.dataset import Item
from wearllama.data.manifest import Example

TEACHER, TAUGHT = "teacher", "taught"
"""Keys of a batch: the teacher's own batch, and which supervised positions have a teacher, (N,) bool."""


def as_text(item: Item) -> tuple[list[dict[str, Any]], str]:
    """Messages of an item with its transcript where the sound is, and its target."""
    transcript = str(item.example.metadata.get("transcript", ""))
    messages = [
        {"role": turn["role"], "content": turn["content"] if isinstance(turn["content"], str) else transcript}
        for turn in item.example.messages
    ]
    return messages, item.example.target


def has_teacher(example: Example) -> bool:
    """Whether what a row lets hear can be read as well."""
    return bool(example.audio) and "transcript" in example.metadata


def teacher_batch(items: Sequence[Item], processor: Any) -> tuple[dict[str, Tensor], Tensor]:
    """The rows that have sound and a transcript, as text; and which rows they are, (B,) bool.

    Where there is none the first row stands in and no row is marked: every rank's teacher runs in every step, since
    ranks that share weights wait for each other.
    """
    has_teacher_B = torch.tensor([has_teacher(item.example) for item in items])
    taught = [item for item, has in zip(items, has_teacher_B.tolist(), strict=True) if has] or list(items[:1])
    texts = [as_text(item) for item in taught]
    batch = processor([messages for messages, _ in texts], targets=[target for _, target in texts])
    return dict(batch), has_teacher_B


@contextmanager
def without_lora(model: nn.Module) -> Iterator[None]:
    """The decoder as it was before LoRA. (Scaling, not switching off: that would touch ``requires_grad``.)"""
    layers = [module for module in model.modules() if isinstance(module, LoraLayer)]
    for layer in layers:
        layer.scale_layer(0.0)
    try:
        yield
    finally:
        for layer in layers:
            layer.unscale_layer()


@torch.no_grad()
def teacher_logits(model: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
    """Logits (K, V) of the reading decoder at the targets."""
    with without_lora(model):
        logits: Tensor = model(**batch, target_logits=True).logits
    return logits


def divergence(student_NV: Tensor, teacher_KV: Tensor, taught_N: Tensor, *, temperature: float) -> Tensor:
    """Sum over the K taught positions of KL(teacher || student), times the temperature squared (Hinton et al. 2015)."""
    if not bool(taught_N.any()):
        return 0.0 * student_NV.sum()
    student_KV = student_NV[taught_N]
    assert student_KV.shape == teacher_KV.shape, (student_KV.shape, teacher_KV.shape)
    return temperature**2 * F.kl_div(
        F.log_softmax(student_KV / temperature, -1),
        F.log_softmax(teacher_KV.detach() / temperature, -1),
        reduction="sum",
        log_target=True,
    )


def check_taught(examples: Sequence[Example]) -> None:
    """ValueError where no row has both sound and words."""
    if not any(has_teacher(example) for example in examples):
        raise ValueError(f"train.distill needs rows with sound and metadata.transcript, found none of {len(examples)}")


def check_teacher(model: nn.Module) -> None:
    """ValueError where the decoder itself is trained: its own reading would move with it."""
    moving = [
        name
        for name, parameter in model.named_parameters()
        if name.startswith("decoder.") and parameter.requires_grad and ".lora_" not in name
    ]
    if moving:
        raise ValueError(
            f"train.distill needs a decoder that stays: model.lora, or model.freeze={{decoder: true}}; {moving[0]} and "
            f"{len(moving) - 1} more are trained"
        )
