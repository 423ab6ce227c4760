"""Llama's layers written out for a few positions behind a long past, where calls cost as much as products.

The same mathematics and modules (LoRA included) as transformers' ``LlamaModel`` without what whole batches need; used
by ``prompt_cache`` for decoders of exactly that class on a CPU, whose other users keep transformers' own code.

Shape suffixes: P new positions, L all positions, E width, H heads, G key and value heads, K head width; N blocks of B
outputs.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import Cache
from transformers.models.llama.modeling_llama import LlamaAttention, LlamaDecoderLayer, LlamaModel, LlamaRMSNorm

FEW = range(2, 14)
BLOCK = 64


def fits(body: nn.Module) -> bool:
    """Whether ``read`` knows the decoder: a plain Llama in float32 on a CPU."""
    if type(body) is not LlamaModel or body.config.hidden_act != "silu":
        return False
    return (
        body.config._attn_implementation in ("sdpa", "eager")
        and body.norm.weight.device.type == "cpu"
        and body.norm.weight.dtype == torch.float32
    )


def read(body: LlamaModel, embeds_1PE: Tensor, cache: Cache) -> Tensor:
    """Hidden states (1, P, E) of positions that follow those in ``cache``, which takes them in."""
    count, start = embeds_1PE.shape[1], int(cache.get_seq_length())
    places_1P = torch.arange(start, start + count)[None]
    cos_1PK, sin_1PK = body.rotary_emb(embeds_1PE, places_1P)
    half = sin_1PK.shape[-1] // 2
    turn_2PK = torch.stack((cos_1PK[0], torch.cat((-sin_1PK[0, :, :half], sin_1PK[0, :, half:]), dim=-1)))
    seen_PL = None if count == 1 else torch.arange(start + count) <= places_1P[0, :, None]
    x_1PE = embeds_1PE
    for number, layer in enumerate(body.layers):
        assert isinstance(layer, LlamaDecoderLayer)
        x_1PE = x_1PE + _attend(layer.self_attn, _norm(layer.input_layernorm, x_1PE), cache, number, turn_2PK, seen_PL)
        mlp, y_1PE = layer.mlp, _norm(layer.post_attention_layernorm, x_1PE)
        x_1PE = x_1PE + _product(mlp.down_proj, F.silu(_product(mlp.gate_proj, y_1PE)) * _product(mlp.up_proj, y_1PE))
    return _norm(body.norm, x_1PE)


def _attend(
    attention: LlamaAttention, x_1PE: Tensor, cache: Cache, number: int, turn_2PK: Tensor, seen_PL: Tensor | None
) -> Tensor:
    shape = (1, x_1PE.shape[1], -1, attention.head_dim)
    q_1HPK = _turn(_product(attention.q_proj, x_1PE).view(shape).transpose(1, 2), turn_2PK)
    k_1GPK = _turn(attention.k_proj(x_1PE).view(shape).transpose(1, 2), turn_2PK)
    k_1GLK, v_1GLK = cache.update(k_1GPK, attention.v_proj(x_1PE).view(shape).transpose(1, 2), number)
    mixed_1HPK = F.scaled_dot_product_attention(
        q_1HPK, k_1GLK, v_1GLK, attn_mask=seen_PL, scale=attention.scaling, enable_gqa=True
    )
    return _product(attention.o_proj, mixed_1HPK.transpose(1, 2).reshape(x_1PE.shape[0], x_1PE.shape[1], -1))


def _product(layer: nn.Module, x_1PE: Tensor) -> Tensor:
    """A linear layer of a few positions, by blocks of its outputs.

    For 2 to 13 rows MKL copies the whole matrix into a layout of its own first, which takes longer than the product;
    blocks of it are read where they are (tools/benchmark.py ttft).
    """
    few = x_1PE.shape[1] in FEW and torch.backends.mkl.is_available()
    if not few or type(layer) is not nn.Linear or layer.bias is not None or layer.out_features % BLOCK:
        return layer(x_1PE)
    blocks_NEB = layer.weight.view(-1, BLOCK, layer.in_features).transpose(1, 2)
    y_NPB = torch.bmm(x_1PE.expand(len(blocks_NEB), -1, -1), blocks_NEB)
    return y_NPB.transpose(0, 1).reshape(1, x_1PE.shape[1], layer.out_features)


def _turn(x_1HPK: Tensor, turn_2PK: Tensor) -> Tensor:
    shifted_1HPK = x_1HPK.roll(x_1HPK.shape[-1] // 2, dims=-1)
    return torch.addcmul(x_1HPK * turn_2PK[0], shifted_1HPK, turn_2PK[1])


def _norm(layer: LlamaRMSNorm, x_1PE: Tensor) -> Tensor:
    return F.rms_norm(x_1PE, layer.weight.shape, layer.weight, layer.variance_epsilon)
