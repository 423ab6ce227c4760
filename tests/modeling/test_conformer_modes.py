"""Ways to run one encoder give one result: packed, compiled, checkpointed, causal, and the stored one's bits."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from wearllama.modeling.conformer import ConformerConfig, ConformerEncoder
from wearllama.modeling.encoder_io import load_encoder

TINY = ConformerConfig(subsampling_width=16, width=32, layers=2, heads=2, kernel=5, dropout=0.0)
LENGTHS = [7, 8, 63, 200]


def twin(encoder: ConformerEncoder, **changes: object) -> ConformerEncoder:
    """The same weights run another way."""
    other = ConformerEncoder(replace(encoder.config, **changes))  # type: ignore[arg-type]
    other.load_state_dict(encoder.state_dict())
    return other


def batch() -> tuple[Tensor, Tensor]:
    torch.manual_seed(1)
    return torch.randn(len(LENGTHS), max(LENGTHS), 80), torch.tensor(LENGTHS)


def gradients(encoder: ConformerEncoder) -> dict[str, Tensor]:
    encoder.train()(*batch()).embeddings_BLD.square().sum().backward()
    found = {name: parameter.grad for name, parameter in encoder.named_parameters()}
    return {name: gradient for name, gradient in found.items() if gradient is not None}


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("subsampling", ["convolution", "stacking"])
def test_packed_equals_padded(subsampling: str, causal: bool) -> None:
    torch.manual_seed(0)
    padded = ConformerEncoder(replace(TINY, subsampling=subsampling, causal=causal))  # type: ignore[arg-type]
    packed = twin(padded, fast=True)
    assert packed._packs(*batch()), "the batch must take the path that is tested"
    with torch.no_grad():
        wanted, wanted_lengths = padded.layer_states(*batch(), layers=(1, 2))
        found, lengths = packed.layer_states(*batch(), layers=(1, 2))
    assert lengths.tolist() == wanted_lengths.tolist()
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=0)
    wanted_gradients = gradients(padded)
    for name, gradient in gradients(packed).items():
        torch.testing.assert_close(gradient, wanted_gradients[name], atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize("fast", [False, True])
def test_checkpointing_keeps_every_gradient(fast: bool) -> None:
    torch.manual_seed(0)
    plain = ConformerEncoder(replace(TINY, fast=fast))
    checkpointed = twin(plain, checkpointing=True)
    kept: list[int] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x.nbytes) or x, lambda x: x):
        wanted, plain_bytes = gradients(plain), sum(kept)
        kept.clear()
        found = gradients(checkpointed)
    assert sum(kept) < 0.5 * plain_bytes
    assert wanted.keys() == found.keys()
    for name, gradient in found.items():
        assert torch.equal(gradient, wanted[name]), name


@pytest.mark.parametrize("fast", [False, True])
def test_one_graph_compiles(fast: bool) -> None:
    torch.manual_seed(0)
    encoder = ConformerEncoder(replace(TINY, layers=1, fast=fast)).eval()
    compiled = torch.compile(encoder, backend="aot_eager", fullgraph=True)
    with torch.no_grad():
        torch.testing.assert_close(compiled(*batch())[0], encoder(*batch())[0], atol=1e-5, rtol=0)


@torch.no_grad()
@pytest.mark.parametrize("subsampling", ["convolution", "stacking"])
def test_causal_convolutions_look_back_only(subsampling: str) -> None:
    """Attention aside, frame i must not change with what follows its own mel frames."""
    torch.manual_seed(0)
    encoder = ConformerEncoder(replace(TINY, subsampling=subsampling, causal=True)).eval()  # type: ignore[arg-type]
    for block in encoder.blocks:
        block.attention.out.weight.zero_()
    feats_BTF = torch.randn(1, 160, 80)
    changed_BTF = feats_BTF.clone()
    changed_BTF[:, 80:] += 1.0
    edge = 80 // encoder.config.stride
    one, other = (encoder(feats, torch.tensor([160])).embeddings_BLD for feats in (feats_BTF, changed_BTF))
    torch.testing.assert_close(one[:, :edge], other[:, :edge], atol=1e-6, rtol=0)
    assert not torch.allclose(one[:, edge], other[:, edge], atol=1e-3)


@torch.no_grad()
def test_the_stored_encoder_keeps_its_arithmetic() -> None:
    """Subsampling and depthwise convolution of the packaged encoder are torch's own, bit for bit."""
    encoder = load_encoder("packaged").eval()
    assert not encoder.config.fast and encoder.config.subsampling == "convolution" and not encoder.config.causal
    x_BCT = torch.randn(2, 80, 100)
    conv = encoder.subsampling.convs[0]
    assert torch.equal(conv(x_BCT), F.conv1d(x_BCT, conv.weight, conv.bias, stride=2, padding=2))
    fast = twin(encoder, fast=True).eval()
    feats_BTF, lengths_B = torch.randn(3, 300, 80), torch.tensor([300, 40, 120])
    torch.testing.assert_close(
        fast(feats_BTF, lengths_B).embeddings_BLD, encoder(feats_BTF, lengths_B).embeddings_BLD, atol=3e-5, rtol=1e-5
    )


@pytest.mark.parametrize(("field", "value"), [("subsampling", "pooling"), ("ff_width", 0)])
def test_bad_choices_are_named(field: str, value: object) -> None:
    with pytest.raises(ValueError, match=field):
        ConformerConfig(**{field: value})  # type: ignore[arg-type]
