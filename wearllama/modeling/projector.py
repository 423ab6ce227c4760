"""Projector: encoder embeddings -> the decoder's input space.

The encoder already runs at 12.5 Hz, so nothing is left to subsample: a per-frame network, a marker that tells c_0 from
c_x, and a norm whose gain starts at the size of the decoder's own token embeddings (a pretrained decoder is thrown off
by inputs many times louder than its words).

With ``pieces`` a second path stands beside it: how likely each word piece is in this frame (the encoder's CTC head,
Graves et al. 2006) times a table of decoder embeddings, one a piece. Started from the head and from the decoder's own
embeddings (``training/align.py``), it says words in the decoder's language from the first step on; LegoSLM (Ma et al.
2025) joins encoders to language models by the same product.

At the papers' size the encoder runs at 25 Hz and the ``adapter`` stands in the network's place.  ``fusion`` says how
channels are put together.

Shape suffixes: B batch, C encoded channels, S streams (see ``fusion``), N = B * S, L encoder frames, M decoder frames
(L, or half behind an adapter), D encoder width, E decoder width, H hidden width, V word pieces.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from wearllama.modeling.adapter import ADAPTER_STRIDE, Adapter, adapter_frames
from wearllama.modeling.fusion import FusionConfig

NETWORK = ("hidden_mult", "kernel", "causal", "dropout")
"""Settings of the per-frame network alone."""
ADAPTER = ("adapter_ff_width", "adapter_heads")
"""Settings of the adapter alone."""


@dataclass(kw_only=True)
class ProjectorConfig:
    """Sizes of the projector."""

    hidden_mult: float = 2.0
    """Hidden width as a multiple of the decoder's."""
    kernel: int = 3
    """Frames that the first layer sees (odd); 1 is a plain per-frame network."""
    causal: bool = False
    """The first layer looks back only; a centred one adds ``kernel // 2`` frames to a streaming encoder's."""
    dropout: float = 0.0
    pieces: int = 0
    """Word pieces of the second path, blank included (0: no such path); the packaged encoder's head has 1000."""
    adapter_width: int = 0
    """Width of the papers' adapter (``adapter``), which halves the frames; 0: the per-frame network."""
    adapter_ff_width: int = 4096
    adapter_heads: int = 24
    init_rms: float = 0.02
    """Starting size (root mean square) of the outputs; a pretrained decoder's embeddings set it in ``build_model``."""

    def __post_init__(self) -> None:
        if self.kernel < 1 or self.kernel % 2 == 0:
            raise ValueError(f"projector.kernel must be odd to stay centred, found {self.kernel}")
        if self.hidden_mult <= 0 or self.init_rms <= 0:
            raise ValueError(
                f"projector.hidden_mult and init_rms must be above zero, found {self.hidden_mult}, {self.init_rms}"
            )
        if self.pieces < 0 or self.adapter_width < 0:
            raise ValueError(f"projector.pieces {self.pieces} and adapter_width {self.adapter_width}: wanted 0 or more")
        if self.adapter_width and self.pieces:
            raise ValueError("projector.pieces reads the encoder's frames one by one: not with projector.adapter_width")
        unread = NETWORK if self.adapter_width else ADAPTER
        plain = type(self).__dataclass_fields__
        if wrong := [name for name in unread if getattr(self, name) != plain[name].default]:
            kind = "with" if self.adapter_width else "without"
            raise ValueError(f"projector.{wrong[0]} is {getattr(self, wrong[0])}, which a projector {kind} "
                             f"adapter_width does not read")  # fmt: skip
        if self.adapter_width and (self.adapter_width % self.adapter_heads or self.adapter_ff_width < 1):
            raise ValueError(
                f"projector.adapter_width {self.adapter_width} must split into {self.adapter_heads} heads, and "
                f"adapter_ff_width {self.adapter_ff_width} be at least 1"
            )
        if not 0.0 <= self.dropout < 1.0:
            raise ValueError(f"projector.dropout must be in [0, 1), found {self.dropout}")

    @property
    def stride(self) -> int:
        """Encoder frames of a decoder frame."""
        return ADAPTER_STRIDE if self.adapter_width else 1


class Projector(nn.Module):
    """(B, C, L, D) -> (B, S, M, E), the same weights on every channel."""

    channel: nn.Parameter | None

    def __init__(
        self,
        config: ProjectorConfig,
        encoder_width: int,
        decoder_width: int,
        channels: int,
        fusion: FusionConfig | None = None,
    ) -> None:
        super().__init__()
        self.fusion = fusion or FusionConfig()
        self.fusion.check(channels)
        self.stride = config.stride
        self.past = config.kernel - 1 if config.causal else 0
        joined_width = encoder_width * (channels if self.fusion.kind == "concat" else 1)
        self.norm_in = nn.LayerNorm(joined_width)
        self.adapter: Adapter | None = None
        if config.adapter_width:
            self.adapter = Adapter(
                joined_width, config.adapter_width, config.adapter_heads, config.adapter_ff_width, decoder_width
            )
        else:
            hidden = int(config.hidden_mult * decoder_width)
            padding = 0 if config.causal else config.kernel // 2
            self.conv = nn.Conv1d(joined_width, hidden, config.kernel, padding=padding)
            self.dropout = nn.Dropout(config.dropout)
            self.out = nn.Linear(hidden, decoder_width)
        self.norm_out = nn.RMSNorm(decoder_width, eps=1e-6)
        self.pieces: nn.Linear | None = None
        self.words: nn.Linear | None = None
        if config.pieces:
            self.pieces = nn.Linear(encoder_width, config.pieces)
            self.words = nn.Linear(config.pieces, decoder_width, bias=False)
        marked = self.fusion.marks_channels
        self.channel = nn.Parameter(torch.zeros(channels, decoder_width)) if marked else None
        self.init_rms = config.init_rms
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.constant_(self.norm_out.weight, self.init_rms)
        if self.channel is not None:
            nn.init.normal_(self.channel, std=self.init_rms / 2)

    def num_frames(self, lengths_B: Tensor) -> Tensor:
        """Decoder frames of clips of so many encoder frames."""
        return lengths_B if self.adapter is None else adapter_frames(lengths_B)

    def forward(self, x_BCLD: Tensor, mask_BL: Tensor) -> Tensor:
        """Project; frames where ``mask_BL`` is False are zeroed before the convolution, so padding reaches no frame."""
        joined_BSLD = self.fusion.join(x_BCLD)
        batch, streams = joined_BSLD.shape[:2]
        normed_BSLD = self.norm_in(joined_BSLD) * mask_BL[:, None, :, None].to(x_BCLD.dtype)
        projected_NME = self._project(normed_BSLD.flatten(0, 1), mask_BL.repeat_interleave(streams, 0))
        return self.finish(projected_NME.unflatten(0, (batch, streams)), x_BCLD)

    def finish(self, projected_BSME: Tensor, x_BCLD: Tensor) -> Tensor:
        """What follows the network or the adapter: channels added, size, marker, words, order."""
        summed_BSME = self.fusion.add(projected_BSME)
        # Autocast leaves the linear layer in bfloat16 and the gain in float32, which the norm would warn of.
        y_BSME = self.norm_out(summed_BSME.to(self.norm_out.weight.dtype))
        if self.channel is not None:
            y_BSME = y_BSME + self.channel[None, :, None, :]
        if self.pieces is not None and self.words is not None:
            y_BSME = y_BSME + self.words(self.fusion.mean(self.pieces(x_BCLD).softmax(-1)))
        return self.fusion.order(y_BSME)

    def _project(self, x_NLD: Tensor, mask_NL: Tensor) -> Tensor:
        if self.adapter is not None:
            return self.adapter(x_NLD, mask_NL)
        x_NDL = F.pad(x_NLD.transpose(1, 2), (self.past, 0))
        hidden_NLH = self.dropout(F.gelu(self.conv(x_NDL)).transpose(1, 2))
        return self.out(hidden_NLH)
