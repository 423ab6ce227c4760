"""Model FLOPs of a batch, and what the hardware could do: their ratio is the MFU (Chowdhery et al. 2022, appendix B).

Counted is what the mathematics needs of the valid positions: padding and recomputed activations are none of it.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from wearllama.audio.timebase import MEL_FRAMES_PER_EMBEDDING

PEAK_TFLOPS = {
    "H200": 989.0,
    "H100": 989.0,
    "H800": 989.0,
    "B200": 2250.0,
    "A100": 312.0,
    "A800": 312.0,
    "L40S": 362.0,
    "L4": 121.0,
    "A10": 125.0,
    "4090": 165.0,
    "3090": 71.0,
}
"""Dense bfloat16 peaks of vendors' data sheets (SXM where there are several), by a part of the device's name."""


@dataclass(frozen=True)
class FlopsModel:
    """FLOPs by what is counted in a batch: 2 a weight forward, 2 where gradients pass, 2 where the weight learns."""

    per_frame: float
    """Of encoder and projector, a mel frame: all channels, the encoder's first convolutions counted like its blocks."""
    per_position: float
    """Of the decoder's layers, without the products of attention scores."""
    per_square: float
    """Of those: times the sum of squared row lengths (causal, so half of it)."""
    per_target: float
    """Of the head."""

    def of(self, *, frames: float, positions: float, squares: float, targets: float) -> float:
        """FLOPs of a batch with so many mel frames, decoder positions, squared row lengths and targets."""
        return (
            self.per_frame * frames
            + self.per_position * positions
            + self.per_square * squares
            + self.per_target * targets
        )


def flops_model(model: Any) -> FlopsModel:
    """Read off a WearLlama: sizes, and what of it is trained. Call before its parameters are cut over ranks."""
    text = model.config.decoder_config()
    upstream = _learns(model.encoder) or _learns(model.projector)
    passes = upstream or _learns(model.decoder)
    layers = [p for name, p in model.decoder.named_parameters() if "embed_tokens" not in name and "lm_head" not in name]
    head_learns = _learns(model.get_output_embeddings())
    audio = _flops(model.encoder.parameters(), _learns(model.encoder)) + _flops(model.projector.parameters(), upstream)
    return FlopsModel(
        per_frame=audio * model.config.num_channels / MEL_FRAMES_PER_EMBEDDING,
        per_position=_flops(layers, passes),
        per_square=(6.0 if passes else 2.0) * text.num_hidden_layers * text.hidden_size,
        per_target=(2.0 + 2.0 * passes + 2.0 * head_learns) * text.vocab_size * text.hidden_size,
    )


def _learns(module: nn.Module) -> bool:
    return any(parameter.requires_grad for parameter in module.parameters())


def _flops(parameters: Iterable[nn.Parameter], passes: bool) -> float:
    return sum((2.0 + 2.0 * passes + 2.0 * p.requires_grad) * p.numel() for p in parameters)


def peak_flops(device: torch.device, dtype: torch.dtype) -> float:
    """FLOPs a second that the device could do: by the data sheet, or as a large product reaches them here and now."""
    if device.type == "cuda":
        name = torch.cuda.get_device_name(device)
        for part, tera in PEAK_TFLOPS.items():
            if part in name and dtype in (torch.bfloat16, torch.float16):
                return tera * 1e12
    return measured_flops(device, dtype)


def measured_flops(device: torch.device, dtype: torch.dtype, size: int = 1024, rounds: int = 3) -> float:
    """The best of a few products of square matrices."""
    left, right = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    best = float("inf")
    for _ in range(rounds + 1):  # the first warms up
        start = time.perf_counter()
        product = left @ right
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        best = min(best, time.perf_counter() - start)
        del product
    return 2.0 * size**3 / best
