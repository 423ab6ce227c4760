"""What a training step costs before a machine is rented: parameters, FLOPs and memory a rank, without allocating any.

Parameters come from the model on torch's meta device.  Activations are what autograd would keep: every tensor saved by
a forward pass over fake tensors, so that the layers of any decoder are counted as they are written.  FLOPs are two for
each active weight and position, and attention; a trained part costs twice its forward pass again in the backward one,
a frozen part that gradients pass through once, a frozen encoder nothing, checkpointed layers one forward pass more.

Shape suffixes: B rows, S decoder positions, L encoder frames, D width, N = B * encoded channels.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from transformers import AutoModelForCausalLM

from wearllama.audio.timebase import MEL_FRAMES_PER_EMBEDDING
from wearllama.modeling.conformer import ConformerEncoder
from wearllama.modeling.factory import ModelConfig, abstract_model
from wearllama.modeling.modeling_wearllama import WearLlamaForConditionalGeneration, decoder_body

MEL_HZ = 100
ADAM_BYTES = 8
"""Two fp32 moments a trained parameter."""
MASTER_BYTES = 4
"""An fp32 copy of each trained parameter that is held in 16 bits."""
STRATEGIES = ("DDP", "ZeRO-2", "ZeRO-3", "FSDP2")


class Batch(NamedTuple):
    """What a rank sees in a step."""

    rows: int
    audio_seconds: float
    text_tokens: int
    target_tokens: int

    @property
    def mel_frames(self) -> int:
        return round(self.audio_seconds * MEL_HZ)

    def positions(self, positions_per_frame: int) -> int:
        """Decoder positions of a row."""
        return -(-self.mel_frames // MEL_FRAMES_PER_EMBEDDING) * positions_per_frame + self.text_tokens


class Part(NamedTuple):
    """One part of the model: ``active`` weights take part in a position's product; the rest waits in memory."""

    name: str
    total: int
    trained: int
    active: int


class Activations(NamedTuple):
    """Bytes that the forward pass of one rank leaves for the backward pass."""

    layers: int
    """All layers of decoder (and encoder, where it is trained), without checkpointing."""
    checkpointed: int
    """Their inputs, and one layer computed again."""
    rest: int
    """Projector, embeddings, logits of the targets."""

    def total(self, checkpointing: bool) -> int:
        return self.rest + (self.checkpointed if checkpointing else self.layers)


def parts_of(model: WearLlamaForConditionalGeneration) -> list[Part]:
    """Parameters of encoder, projector, decoder and added tokens."""
    parts = []
    for name, module in model.named_children():
        parameters = dict(module.named_parameters())
        total = sum(p.numel() for p in parameters.values())
        trained = sum(p.numel() for p in parameters.values() if p.requires_grad)
        parts.append(Part(name, total, trained, _active(name, model, parameters)))
    return parts


def _active(name: str, model: WearLlamaForConditionalGeneration, parameters: dict[str, nn.Parameter]) -> int:
    if name != "decoder":
        return sum(p.numel() for p in parameters.values())
    config = model.config.decoder_config()
    tables = {id(model.get_input_embeddings().weight), id(model.get_output_embeddings().weight)}
    experts = getattr(config, "num_local_experts", None)
    share = config.num_experts_per_tok / experts if experts else 1.0
    return round(sum(
        p.numel() * (share if ".experts." in key else 1.0) for key, p in parameters.items() if id(p) not in tables
    ))  # fmt: skip


def step_flops(model: WearLlamaForConditionalGeneration, parts: list[Part], batch: Batch, checkpointing: bool) -> float:
    """Floating-point operations of one rank's step, forward and backward."""
    by_name = {part.name: part for part in parts}
    forward = forward_flops(model, parts, batch)
    trained = {name: part.trained for name, part in by_name.items()}
    passes = {
        "encoder": 3 if trained["encoder"] else 1,
        "projector": 3 if trained["projector"] else 2,
        "decoder": 2 + trained["decoder"] / max(1, by_name["decoder"].total),
        "head": 3 if trained["decoder"] == by_name["decoder"].total else 2,
    }
    if checkpointing:
        passes["decoder"] += 1
        passes["encoder"] += 1 if trained["encoder"] else 0
    return sum(forward[name] * passes[name] for name in forward)


def forward_flops(model: WearLlamaForConditionalGeneration, parts: list[Part], batch: Batch) -> dict[str, float]:
    """Operations of one forward pass of ``encoder``, ``projector``, ``decoder`` and ``head``."""
    active = {part.name: part.active for part in parts}
    config, text = model.config.encoder_config(), model.config.decoder_config()
    clips = batch.rows * model.config.num_channels
    frames = -(-batch.mel_frames // config.stride)
    front = sum(
        p.numel() * batch.mel_frames / 2 ** (int(name.split(".")[1]) + 1) if name.startswith("convs") else
        p.numel() * frames
        for name, p in model.encoder.subsampling.named_parameters() if p.ndim > 1
    )  # fmt: skip
    blocks = sum(p.numel() for p in model.encoder.blocks.parameters() if p.ndim > 1)
    positions = batch.positions(model.config.positions_per_frame)
    head_dim = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    attended = text.num_attention_heads * head_dim * text.num_hidden_layers * positions**2 / 2
    vocabulary = text.vocab_size + model.config.num_added_tokens
    joined = clips if model.config.channel_fusion().kind != "concat" else batch.rows
    return {
        "encoder": clips * (2 * front + 2 * blocks * frames + 4 * config.width * config.layers * frames**2),
        "projector": 2.0 * active["projector"] * joined * frames / model.projector.stride,
        "decoder": batch.rows * (2.0 * active["decoder"] * positions + 4 * attended),
        "head": 2.0 * vocabulary * text.hidden_size * batch.target_tokens * batch.rows,
    }


def activations(config: ModelConfig, model: WearLlamaForConditionalGeneration, batch: Batch) -> Activations:
    """Saved bytes of one rank's forward pass; fp32 or 16 bits as ``config.dtype`` says."""
    dtype = getattr(torch, config.dtype)
    width = model.config.decoder_config().hidden_size
    positions, rows = batch.positions(model.config.positions_per_frame), batch.rows
    layers = model.config.decoder_config().num_hidden_layers
    with _fake(dtype):
        decoder = AutoModelForCausalLM.from_config(model.config.decoder_config(), dtype=dtype).train()
        embeds_BSD = torch.empty(rows, positions, width, dtype=dtype, requires_grad=True)
        decoded = saved_bytes(decoder, lambda: decoder_body(decoder)(inputs_embeds=embeds_BSD, use_cache=False)[0])
    checkpointed = decoded // layers + layers * rows * positions * width * dtype.itemsize
    encoded = 0
    if not model.encoder_frozen:
        encoded = _encoder_bytes(model, batch, dtype)
        encoder = model.config.encoder_config()
        frames = -(-batch.mel_frames // encoder.stride) * rows * model.config.num_channels
        checkpointed += encoder.layers * frames * encoder.width * dtype.itemsize
        checkpointed = max(checkpointed, checkpointed - decoded // layers + encoded // encoder.layers)
    vocabulary = model.config.decoder_config().vocab_size + model.config.num_added_tokens
    logits = rows * batch.target_tokens * vocabulary * (8 + (dtype.itemsize if dtype != torch.float32 else 0))
    embedded = 2 * rows * positions * width * dtype.itemsize
    return Activations(decoded + encoded, checkpointed, logits + embedded + _projector_bytes(model, batch, dtype))


@contextmanager
def _fake(dtype: torch.dtype) -> Iterator[None]:
    """Tensors without memory; modules that are built inside have weights of ``dtype`` (fake ones cannot be cast)."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with FakeTensorMode():
            yield
    finally:
        torch.set_default_dtype(before)


def saved_bytes(module: nn.Module, run: Callable[[], Tensor]) -> int:
    """Bytes of the distinct storages that autograd keeps after ``run``, parameters of ``module`` left out."""
    own = {parameter.untyped_storage()._cdata for parameter in module.parameters()}
    kept: dict[int, Tensor] = {}

    def keep(tensor: Tensor) -> Tensor:
        if tensor.untyped_storage()._cdata not in own:
            kept[tensor.untyped_storage()._cdata] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        result = run()
    total = sum(tensor.untyped_storage().nbytes() for tensor in kept.values())
    del result
    return total


def _encoder_bytes(model: WearLlamaForConditionalGeneration, batch: Batch, dtype: torch.dtype) -> int:
    config = replace(model.config.encoder_config(), fast=False, checkpointing=False)
    clips = batch.rows * model.config.num_channels
    with _fake(dtype):
        encoder = ConformerEncoder(config).train()
        feats_NTF = torch.empty(clips, batch.mel_frames, config.n_mels, dtype=dtype)
        lengths_N = torch.full((clips,), batch.mel_frames)
        return saved_bytes(encoder, lambda: encoder(feats_NTF, lengths_N).embeddings_BLD)


def _projector_bytes(model: WearLlamaForConditionalGeneration, batch: Batch, dtype: torch.dtype) -> int:
    config = model.config
    frames = -(-batch.mel_frames // config.encoder_config().stride)
    with _fake(dtype):
        projector = type(model.projector)(
            config.projector_config(), config.encoder_config().width, config.decoder_config().hidden_size,
            config.num_channels, config.channel_fusion(),
        ).train()  # fmt: skip
        x_BCLD = torch.empty(batch.rows, config.num_channels, frames, config.encoder_config().width, dtype=dtype)
        return saved_bytes(projector, lambda: projector(x_BCLD, torch.ones(batch.rows, frames, dtype=torch.bool)))


def rank_bytes(
    strategy: str, model: WearLlamaForConditionalGeneration, parts: list[Part], kept: Activations, *,
    world_size: int, checkpointing: bool,
) -> int:  # fmt: skip
    """Peak of one rank: states, and the larger of what the forward pass leaves and what the backward pass makes.

    Gradients are freed between steps and come into being while activations go, so both are never whole at once.
    """
    itemsize = model.dtype.itemsize
    trained = sum(part.trained for part in parts)
    weights, gradients = sum(part.total for part in parts) * itemsize, trained * itemsize
    optimizer = trained * (ADAM_BYTES + (MASTER_BYTES if itemsize < 4 else 0))
    layer = largest_layer(model) * itemsize
    working = kept.layers // model.config.decoder_config().num_hidden_layers
    forward = kept.total(checkpointing)
    if strategy == "DDP":
        buckets = gradients if world_size > 1 else 0  # DDP's own copy, which it sends
        return weights + optimizer + buckets + max(forward, gradients + working)
    if strategy == "ZeRO-2":
        return weights + optimizer // world_size + max(forward, gradients // world_size + layer + working)
    gathered = 2 * layer if strategy == "ZeRO-3" else 2 * layer + (layer if trained else 0)
    shards = (weights + optimizer) // world_size
    return shards + gathered + max(forward, gradients // world_size + working)


def largest_layer(model: WearLlamaForConditionalGeneration) -> int:
    """Parameters of the largest layer, which sharded training gathers whole."""
    blocks = [*model.encoder.blocks, *decoder_body(model.decoder).layers]
    return max(sum(p.numel() for p in block.parameters()) for block in blocks)


def planned_model(config: ModelConfig, *, train_encoder: bool) -> WearLlamaForConditionalGeneration:
    """The model on the meta device, its encoder frozen unless it is to be trained."""
    model = abstract_model(config)
    model.config.freeze = {**config.freeze, "encoder": not train_encoder}
    model.apply_freeze()
    return model
