"""Encoder and projector on frames that arrive piece by piece; the weights and the results are those of whole clips.

Carried between calls: mel frames of a chunk that is not complete, three frames in front of each subsampling stage,
keys and values of ``left`` frames and ``kernel - 1`` frames of the depthwise convolution for each block (Noroozi et al.
2024, Stateful Conformer with Cache-based Inference).

Shape suffixes: B batch (the channels of one clip), T mel frames, F mel bins, L encoder frames, D width, H heads,
K head width, C encoded channels, E decoder width.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from wearllama.audio.timebase import MEL_FRAMES_PER_EMBEDDING
from wearllama.modeling.conformer import (
    Attention,
    ConformerBlock,
    ConformerEncoder,
    ConvolutionModule,
    Subsampling,
)
from wearllama.modeling.contexts import context_mask, find_context
from wearllama.modeling.projector import Projector
from wearllama.modeling.rotary import rotary_tables, rotate


@dataclass
class BlockState:
    """What a block remembers of the frames before."""

    keys_BHLK: Tensor
    """Turned to their places already."""
    values_BHLK: Tensor
    gated_BLD: Tensor
    """Inputs of the depthwise convolution."""


class EncoderStream:
    """``ConformerEncoder`` with one of its contexts, chunk by chunk; ValueError for an encoder of whole clips."""

    def __init__(self, encoder: ConformerEncoder, batch: int, look_ahead: int | None = None) -> None:
        context = find_context(encoder.config.contexts, encoder.look_ahead if look_ahead is None else look_ahead)
        if context is None:
            raise ValueError(
                "this encoder attends to whole clips (encoder.contexts is empty), so it has nothing to give before "
                "the end of the clip"
            )
        if not isinstance(encoder.subsampling, Subsampling):
            raise ValueError(f"encoder.subsampling is {encoder.config.subsampling!r}, streaming wants 'convolution'")
        self.encoder, self.context, self.subsampling = encoder, context, encoder.subsampling
        self.mel_per_chunk = MEL_FRAMES_PER_EMBEDDING * (context[1] + 1)
        config = encoder.config
        like = self.subsampling.out.weight
        self._waiting_BTF = like.new_zeros(batch, 0, config.n_mels)
        self._below = [like.new_zeros(batch, 3, channels) for channels in self.subsampling.in_channels]
        none_BHLK = like.new_zeros(batch, config.heads, 0, config.width // config.heads)
        gated_BLD = like.new_zeros(batch, config.kernel - 1, config.width)
        self._states = [BlockState(none_BHLK, none_BHLK, gated_BLD) for _ in encoder.blocks]
        self.num_frames = 0
        """Frames given out so far."""

    def push(self, feats_BTF: Tensor) -> Tensor:
        """The embeddings (B, L, D) of every chunk that ``feats_BTF`` completes; L may be 0."""
        self._waiting_BTF = torch.cat((self._waiting_BTF, feats_BTF.to(self._waiting_BTF)), dim=1)
        whole = self._waiting_BTF.shape[1] // self.mel_per_chunk * self.mel_per_chunk
        return self._encode(whole)

    def finish(self) -> Tensor:
        """The embeddings of the last chunk, complete or not; L is 0 where nothing is left."""
        return self._encode(self._waiting_BTF.shape[1])

    def _encode(self, mel_frames: int) -> Tensor:
        feats_BTF, self._waiting_BTF = self._waiting_BTF.tensor_split([mel_frames], dim=1)
        if mel_frames == 0:
            return feats_BTF.new_zeros(feats_BTF.shape[0], 0, self.encoder.config.width)
        x_BLD = self._subsample(feats_BTF)
        first, last = self.num_frames, self.num_frames + x_BLD.shape[1]
        config = self.encoder.config
        cos_LK, sin_LK = (
            table_LK[first:] for table_LK in rotary_tables(last, config.width // config.heads, x_BLD.device)
        )
        mask_QL = self._mask(first, last, x_BLD.device)
        for number, block in enumerate(self.encoder.blocks):
            assert isinstance(block, ConformerBlock)
            state = self._states[number]
            x_BLD = torch.add(x_BLD, block.ff_in(x_BLD), alpha=0.5)
            x_BLD = x_BLD + self._attend(block.attention, x_BLD, state, mask_QL, cos_LK, sin_LK)
            x_BLD = x_BLD + _convolve(block.convolution, x_BLD, state)
            x_BLD = block.norm(torch.add(x_BLD, block.ff_out(x_BLD), alpha=0.5))
        self.num_frames = last
        return x_BLD

    def _subsample(self, feats_BTF: Tensor) -> Tensor:
        """``Subsampling`` on the next frames; an odd number of frames of a stage, at the clip's end, gets a zero."""
        x_BTC = feats_BTF
        for stage, (conv, norm) in enumerate(zip(self.subsampling.convs, self.subsampling.norms, strict=True)):
            x_BTC = torch.cat((self._below[stage], F.pad(x_BTC, (0, 0, 0, x_BTC.shape[1] % 2))), dim=1)
            self._below[stage] = x_BTC[:, -3:]
            x_BTC = F.silu(norm(_conv(conv, x_BTC)))
        return self.subsampling.out(x_BTC)

    def _mask(self, first: int, last: int, device: torch.device) -> Tensor | None:
        """Boolean (Q, L) over kept and new frames; None for one chunk, which sees all of them."""
        left, ahead = self.context
        if last - first <= ahead + 1:
            return None
        places_L = torch.arange(max(0, first - left), last, device=device)
        return context_mask(places_L[-(last - first) :], places_L, self.context)

    def _attend(
        self,
        attention: Attention,
        x_BLD: Tensor,
        state: BlockState,
        mask_QL: Tensor | None,
        cos_LK: Tensor,
        sin_LK: Tensor,
    ) -> Tensor:
        batch, length, width = x_BLD.shape
        qkv = attention.qkv(attention.norm(x_BLD)).view(batch, length, 3, attention.heads, -1)
        qkv_3BHLK = qkv.permute(2, 0, 3, 1, 4)
        queries_BHLK, new_BHLK = rotate(qkv_3BHLK[:2], cos_LK, sin_LK)
        keys_BHLK = torch.cat((state.keys_BHLK, new_BHLK), dim=2)
        values_BHLK = torch.cat((state.values_BHLK, qkv_3BHLK[2]), dim=2)
        mixed_BHLK = F.scaled_dot_product_attention(queries_BHLK, keys_BHLK, values_BHLK, attn_mask=mask_QL)
        kept = slice(max(0, keys_BHLK.shape[2] - self.context[0]), None)
        state.keys_BHLK, state.values_BHLK = keys_BHLK[:, :, kept], values_BHLK[:, :, kept]
        return attention.out(mixed_BHLK.transpose(1, 2).reshape(batch, length, width))


def _convolve(module: ConvolutionModule, x_BLD: Tensor, state: BlockState) -> Tensor:
    gated_BLD = torch.cat((state.gated_BLD, F.glu(module.gate(module.norm(x_BLD)), dim=-1)), dim=1)
    state.gated_BLD = gated_BLD[:, x_BLD.shape[1] :]
    return module.out(F.silu(module.inner_norm(_conv(module.depthwise, gated_BLD))))


def _conv(conv: nn.Module, x_BLD: Tensor) -> Tensor:
    """An unpadded convolution over (B, L, D) as products: for the few frames of a chunk quicker than the library's."""
    assert isinstance(conv, nn.Conv1d) and conv.bias is not None
    kernel, stride = conv.kernel_size[0], conv.stride[0]
    if conv.groups == 1:
        return F.linear(x_BLD.unfold(1, kernel, stride).flatten(2), conv.weight.flatten(1), conv.bias)
    size = x_BLD.shape[1] - kernel + 1
    y_BLD = conv.bias.expand(x_BLD.shape[0], size, -1)
    for place in range(kernel):
        y_BLD = torch.addcmul(y_BLD, x_BLD[:, place : place + size], conv.weight[:, 0, place])
    return y_BLD


class ProjectorStream:
    """``Projector`` frame by frame; a centred one gives each frame ``kernel // 2`` frames later."""

    def __init__(self, projector: Projector) -> None:
        self.projector = projector
        kernel = projector.conv.kernel_size[0]
        self.ahead = 0 if projector.past else kernel // 2
        self.back = kernel - 1 - self.ahead
        self._held_BCLD: Tensor | None = None
        self._old = 0
        """How many of the held frames were given out and only serve the convolution."""

    def push(self, x_BCLD: Tensor, *, last: bool = False) -> Tensor:
        """The projections (B, C, L, E) that ``x_BCLD`` completes; all that remain with ``last``."""
        if self._held_BCLD is not None:
            x_BCLD = torch.cat((self._held_BCLD, x_BCLD), dim=2)
        size = x_BCLD.shape[2]
        known = size if last else max(self._old, size - self.ahead)
        if known > self._old:
            mask_BL = x_BCLD.new_ones(x_BCLD.shape[0], size, dtype=torch.bool)
            projected_BCLE = self.projector(x_BCLD, mask_BL)[:, :, self._old : known]
        else:
            width = self.projector.out.out_features
            projected_BCLE = x_BCLD.new_zeros(*x_BCLD.shape[:2], 0, width)
        start = max(0, known - self.back)
        self._held_BCLD, self._old = x_BCLD[:, :, start:], known - start
        return projected_BCLE
