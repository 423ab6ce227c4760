"""Conformer encoder: log-mel frames in, one embedding per 80 ms out (Gulati et al. 2020, macaron form, section 2).

Three stride-2 convolutions bring 100 Hz down to 12.5 Hz before the blocks, so that attention and feed-forwards run
on an eighth of the frames.  Everything normalises per position (LayerNorm), and padded frames are zeroed right
before each convolution: a clip gives the same embeddings alone, padded or permuted in a batch.

Shape suffixes: B batch, T mel frames, F mel bins, L encoder frames (80 ms), D width, H heads, K head width.
"""

from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from wearllama.modeling.contexts import attention_mask, check_contexts, draw_look_ahead, find_context

SUBSAMPLING_STAGES = 3  # 2**3 = timebase.MEL_FRAMES_PER_EMBEDDING


@dataclass(kw_only=True)
class ConformerConfig:
    """Sizes of the encoder."""

    n_mels: int = 80
    subsampling_width: int = 192
    """Channels of the stride-2 convolutions."""
    width: int = 192
    layers: int = 6
    heads: int = 4
    ff_mult: int = 4
    kernel: int = 9
    """Depthwise convolution kernel in encoder frames (odd, centred)."""
    dropout: float = 0.1
    causal: bool = False
    """Convolutions, the subsampling's included, look back only; otherwise they are centred."""
    contexts: list[list[int]] = field(default_factory=list)
    """``[left, ahead]`` pairs in encoder frames, e.g. [[70, 13], [70, 6], [70, 1], [70, 0]]: what one model learns
    to stream with (``contexts``).  Training draws one a batch, the first is the default afterwards.  Empty: whole
    clips."""

    def __post_init__(self) -> None:
        if self.width % self.heads or (self.width // self.heads) % 2:
            raise ValueError(f"encoder.width {self.width} must split into {self.heads} heads of even width (rotary)")
        if self.kernel % 2 == 0:
            raise ValueError(f"encoder.kernel must be odd to stay centred, found {self.kernel}")
        for name in ("n_mels", "subsampling_width", "layers", "ff_mult"):
            if getattr(self, name) < 1:
                raise ValueError(f"encoder.{name} must be at least 1, found {getattr(self, name)}")
        if not 0.0 <= self.dropout < 1.0:
            raise ValueError(f"encoder.dropout must be in [0, 1), found {self.dropout}")
        check_contexts(self.contexts, causal=self.causal)


class EncoderOutput(NamedTuple):
    embeddings_BLD: Tensor
    lengths_B: Tensor


def valid_mask(lengths_B: Tensor, size: int) -> Tensor:
    """Boolean (B, size): True where a frame belongs to the clip."""
    return torch.arange(size, device=lengths_B.device)[None, :] < lengths_B[:, None]


def rotary_tables(length: int, head_width: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Cosine and sine tables (L, K) of rotary positions (Su et al. 2021, equation 34), always fp32."""
    inverse_K2 = 10_000.0 ** (-torch.arange(0, head_width, 2, device=device, dtype=torch.float32) / head_width)
    angles_LK2 = torch.arange(length, device=device, dtype=torch.float32)[:, None] * inverse_K2
    angles_LK = torch.cat([angles_LK2, angles_LK2], dim=-1)
    return angles_LK.cos(), angles_LK.sin()


def rotate(x_BHLK: Tensor, cos_LK: Tensor, sin_LK: Tensor) -> Tensor:
    first, second = x_BHLK.float().chunk(2, dim=-1)
    turned = x_BHLK * cos_LK + torch.cat([-second, first], dim=-1) * sin_LK
    return turned.to(x_BHLK.dtype)


class Subsampling(nn.Module):
    """Mel frames to 80 ms frames by three masked stride-2 convolutions and a linear layer to the width."""

    def __init__(self, config: ConformerConfig) -> None:
        super().__init__()
        channels = [config.n_mels] + [config.subsampling_width] * SUBSAMPLING_STAGES
        self.causal = config.causal
        padding = 0 if config.causal else 2
        self.convs = nn.ModuleList(
            nn.Conv1d(before, after, kernel_size=5, stride=2, padding=padding) for before, after in pairwise(channels)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(after) for after in channels[1:])
        self.out = nn.Linear(config.subsampling_width, config.width)

    def forward(self, feats_BTF: Tensor, lengths_B: Tensor) -> tuple[Tensor, Tensor]:
        x_BTC = feats_BTF
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x_BTC = x_BTC * valid_mask(lengths_B, x_BTC.shape[1])[..., None].to(x_BTC.dtype)
            if self.causal:  # frame i of a stage ends with frame 2 i + 1 below: its own pair
                x_BTC = F.pad(x_BTC, (0, 0, 3, 1))
            x_BTC = F.silu(norm(conv(x_BTC.transpose(1, 2)).transpose(1, 2)))
            lengths_B = (lengths_B + 1) // 2
        return self.out(x_BTC), lengths_B


class FeedForward(nn.Module):
    def __init__(self, config: ConformerConfig) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(config.width)
        self.up = nn.Linear(config.width, config.width * config.ff_mult)
        self.down = nn.Linear(config.width * config.ff_mult, config.width)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x_BLD: Tensor) -> Tensor:
        return self.dropout(self.down(self.dropout(F.silu(self.up(self.norm(x_BLD))))))


class Attention(nn.Module):
    """Multi-head self-attention with rotary positions on the fused path; padded keys are never attended to."""

    def __init__(self, config: ConformerConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.norm = nn.LayerNorm(config.width)
        self.qkv = nn.Linear(config.width, 3 * config.width)
        self.out = nn.Linear(config.width, config.width)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x_BLD: Tensor, attend: Tensor, cos_LK: Tensor, sin_LK: Tensor) -> Tensor:
        """``attend``: boolean (B, 1, 1 or L, L), from ``contexts.attention_mask``."""
        batch, length, width = x_BLD.shape
        qkv = self.qkv(self.norm(x_BLD)).view(batch, length, 3, self.heads, width // self.heads)
        q_BHLK, k_BHLK, v_BHLK = qkv.permute(2, 0, 3, 1, 4)
        mixed_BHLK = F.scaled_dot_product_attention(
            rotate(q_BHLK, cos_LK, sin_LK), rotate(k_BHLK, cos_LK, sin_LK), v_BHLK, attn_mask=attend
        )
        return self.dropout(self.out(mixed_BHLK.transpose(1, 2).reshape(batch, length, width)))


class ConvolutionModule(nn.Module):
    """Pointwise GLU, masked depthwise convolution, LayerNorm (in place of BatchNorm), SiLU, pointwise."""

    def __init__(self, config: ConformerConfig) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(config.width)
        self.gate = nn.Linear(config.width, 2 * config.width)
        self.past = config.kernel - 1 if config.causal else 0
        padding = 0 if config.causal else config.kernel // 2
        self.depthwise = nn.Conv1d(config.width, config.width, config.kernel, padding=padding, groups=config.width)
        self.inner_norm = nn.LayerNorm(config.width)
        self.out = nn.Linear(config.width, config.width)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x_BLD: Tensor, mask_BL: Tensor) -> Tensor:
        x_BLD = F.glu(self.gate(self.norm(x_BLD)), dim=-1)
        x_BLD = x_BLD * mask_BL[..., None].to(x_BLD.dtype)  # padding must not reach the depthwise window
        if self.past:
            x_BLD = F.pad(x_BLD, (0, 0, self.past, 0))
        x_BLD = self.depthwise(x_BLD.transpose(1, 2)).transpose(1, 2)
        return self.dropout(self.out(F.silu(self.inner_norm(x_BLD))))


class ConformerBlock(nn.Module):
    def __init__(self, config: ConformerConfig) -> None:
        super().__init__()
        self.ff_in = FeedForward(config)
        self.attention = Attention(config)
        self.convolution = ConvolutionModule(config)
        self.ff_out = FeedForward(config)
        self.norm = nn.LayerNorm(config.width)

    def forward(self, x_BLD: Tensor, mask_BL: Tensor, attend: Tensor, cos_LK: Tensor, sin_LK: Tensor) -> Tensor:
        x_BLD = x_BLD + 0.5 * self.ff_in(x_BLD)
        x_BLD = x_BLD + self.attention(x_BLD, attend, cos_LK, sin_LK)
        x_BLD = x_BLD + self.convolution(x_BLD, mask_BL)
        return self.norm(x_BLD + 0.5 * self.ff_out(x_BLD))


class ConformerEncoder(nn.Module):
    """80 log-mel bins at 100 Hz -> embeddings of ``config.width`` at 12.5 Hz."""

    def __init__(self, config: ConformerConfig) -> None:
        super().__init__()
        self.config = config
        self.subsampling = Subsampling(config)
        self.blocks = nn.ModuleList(ConformerBlock(config) for _ in range(config.layers))
        self.look_ahead: int | None = None

    def set_look_ahead(self, look_ahead: int | None) -> None:
        """Choose the context used from now on outside training (None: the first); ValueError for an untrained one."""
        find_context(self.config.contexts, look_ahead)
        self.look_ahead = look_ahead

    def draw_look_ahead(self) -> int | None:
        """A look-ahead for one batch of training; None for an encoder of whole clips."""
        return draw_look_ahead(self.config.contexts)

    def forward(self, feats_BTF: Tensor, mel_lengths_B: Tensor, look_ahead: int | None = None) -> EncoderOutput:
        """Encode padded features.

        Args:
            feats_BTF: normalised log-mel features; frames past a clip's length may hold anything finite.
            mel_lengths_B: valid mel frames of each clip, at least one.
            look_ahead: of one of ``config.contexts``; None draws one in training and takes the chosen one otherwise.

        Returns:
            Embeddings (B, L, D) with zeros past each clip's end, and their lengths ``ceil(mel_lengths / 8)``.
        """
        states = self.layer_states(feats_BTF, mel_lengths_B, layers=(self.config.layers,), look_ahead=look_ahead)
        return EncoderOutput(states[0][0], states[1])

    def layer_states(
        self, feats_BTF: Tensor, mel_lengths_B: Tensor, layers: tuple[int, ...], look_ahead: int | None = None
    ) -> tuple[list[Tensor], Tensor]:
        """The masked outputs (B, L, D) of the blocks numbered in ``layers`` (1-based), and the lengths (B,)."""
        if feats_BTF.shape[-1] != self.config.n_mels:
            raise ValueError(f"encoder wants {self.config.n_mels} mel bins, found {feats_BTF.shape[-1]}")
        if look_ahead is None:
            look_ahead = self.draw_look_ahead() if self.training else self.look_ahead
        x_BLD, lengths_B = self.subsampling(feats_BTF, mel_lengths_B)
        mask_BL = valid_mask(lengths_B, x_BLD.shape[1])
        attend = attention_mask(mask_BL, find_context(self.config.contexts, look_ahead))
        cos_LK, sin_LK = rotary_tables(x_BLD.shape[1], self.config.width // self.config.heads, x_BLD.device)
        kept = []
        for number, block in enumerate(self.blocks, start=1):
            x_BLD = block(x_BLD, mask_BL, attend, cos_LK, sin_LK)
            if number in layers:
                kept.append(x_BLD * mask_BL[..., None].to(x_BLD.dtype))
        return kept, lengths_B
