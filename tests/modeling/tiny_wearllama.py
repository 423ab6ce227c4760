"""A tiny real model and processor, shared by this folder's tests."""

import numpy as np
import torch
from numpy.typing import NDArray

from wearllama.modeling.factory import ModelConfig, build_model, build_processor

ENCODER = {"subsampling_width": 16, "width": 32, "layers": 2, "heads": 2, "ff_mult": 2, "kernel": 5, "dropout": 0.1}
DECODER = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": True,
}
SYSTEM = {"role": "system", "content": "Wearer asks: answer or call. Else [Mute]."}
HEARD = [SYSTEM, {"role": "user", "content": [{"type": "audio"}]}]
READ = [SYSTEM, {"role": "user", "content": "Send Maria some money."}]


def tiny_config(**changes):
    fields = {"name": "test", "encoder_config": ENCODER, "decoder_config": DECODER, "freeze": {}}
    return ModelConfig(**(fields | changes))


def build(**changes):
    """Processor and model with weights large enough for outputs to depend on what was heard."""
    torch.manual_seed(0)
    config = tiny_config(**changes)
    processor = build_processor(config)
    model = build_model(config, processor).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim == 2 and not name.startswith("encoder."):
                parameter.normal_(std=0.3)
        model.projector.norm_out.weight.fill_(1.0)
    return processor, model


def clip(seconds: float, seed: int = 0, channels: int = 5) -> NDArray[np.float32]:
    noise = np.random.default_rng(seed).standard_normal((channels, int(16_000 * seconds)))
    return (0.05 * noise).astype(np.float32)
