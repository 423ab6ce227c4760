"""Conformer encoder: log-mel frames in, one embedding per 80 ms out (Gulati et al. 2020, macaron form, section 2).

Three stride-2 convolutions bring 100 Hz down to 12.5 Hz before the blocks, so that attention and feed-forwards run
on an eighth of the frames; at the papers' size four stacked frames make one of 25 Hz (Llama 3, section 8.1), and the
projector's adapter halves the rest.  Everything normalises per position (LayerNorm), and padded frames are zeroed right
before each convolution: a clip gives the same embeddings alone, padded or permuted in a batch.

Shape suffixes: B batch, T mel frames, F mel bins, C channels, L encoder frames (80 ms, stacked 40), D width, H heads,
K head width.
"""

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal, NamedTuple, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from wearllama.modeling.contexts import attention_mask, check_contexts, draw_look_ahead, find_context
from wearllama.modeling.frame_conv import FrameConv
from wearllama.modeling.packing import Spans, close, pack, packed_attention, spread, unpack
from wearllama.modeling.rotary import rotary_tables, rotate, rotate_projected

SUBSAMPLING_STAGES = 3  # 2**3 = timebase.MEL_FRAMES_PER_EMBEDDING
STACKED_FRAMES = 4
PACKING_PAYS = 0.9
"""Share of a padded batch's frames up to which the packed row is quicker."""
SubsamplingKind = Literal["convolution", "stacking"]


@dataclass(kw_only=True)
class ConformerConfig:
    """Sizes of the encoder."""

    n_mels: int = 80
    subsampling_width: int = 192
    """Channels of the stride-2 convolutions."""
    subsampling: SubsamplingKind = "convolution"
    """``convolution``: three of stride 2, 80 ms a frame.  ``stacking``: four mel frames and a linear layer, 40 ms."""
    width: int = 192
    layers: int = 6
    heads: int = 4
    ff_mult: int = 4
    ff_width: int | None = None
    """Inner width of the feed-forwards, in place of ``ff_mult`` times the width."""
    kernel: int = 9
    """Depthwise convolution kernel in encoder frames (odd, centred)."""
    dropout: float = 0.1
    causal: bool = False
    """Convolutions, the subsampling's included, look back only; otherwise they are centred."""
    checkpointing: bool = False
    """Keep no activations inside the blocks: the backward pass computes them again."""
    fast: bool = False
    """Batches packed without their padding (``packing``) and convolutions with channels last: the same embeddings to
    1e-5, sooner.  Off by default, so that stored encoders give the same bits as ever."""
    contexts: list[list[int]] = field(default_factory=list)
    """``[left, ahead]`` pairs in encoder frames, e.g. [[70, 13], [70, 6], [70, 1], [70, 0]]: what one model learns
    to stream with (``contexts``).  Training draws one a batch, the first is the default afterwards.  Empty: whole
    clips."""

    def __post_init__(self) -> None:
        if self.width % self.heads or (self.width // self.heads) % 2:
            raise ValueError(f"encoder.width {self.width} must split into {self.heads} heads of even width (rotary)")
        if self.kernel % 2 == 0:
            raise ValueError(f"encoder.kernel must be odd to stay centred, found {self.kernel}")
        if self.subsampling not in get_args(SubsamplingKind):
            raise ValueError(f"encoder.subsampling is {self.subsampling!r}, wanted one of {get_args(SubsamplingKind)}")
        if self.ff_width is not None and self.ff_width < 1:
            raise ValueError(f"encoder.ff_width must be at least 1, found {self.ff_width}")
        for name in ("n_mels", "subsampling_width", "layers", "ff_mult"):
            if getattr(self, name) < 1:
                raise ValueError(f"encoder.{name} must be at least 1, found {getattr(self, name)}")
        if not 0.0 <= self.dropout < 1.0:
            raise ValueError(f"encoder.dropout must be in [0, 1), found {self.dropout}")
        check_contexts(self.contexts, causal=self.causal)

    @property
    def stride(self) -> int:
        """Mel frames of an encoder frame."""
        return STACKED_FRAMES if self.subsampling == "stacking" else 2**SUBSAMPLING_STAGES

    @property
    def gap(self) -> int:
        """Zeroed encoder frames that keep the blocks' convolutions of two clips in one row apart."""
        return self.kernel - 1 if self.causal else self.kernel // 2

    @property
    def front_gap(self) -> int:
        """The same for the subsampling, whose last stage looks back two frames of 40 ms, or three."""
        if self.subsampling == "stacking":
            return 0
        return 2 if self.causal else 1


class EncoderOutput(NamedTuple):
    embeddings_BLD: Tensor
    lengths_B: Tensor


def valid_mask(lengths_B: Tensor, size: int) -> Tensor:
    """Boolean (B, size): True where a frame belongs to the clip."""
    return torch.arange(size, device=lengths_B.device)[None, :] < lengths_B[:, None]


class Stacking(nn.Module):
    """Four mel frames side by side, and a linear layer to the width."""

    def __init__(self, config: ConformerConfig) -> None:
        super().__init__()
        self.out = nn.Linear(config.n_mels * STACKED_FRAMES, config.width)

    def forward(self, feats_BTF: Tensor, lengths_B: Tensor, spans: Spans | None = None) -> tuple[Tensor, Tensor]:
        x_BTF = feats_BTF
        if spans is None:  # a row is packed with zeros
            x_BTF = x_BTF * valid_mask(lengths_B, x_BTF.shape[1])[..., None].to(x_BTF.dtype)
        x_BTF = F.pad(x_BTF, (0, 0, 0, -x_BTF.shape[1] % STACKED_FRAMES))
        return self.out(x_BTF.unflatten(1, (-1, STACKED_FRAMES)).flatten(2)), -(-lengths_B // STACKED_FRAMES)


def silu(x: Tensor, *, fast: bool) -> Tensor:
    """SiLU; of a fast encoder in the memory of what went in, where no gradient needs it."""
    return F.silu(x, inplace=fast and not torch.is_grad_enabled())


class Subsampling(nn.Module):
    """Mel frames to 80 ms frames by three masked stride-2 convolutions and a linear layer to the width."""

    def __init__(self, config: ConformerConfig) -> None:
        super().__init__()
        channels = [config.n_mels] + [config.subsampling_width] * SUBSAMPLING_STAGES
        self.in_channels = channels[:-1]
        self.causal, self.fast = config.causal, config.fast
        padding = 0 if config.causal else 2
        self.convs = nn.ModuleList(
            FrameConv(before, after, kernel_size=5, stride=2, padding=padding) for before, after in pairwise(channels)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(after) for after in channels[1:])
        self.out = nn.Linear(config.subsampling_width, config.width)

    def forward(self, feats_BTF: Tensor, lengths_B: Tensor, spans: Spans | None = None) -> tuple[Tensor, Tensor]:
        x_BTC = feats_BTF
        for stage, (conv, norm) in enumerate(zip(self.convs, self.norms, strict=True)):
            if spans is None or stage > 0:  # a row is packed with zeros
                mask_BT = valid_mask(lengths_B, x_BTC.shape[1]) if spans is None else spans.mask(2**stage)
                x_BTC = x_BTC * mask_BT[..., None].to(x_BTC.dtype)
            if self.causal:  # frame i of a stage ends with frame 2 i + 1 below: its own pair
                x_BTC = F.pad(x_BTC, (0, 0, 3, 1))
            x_BTC = silu(norm(conv(x_BTC.transpose(1, 2)).transpose(1, 2)), fast=self.fast)
            lengths_B = (lengths_B + 1) // 2
        return self.out(x_BTC), lengths_B


class FeedForward(nn.Module):
    def __init__(self, config: ConformerConfig) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(config.width)
        hidden = config.ff_width or config.width * config.ff_mult
        self.up = nn.Linear(config.width, hidden)
        self.down = nn.Linear(hidden, config.width)
        self.dropout = nn.Dropout(config.dropout)
        self.fast = config.fast

    def forward(self, x_BLD: Tensor) -> Tensor:
        return self.dropout(self.down(self.dropout(silu(self.up(self.norm(x_BLD)), fast=self.fast))))


class Attention(nn.Module):
    """Multi-head self-attention with rotary positions on the fused path; padded keys are never attended to."""

    def __init__(self, config: ConformerConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.norm = nn.LayerNorm(config.width)
        self.qkv = nn.Linear(config.width, 3 * config.width)
        self.out = nn.Linear(config.width, config.width)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x_BLD: Tensor, attend: Tensor | Spans, cos_LK: Tensor, sin_LK: Tensor) -> Tensor:
        """``attend``: boolean (B, 1, 1 or L, L) of the keys that count (``contexts``), or the clips of a packed row."""
        batch, length, width = x_BLD.shape
        qkv_BL3HK = self.qkv(self.norm(x_BLD)).view(batch, length, 3, self.heads, width // self.heads)
        if isinstance(attend, Spans):
            mixed_BLHK = packed_attention(rotate_projected(qkv_BL3HK, cos_LK, sin_LK), attend)
        else:
            q_BHLK, k_BHLK, v_BHLK = qkv_BL3HK.permute(2, 0, 3, 1, 4)
            q_BHLK, k_BHLK = rotate(q_BHLK, cos_LK, sin_LK), rotate(k_BHLK, cos_LK, sin_LK)
            mixed_BHLK = F.scaled_dot_product_attention(q_BHLK, k_BHLK, v_BHLK, attn_mask=attend)
            mixed_BLHK = mixed_BHLK.transpose(1, 2)
        return self.dropout(self.out(mixed_BLHK.reshape(batch, length, width)))


class ConvolutionModule(nn.Module):
    """Pointwise GLU, masked depthwise convolution, LayerNorm (in place of BatchNorm), SiLU, pointwise."""

    def __init__(self, config: ConformerConfig) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(config.width)
        self.gate = nn.Linear(config.width, 2 * config.width)
        self.past = config.kernel - 1 if config.causal else 0
        self.gap, self.fast = config.gap, config.fast
        padding = 0 if config.causal else config.kernel // 2
        self.depthwise = FrameConv(config.width, config.width, config.kernel, padding=padding, groups=config.width)
        self.inner_norm = nn.LayerNorm(config.width)
        self.out = nn.Linear(config.width, config.width)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x_BLD: Tensor, valid: Tensor | Spans) -> Tensor:
        """``valid``: boolean (B, L) of the clips' frames, or the clips of a packed row."""
        x_BLD = F.glu(self.gate(self.norm(x_BLD)), dim=-1)
        # Neither padding nor a neighbour must reach the depthwise window.
        x_BLD = spread(x_BLD, valid, self.gap) if isinstance(valid, Spans) else x_BLD * valid[..., None].to(x_BLD.dtype)
        if self.past:
            x_BLD = F.pad(x_BLD, (0, 0, self.past, 0))
        x_BLD = self.depthwise(x_BLD.transpose(1, 2)).transpose(1, 2)
        if isinstance(valid, Spans):
            x_BLD = close(x_BLD, valid, self.gap)
        return self.dropout(self.out(silu(self.inner_norm(x_BLD), fast=self.fast)))


class ConformerBlock(nn.Module):
    def __init__(self, config: ConformerConfig) -> None:
        super().__init__()
        self.ff_in = FeedForward(config)
        self.attention = Attention(config)
        self.convolution = ConvolutionModule(config)
        self.ff_out = FeedForward(config)
        self.norm = nn.LayerNorm(config.width)

    def forward(
        self, x_BLD: Tensor, valid: Tensor | Spans, attend: Tensor | Spans, cos_LK: Tensor, sin_LK: Tensor
    ) -> Tensor:
        x_BLD = torch.add(x_BLD, self.ff_in(x_BLD), alpha=0.5)
        x_BLD = x_BLD + self.attention(x_BLD, attend, cos_LK, sin_LK)
        x_BLD = x_BLD + self.convolution(x_BLD, valid)
        return self.norm(torch.add(x_BLD, self.ff_out(x_BLD), alpha=0.5))


class ConformerEncoder(nn.Module):
    """80 log-mel bins at 100 Hz -> embeddings of ``config.width`` at 12.5 Hz (25 Hz where frames are stacked)."""

    def __init__(self, config: ConformerConfig) -> None:
        super().__init__()
        self.config = config
        self.subsampling = Stacking(config) if config.subsampling == "stacking" else Subsampling(config)
        self.gradient_checkpointing = config.checkpointing  # the name that transformers switches
        self.blocks = nn.ModuleList(ConformerBlock(config) for _ in range(config.layers))
        for module in self.modules():
            if isinstance(module, FrameConv):
                module.channels_last = config.fast
        self.look_ahead: int | None = None
        self.draws_look_ahead = True
        """False: training, too, has the chosen context (where outputs were sampled with it)."""

    def set_look_ahead(self, look_ahead: int | None) -> None:
        """Choose the context used from now on outside training (None: the first); ValueError for an untrained one."""
        find_context(self.config.contexts, look_ahead)
        self.look_ahead = look_ahead

    def draw_look_ahead(self) -> int | None:
        """A look-ahead for one batch of training; None for an encoder of whole clips."""
        return draw_look_ahead(self.config.contexts) if self.draws_look_ahead else self.look_ahead

    def forward(self, feats_BTF: Tensor, mel_lengths_B: Tensor, look_ahead: int | None = None) -> EncoderOutput:
        """Encode padded features.

        Args:
            feats_BTF: normalised log-mel features; frames past a clip's length may hold anything finite.
            mel_lengths_B: valid mel frames of each clip, at least one.
            look_ahead: of one of ``config.contexts``; None draws one in training and takes the chosen one otherwise.

        Returns:
            Embeddings (B, L, D) with zeros past each clip's end, and their lengths ``ceil(mel_lengths / stride)``.
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
        context = find_context(self.config.contexts, look_ahead)
        size = -(-feats_BTF.shape[1] // self.config.stride)
        spans = None
        if self._packs(feats_BTF, mel_lengths_B):
            feats_BTF, spans = pack(feats_BTF, mel_lengths_B, stride=self.config.stride, gap=self.config.front_gap)
        x_BLD, lengths_B = self.subsampling(feats_BTF, mel_lengths_B, spans)
        cos_LK, sin_LK = rotary_tables(size, self.config.width // self.config.heads, x_BLD.device)
        valid: Tensor | Spans
        attend: Tensor | Spans
        if spans is None:
            valid = valid_mask(lengths_B, size)
            attend = attention_mask(valid, context)
        else:
            x_BLD, valid, attend = close(x_BLD, spans, spans.gap), spans, spans
            cos_LK, sin_LK = cos_LK[spans.positions()], sin_LK[spans.positions()]
        kept = []
        for number, block in enumerate(self.blocks, start=1):
            if self.gradient_checkpointing and self.training and torch.is_grad_enabled():
                x_BLD = checkpoint(block, x_BLD, valid, attend, cos_LK, sin_LK, use_reentrant=False)
            else:
                x_BLD = block(x_BLD, valid, attend, cos_LK, sin_LK)
            if number in layers:
                kept.append(_clips(x_BLD, valid, size))
        return kept, lengths_B

    def _packs(self, feats_BTF: Tensor, mel_lengths_B: Tensor) -> bool:
        """Whether this batch is packed: compiled graphs keep their shapes and never are, nor are contexts."""
        if not self.config.fast or self.config.contexts or torch.compiler.is_compiling():
            return False
        batch, frames, _ = feats_BTF.shape
        row = int(mel_lengths_B.sum()) // self.config.stride + batch * (self.config.front_gap + 1)
        return row <= PACKING_PAYS * batch * frames / self.config.stride


def _clips(x_BLD: Tensor, valid: Tensor | Spans, size: int) -> Tensor:
    """The clips' frames (B, size, D), zeros behind each."""
    if isinstance(valid, Spans):
        return unpack(x_BLD, valid, size)
    return x_BLD * valid[..., None].to(x_BLD.dtype)
