"""Projector: encoder embeddings -> the decoder's input space.

The encoder already runs at 12.5 Hz, so nothing is left to subsample: a per-frame network, a marker that tells c_0 from
c_x, and a norm whose gain starts at the size of the decoder's own token embeddings (a pretrained decoder is thrown off
by inputs many times louder than its words).

With ``pieces`` a second path stands beside it: how likely each word piece is in this frame (the encoder's CTC head,
Graves et al. 2006) times a table of decoder embeddings, one a piece. Started from the head and from the decoder's own
embeddings (``training/align.py``), it says words in the decoder's language from the first step on; LegoSLM (Ma et al.
2025) joins encoders to language models by the same product.

Shape suffixes: B batch, C encoded channels, L encoder frames, D encoder width, E decoder width.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


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
    init_rms: float = 0.02
    """Starting size (root mean square) of the outputs; a pretrained decoder's embeddings set it in ``build_model``."""

    def __post_init__(self) -> None:
        if self.kernel < 1 or self.kernel % 2 == 0:
            raise ValueError(f"projector.kernel must be odd to stay centred, found {self.kernel}")
        if self.hidden_mult <= 0 or self.init_rms <= 0:
            raise ValueError(
                f"projector.hidden_mult and init_rms must be above zero, found {self.hidden_mult}, {self.init_rms}"
            )
        if self.pieces < 0:
            raise ValueError(f"projector.pieces is {self.pieces}, wanted 0 or more")
        if not 0.0 <= self.dropout < 1.0:
            raise ValueError(f"projector.dropout must be in [0, 1), found {self.dropout}")


class Projector(nn.Module):
    """(B, C, L, D) -> (B, C, L, E), the same weights on every channel."""

    def __init__(self, config: ProjectorConfig, encoder_width: int, decoder_width: int, channels: int) -> None:
        super().__init__()
        hidden = int(config.hidden_mult * decoder_width)
        self.norm_in = nn.LayerNorm(encoder_width)
        self.conv = nn.Conv1d(encoder_width, hidden, config.kernel, padding=0 if config.causal else config.kernel // 2)
        self.past = config.kernel - 1 if config.causal else 0
        self.dropout = nn.Dropout(config.dropout)
        self.out = nn.Linear(hidden, decoder_width)
        self.norm_out = nn.RMSNorm(decoder_width, eps=1e-6)
        self.pieces: nn.Linear | None = None
        self.words: nn.Linear | None = None
        if config.pieces:
            self.pieces = nn.Linear(encoder_width, config.pieces)
            self.words = nn.Linear(config.pieces, decoder_width, bias=False)
        self.channel = nn.Parameter(torch.zeros(channels, decoder_width))
        self.init_rms = config.init_rms
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.constant_(self.norm_out.weight, self.init_rms)
        nn.init.normal_(self.channel, std=self.init_rms / 2)

    def forward(self, x_BCLD: Tensor, mask_BL: Tensor) -> Tensor:
        """Project; frames where ``mask_BL`` is False are zeroed before the convolution, so padding reaches no frame."""
        batch, channels, length, _ = x_BCLD.shape
        normed_BCLD = self.norm_in(x_BCLD) * mask_BL[:, None, :, None].to(x_BCLD.dtype)
        x_NDL = normed_BCLD.flatten(0, 1).transpose(1, 2)
        if self.past:
            x_NDL = F.pad(x_NDL, (self.past, 0))
        hidden_NLH = self.dropout(F.gelu(self.conv(x_NDL)).transpose(1, 2))
        # Autocast leaves the linear layer in bfloat16 and the gain in float32, which the norm would warn of.
        projected_NLE = self.norm_out(self.out(hidden_NLH).to(self.norm_out.weight.dtype))
        projected_BCLE = projected_NLE.view(batch, channels, length, -1) + self.channel[None, :, None, :]
        if self.pieces is None or self.words is None:
            return projected_BCLE
        return projected_BCLE + self.words(self.pieces(x_BCLD).softmax(-1))
