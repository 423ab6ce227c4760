"""The papers' sizes, counted on the meta device: nothing is allocated."""

from dataclasses import dataclass, field, replace

import pytest
import torch
from tiny_wearllama import HEARD, build, clip
from torch import nn

from wearllama.modeling.configuration import WearLlamaConfig
from wearllama.modeling.conformer import ConformerConfig, ConformerEncoder
from wearllama.modeling.factory import ModelConfig, abstract_model
from wearllama.modeling.projector import Projector, ProjectorConfig
from wearllama_launch import CONF_DIR, compose_config


@dataclass(kw_only=True)
class Schema:
    """What of a command these tests need."""

    model: ModelConfig = field(default_factory=ModelConfig)


def composed(name: str) -> ModelConfig:
    """conf/model/``name``.yaml."""
    config, _ = compose_config("plan", Schema, [f"model={name}"], CONF_DIR)
    return config.model


def count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.fixture(scope="module")
def papers() -> ModelConfig:
    return composed("wearllama_1b")


def test_encoder_has_the_papers_parameters(papers: ModelConfig) -> None:
    with torch.device("meta"):
        encoder = ConformerEncoder(ConformerConfig(**papers.encoder_config))
    assert count(encoder) == pytest.approx(1.0e9, rel=0.01)
    kernels = [p for name, p in encoder.blocks.named_parameters() if p.ndim > 1]
    assert sum(p.numel() for p in kernels) == 1_000_599_552  # the 1.0006 B of facts/model.md: blocks without vectors


@pytest.mark.parametrize(("decoder_width", "millions"), [(2048, 83.4), (4096, 89.7), (8192, 102.3)])
def test_adapter_has_the_papers_parameters(papers: ModelConfig, decoder_width: int, millions: float) -> None:
    with torch.device("meta"):
        projector = Projector(ProjectorConfig(**papers.projector), 1536, decoder_width, channels=2)
    assert count(projector) / 1e6 == pytest.approx(millions, abs=0.1)


def test_scout_is_whole_on_the_meta_device() -> None:
    model = abstract_model(composed("scout"))
    assert all(parameter.is_meta for parameter in model.parameters())
    assert count(model.decoder) == pytest.approx(107.8e9, rel=0.005)  # published: 109 B with the vision tower
    assert count(model.encoder) == pytest.approx(1.0e9, rel=0.01)
    assert model.projector.norm_out.weight.shape == (5120,)


def test_a_small_llama4_hears_and_learns() -> None:
    """The scout's kind of decoder through the whole model: hidden states, not logits, reach the loss."""
    fields = dict(
        model_type="llama4_text", hidden_size=32, intermediate_size=32, intermediate_size_mlp=64, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=8, num_local_experts=2, max_position_embeddings=2048,
        pad_token_id=None,
    )  # fmt: skip
    processor, model = build(decoder_config=fields)
    batch = processor([HEARD], [clip(0.5)], targets=["yes"])
    model.train()(**batch).loss.backward()
    assert model.projector.out.weight.grad.any()
    labels = batch.pop("labels")
    with torch.no_grad():
        assert model.eval()(**batch).logits.shape == (*labels.shape, len(processor.tokenizer))


def test_rates_that_do_not_meet_are_refused(papers: ModelConfig) -> None:
    with pytest.raises(ValueError, match=r"25 embeddings a second, wanted 12\.5"):
        WearLlamaConfig(encoder=papers.encoder_config)
    with pytest.raises(ValueError, match=r"6\.25 embeddings a second"):
        WearLlamaConfig(projector=papers.projector)
    with pytest.raises(ValueError, match=r"not with projector\.adapter_width"):
        replace(ProjectorConfig(**papers.projector), pieces=10)


def test_the_small_sister_runs_and_padding_reaches_no_frame() -> None:
    torch.manual_seed(0)
    config = ConformerConfig(
        subsampling="stacking", width=32, layers=2, heads=2, ff_width=48, kernel=7, dropout=0.0, fast=True
    )
    encoder = ConformerEncoder(config).eval()
    projector = Projector(
        ProjectorConfig(adapter_width=48, adapter_ff_width=64, adapter_heads=4), 32, 24, channels=1
    ).eval()
    mel_lengths_B = torch.tensor([101, 8, 3, 400])
    feats_BTF = torch.randn(4, 400, 80)
    with torch.no_grad():
        encoded_BLD, lengths_B = encoder(feats_BTF, mel_lengths_B)
        mask_BL = torch.arange(encoded_BLD.shape[1])[None] < lengths_B[:, None]
        batch_BME = projector(encoded_BLD[:, None], mask_BL)[:, 0]
        assert projector.num_frames(lengths_B).tolist() == [13, 1, 1, 50]  # timebase.num_encoder_frames of each
        for row, mel_length in enumerate(mel_lengths_B.tolist()):
            alone_1LD, length_1 = encoder(feats_BTF[row : row + 1, :mel_length], mel_lengths_B[row : row + 1])
            alone_ME = projector(alone_1LD[:, None], torch.ones(1, int(length_1), dtype=torch.bool))[0, 0]
            torch.testing.assert_close(batch_BME[row, : len(alone_ME)], alone_ME, atol=1e-5, rtol=0)
