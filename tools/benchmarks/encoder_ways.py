"""The encoders that ``benchmark.py encoder`` compares: equal width, depth, kernel, parameters (2 %) and output rate.

Public encoders without a front of their own stand behind ours, in its quick form; Parakeet (FastConformer) brings its
own.  All run in fp32 without dropout.

Shape suffixes: B batch, T mel frames, F mel bins, L encoder frames, D width.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
import torchaudio
from torch import Tensor, nn
from transformers import ParakeetEncoderConfig, Wav2Vec2ConformerConfig
from transformers.models.parakeet.modeling_parakeet import ParakeetEncoder
from transformers.models.wav2vec2_conformer.modeling_wav2vec2_conformer import Wav2Vec2ConformerEncoder

from wearllama.modeling.conformer import ConformerConfig, ConformerEncoder, Subsampling, valid_mask

SAME_PARAMETERS = 0.02


class Sizes(NamedTuple):
    """What all encoders share."""

    width: int
    layers: int
    heads: int
    kernel: int

    def ours(self) -> ConformerConfig:
        return ConformerConfig(
            width=self.width, subsampling_width=self.width, layers=self.layers, heads=self.heads, kernel=self.kernel,
            dropout=0.0, fast=True,
        )  # fmt: skip


class Way(NamedTuple):
    """An encoder: padded features (B, T, F) and mel frames (B,) -> embeddings (B, L, D) at 12.5 Hz."""

    name: str
    module: nn.Module

    def parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.module.parameters())


class Fronted(nn.Module):
    """Our subsampling before somebody else's blocks."""

    def __init__(self, sizes: Sizes, blocks: nn.Module) -> None:
        super().__init__()
        self.subsampling: Subsampling = ConformerEncoder(sizes.ours()).subsampling  # type: ignore[assignment]
        self.blocks = blocks


class TorchaudioWay(Fronted):
    def __init__(self, sizes: Sizes, ff_width: int) -> None:
        blocks = torchaudio.models.Conformer(sizes.width, sizes.heads, ff_width, sizes.layers, sizes.kernel)
        super().__init__(sizes, blocks)

    def forward(self, feats_BTF: Tensor, mel_lengths_B: Tensor) -> Tensor:
        x_BLD, lengths_B = self.subsampling(feats_BTF, mel_lengths_B)
        return self.blocks(x_BLD, lengths_B)[0]


class Wav2Vec2Way(Fronted):
    """With rotary positions, the quickest of its kinds, and ours."""

    def __init__(self, sizes: Sizes, ff_width: int) -> None:
        config = Wav2Vec2ConformerConfig(
            hidden_size=sizes.width, num_hidden_layers=sizes.layers, num_attention_heads=sizes.heads,
            intermediate_size=ff_width, conv_depthwise_kernel_size=sizes.kernel, position_embeddings_type="rotary",
            hidden_dropout=0.0, activation_dropout=0.0, attention_dropout=0.0, conformer_conv_dropout=0.0,
            layerdrop=0.0,
        )  # fmt: skip
        config._attn_implementation = "sdpa"
        blocks = Wav2Vec2ConformerEncoder(config)
        del blocks.pos_conv_embed  # made but never called: parameters that work are what is compared
        super().__init__(sizes, blocks)

    def forward(self, feats_BTF: Tensor, mel_lengths_B: Tensor) -> Tensor:
        x_BLD, lengths_B = self.subsampling(feats_BTF, mel_lengths_B)
        return self.blocks(x_BLD, attention_mask=valid_mask(lengths_B, x_BLD.shape[1])).last_hidden_state


class ParakeetWay(nn.Module):
    """FastConformer, its own front of 2-D convolutions included."""

    def __init__(self, sizes: Sizes, ff_width: int) -> None:
        super().__init__()
        config = ParakeetEncoderConfig(
            hidden_size=sizes.width, num_hidden_layers=sizes.layers, num_attention_heads=sizes.heads,
            intermediate_size=ff_width, conv_kernel_size=sizes.kernel, dropout=0.0, layerdrop=0.0,
            activation_dropout=0.0, attention_dropout=0.0, subsampling_conv_channels=sizes.width,
        )  # fmt: skip
        config._attn_implementation = "sdpa"
        self.encoder = ParakeetEncoder(config)

    def forward(self, feats_BTF: Tensor, mel_lengths_B: Tensor) -> Tensor:
        mask_BT = valid_mask(mel_lengths_B, feats_BTF.shape[1])
        return self.encoder(feats_BTF, attention_mask=mask_BT).last_hidden_state


class OurWay(nn.Module):
    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.encoder = ConformerEncoder(sizes.ours())

    def forward(self, feats_BTF: Tensor, mel_lengths_B: Tensor) -> Tensor:
        return self.encoder(feats_BTF, mel_lengths_B).embeddings_BLD


PUBLIC: dict[str, Callable[[Sizes, int], nn.Module]] = {
    "torchaudio Conformer": TorchaudioWay,
    "transformers Wav2Vec2-Conformer": Wav2Vec2Way,
    "transformers Parakeet (FastConformer)": ParakeetWay,
}


def make_ways(sizes: Sizes, seed: int) -> list[Way]:
    """Ours first; feed-forwards of the others are widened or narrowed until all have our number of parameters."""
    torch.manual_seed(seed)
    ways = [Way("ours", OurWay(sizes))]
    wanted = ways[0].parameters()
    for name, make in PUBLIC.items():
        ff_width = 4 * sizes.width
        surplus = Way(name, make(sizes, ff_width)).parameters() - wanted
        per_unit = sizes.layers * 2 * (2 * sizes.width + 1)
        way = Way(name, make(sizes, ff_width - 8 * round(surplus / per_unit / 8)))
        if abs(way.parameters() / wanted - 1) > SAME_PARAMETERS:
            raise ValueError(f"{name} has {way.parameters():,} parameters, ours {wanted:,}: wanted within 2 %")
        ways.append(way)
    return ways


@torch.no_grad()
def padding_error(way: Way, feats: list[Tensor]) -> float:
    """Largest change of a valid frame when a clip (T, F) is batched with a longer one, silence behind it."""
    module = way.module.eval()
    lengths_B = torch.tensor([len(clip) for clip in feats])
    batch_BLD = module(nn.utils.rnn.pad_sequence(feats, batch_first=True), lengths_B)
    worst = 0.0
    for row, clip in enumerate(feats):
        alone_LD = module(clip[None], lengths_B[row : row + 1])[0]
        worst = max(worst, float((batch_BLD[row, : len(alone_LD)] - alone_LD).abs().max()))
    return worst
