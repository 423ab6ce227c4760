"""A real small run whose memory a plan must tell: ``python -m wearllama.training.plan_check`` prints its peak.

It trains on random features on one CPU thread and reports the growth of the process' resident memory, from after the
libraries are in use until the peak of the second and third step.
"""

import json
import os
import sys
from dataclasses import replace

import torch

from wearllama.modeling.factory import ModelConfig, abstract_model
from wearllama.training.plan import Batch

MODEL = ModelConfig(
    name="check",
    encoder_config={"subsampling_width": 64, "width": 64, "layers": 2, "heads": 2, "kernel": 5, "dropout": 0.0},
    decoder_config={
        "vocab_size": 4096, "hidden_size": 512, "intermediate_size": 1536, "num_hidden_layers": 8,
        "num_attention_heads": 8, "num_key_value_heads": 8, "tie_word_embeddings": True,
    },
)  # fmt: skip
"""30 M parameters, fp32."""
BATCH = Batch(rows=2, audio_seconds=8.0, text_tokens=184, target_tokens=32)


def main(checkpointing: bool) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    _train(replace(MODEL, decoder_config={**MODEL.decoder_config, "num_hidden_layers": 1, "hidden_size": 64}), 1, False)
    before = _resident()
    _train(MODEL, 3, checkpointing)
    print(json.dumps({"bytes": _peak() - before}))


def _train(config: ModelConfig, steps: int, checkpointing: bool) -> None:
    model = abstract_model(config)
    model.config.freeze = {"encoder": True}
    model.to_empty(device="cpu")
    with torch.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            if tensor.is_floating_point():
                tensor.normal_(std=0.02)
    model.apply_freeze()
    model.train()
    if checkpointing:
        model.gradient_checkpointing_enable()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad])
    audio = BATCH.positions(model.config.positions_per_frame) - BATCH.text_tokens
    input_ids = torch.ones(BATCH.rows, audio + BATCH.text_tokens, dtype=torch.long)
    input_ids[:, 10 : 10 + audio] = model.config.audio_token_id
    labels = torch.full_like(input_ids, -100)
    labels[:, -BATCH.target_tokens :] = 1
    features = torch.randn(BATCH.rows, model.config.num_channels, BATCH.mel_frames, 80)
    lengths = torch.full((BATCH.rows,), BATCH.mel_frames)
    for _ in range(steps):
        model(input_ids=input_ids, input_features=features, feature_lengths=lengths, labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def _resident() -> int:
    with open("/proc/self/statm", encoding="ascii") as stream:
        return int(stream.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _peak() -> int:
    """Most memory resident at once since the program began; ``getrusage`` counts the process it came from as well."""
    with open("/proc/self/status", encoding="ascii") as stream:
        [line] = [line for line in stream if line.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024


if __name__ == "__main__":
    main(checkpointing="checkpointing" in sys.argv[1:])
