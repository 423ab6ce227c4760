"""Encoder and projector on frames that arrive piece by piece; the weights and the results are those of whole clips.

Carried between calls: mel frames that do not make a frame of 80 ms yet, frames of a chunk that is not complete, three
frames in front of each subsampling stage, keys and values of ``left`` frames and ``kernel - 1`` frames of the depthwise
convolution for each block (Noroozi et al. 2024, Stateful Conformer with Cache-based Inference).  What needs no later
frame, the subsampling, is done at once; the blocks wait for their chunk.

A chunk is few frames, where calls cost as much as products: the blocks' mathematics is written out here without the
masks, dropouts and modules that whole batches need.

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
    FeedForward,
    Subsampling,
)
from wearllama.modeling.contexts import context_mask, find_context
from wearllama.modeling.projector import Projector
from wearllama.modeling.rotary import rotary_tables


@dataclass
class BlockState:
    """What a block remembers of the frames before."""

    past_2BHLK: Tensor
    """Keys, turned to their places already, and values."""
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
        self.encoder, self.context = encoder, context
        config = encoder.config
        like = encoder.subsampling.out.weight
        self._waiting_BTF = like.new_zeros(batch, 0, config.n_mels)
        self._chunk_BLD = like.new_zeros(batch, 0, config.width)
        self._below = [like.new_zeros(batch, 3, channels) for channels in encoder.subsampling.in_channels]
        none_2BHLK = like.new_zeros(2, batch, config.heads, 0, config.width // config.heads)
        gated_BLD = like.new_zeros(batch, config.kernel - 1, config.width)
        self._states = [BlockState(none_2BHLK, gated_BLD) for _ in encoder.blocks]
        self._tables = signed_tables(2 * sum(context), config.width // config.heads, like.device)
        self.num_frames = 0
        """Frames given out so far."""

    def push(self, feats_BTF: Tensor) -> Tensor:
        """The embeddings (B, L, D) of every chunk that ``feats_BTF`` completes; L may be 0."""
        return self._hear(feats_BTF, last=False)

    def finish(self, feats_BTF: Tensor | None = None) -> Tensor:
        """The embeddings of all that is left, with the clip's last frames where they were not pushed; L may be 0."""
        return self._hear(self._waiting_BTF[:, :0] if feats_BTF is None else feats_BTF, last=True)

    def _hear(self, feats_BTF: Tensor, *, last: bool) -> Tensor:
        waiting_BTF = torch.cat((self._waiting_BTF, feats_BTF.to(self._waiting_BTF)), dim=1)
        mels = waiting_BTF.shape[1]
        ready = mels if last else mels - mels % MEL_FRAMES_PER_EMBEDDING
        if ready:
            self._chunk_BLD = torch.cat((self._chunk_BLD, self._subsample(waiting_BTF[:, :ready])), dim=1)
        self._waiting_BTF = waiting_BTF[:, ready:]
        frames = self._chunk_BLD.shape[1]
        whole = frames if last else frames - frames % (self.context[1] + 1)
        if whole == 0:
            return self._chunk_BLD[:, :0]
        x_BLD, self._chunk_BLD = self._chunk_BLD.tensor_split([whole], dim=1)
        return self._encode(x_BLD)

    def _encode(self, x_BLD: Tensor) -> Tensor:
        first, last = self.num_frames, self.num_frames + x_BLD.shape[1]
        if last > self._tables.shape[1]:
            self._tables = signed_tables(2 * last, self._tables.shape[2], x_BLD.device)
        turn_2LK = self._tables[:, first:last]
        mask_QL = self._mask(first, last, x_BLD.device)
        for block, state in zip(self.encoder.blocks, self._states, strict=True):
            assert isinstance(block, ConformerBlock)
            x_BLD = torch.add(x_BLD, _feed_forward(block.ff_in, x_BLD), alpha=0.5)
            x_BLD = x_BLD + self._attend(block.attention, x_BLD, state, mask_QL, turn_2LK)
            x_BLD = x_BLD + _convolve(block.convolution, x_BLD, state)
            x_BLD = _norm(block.norm, torch.add(x_BLD, _feed_forward(block.ff_out, x_BLD), alpha=0.5))
        self.num_frames = last
        return x_BLD

    def _subsample(self, feats_BTF: Tensor) -> Tensor:
        """``Subsampling`` on the next frames; an odd number of frames of a stage, at the clip's end, gets a zero."""
        subsampling, x_BTC = self.encoder.subsampling, feats_BTF
        assert isinstance(subsampling, Subsampling)
        for stage, (conv, norm) in enumerate(zip(subsampling.convs, subsampling.norms, strict=True)):
            assert isinstance(conv, nn.Conv1d) and isinstance(norm, nn.LayerNorm)
            x_BTC = torch.cat((self._below[stage], F.pad(x_BTC, (0, 0, 0, x_BTC.shape[1] % 2))), dim=1)
            self._below[stage] = x_BTC[:, -3:]
            x_BTC = F.silu(_norm(norm, dense_frames(conv, x_BTC)))
        return _linear(subsampling.out, x_BTC)

    def _mask(self, first: int, last: int, device: torch.device) -> Tensor | None:
        """Boolean (Q, L) over kept and new frames; None for one chunk, which sees all of them."""
        left, ahead = self.context
        if last - first <= ahead + 1:
            return None
        places_L = torch.arange(max(0, first - left), last, device=device)
        return context_mask(places_L[-(last - first) :], places_L, self.context)

    def _attend(
        self, attention: Attention, x_BLD: Tensor, state: BlockState, mask_QL: Tensor | None, turn_2LK: Tensor
    ) -> Tensor:
        batch, length, width = x_BLD.shape
        qkv = _linear(attention.qkv, _norm(attention.norm, x_BLD)).view(batch, length, 3, attention.heads, -1)
        qkv_3BHLK = qkv.permute(2, 0, 3, 1, 4)
        turned_2BHLK = turn(qkv_3BHLK[:2], turn_2LK)
        new_2BHLK = torch.stack((turned_2BHLK[1], qkv_3BHLK[2]))
        seen_2BHLK = torch.cat((state.past_2BHLK, new_2BHLK), dim=3)
        k_BHLK, v_BHLK = seen_2BHLK
        mixed_BHLK = F.scaled_dot_product_attention(turned_2BHLK[0], k_BHLK, v_BHLK, attn_mask=mask_QL)
        state.past_2BHLK = seen_2BHLK[:, :, :, max(0, seen_2BHLK.shape[3] - self.context[0]) :]
        return _linear(attention.out, mixed_BHLK.transpose(1, 2).reshape(batch, length, width))


def signed_tables(length: int, head_width: int, device: torch.device) -> Tensor:
    """``rotary_tables`` as (2, L, K), the sines' first half negative: a turn is then one shifted product (``turn``)."""
    cos_LK, sin_LK = rotary_tables(length, head_width, device)
    sin_LK[:, : head_width // 2].neg_()
    return torch.stack((cos_LK, sin_LK))


def turn(x_BHLK: Tensor, turn_2LK: Tensor) -> Tensor:
    """``rotate`` with ``signed_tables``, in float32 as there."""
    wide_BHLK = x_BHLK.float()
    shifted_BHLK = wide_BHLK.roll(wide_BHLK.shape[-1] // 2, dims=-1)
    return torch.addcmul(wide_BHLK * turn_2LK[0], shifted_BHLK, turn_2LK[1]).to(x_BHLK.dtype)


def _linear(layer: nn.Linear, x_BLD: Tensor) -> Tensor:
    return F.linear(x_BLD, layer.weight, layer.bias)


def _norm(layer: nn.LayerNorm, x_BLD: Tensor) -> Tensor:
    return F.layer_norm(x_BLD, layer.normalized_shape, layer.weight, layer.bias, layer.eps)


def _feed_forward(module: FeedForward, x_BLD: Tensor) -> Tensor:
    return _linear(module.down, F.silu(_linear(module.up, _norm(module.norm, x_BLD))))


def _convolve(module: ConvolutionModule, x_BLD: Tensor, state: BlockState) -> Tensor:
    gated_BLD = F.glu(_linear(module.gate, _norm(module.norm, x_BLD)), dim=-1)
    gated_BLD = torch.cat((state.gated_BLD, gated_BLD), dim=1)
    state.gated_BLD = gated_BLD[:, x_BLD.shape[1] :]
    mixed_BLD = depthwise_frames(module.depthwise, gated_BLD)
    return _linear(module.out, F.silu(_norm(module.inner_norm, mixed_BLD)))


def dense_frames(conv: nn.Conv1d, x_BLD: Tensor) -> Tensor:
    """An unpadded convolution over (B, L, D) as one product: for a few frames quicker than the library's."""
    windows_BLDK = x_BLD.unfold(1, conv.kernel_size[0], conv.stride[0])
    return F.linear(windows_BLDK.flatten(2), conv.weight.flatten(1), conv.bias)


def depthwise_frames(conv: nn.Conv1d, x_BLD: Tensor) -> Tensor:
    """An unpadded depthwise convolution of stride 1 over (B, L, D) as one product and a sum over its taps."""
    assert conv.bias is not None
    windows_BLKD = x_BLD.unfold(1, conv.kernel_size[0], 1).transpose(2, 3)
    return (windows_BLKD * conv.weight[:, 0].T.contiguous()).sum(2) + conv.bias


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
        """The projections (B, S, L, E) that ``x_BCLD`` completes; all that remain with ``last``."""
        if self._held_BCLD is not None:
            x_BCLD = torch.cat((self._held_BCLD, x_BCLD), dim=2)
        size = x_BCLD.shape[2]
        known = size if last else max(self._old, size - self.ahead)
        projected_BSLE = self._project(x_BCLD, slice(self._old, known))
        start = max(0, known - self.back)
        self._held_BCLD, self._old = x_BCLD[:, :, start:], known - start
        return projected_BSLE

    def _project(self, x_BCLD: Tensor, new: slice) -> Tensor:
        projector = self.projector
        joined_BSLD = _norm(projector.norm_in, projector.fusion.join(x_BCLD))
        if new.start == new.stop:
            return joined_BSLD.new_zeros(*joined_BSLD.shape[:2], 0, projector.out.out_features)
        around_NLD = F.pad(joined_BSLD.flatten(0, 1), (0, 0, self.back, self.ahead))
        around_NLD = around_NLD[:, new.start : new.stop + self.back + self.ahead]
        projected_NLE = _linear(projector.out, F.gelu(dense_frames(projector.conv, around_NLD)))
        return projector.finish(projected_NLE.unflatten(0, joined_BSLD.shape[:2]), x_BCLD[:, :, new])
