"""Heads and losses that teach the encoder words AND acoustics before it is frozen.

Words: CTC over word pieces at the top (80 ms frames) and over characters, two a frame, at a middle layer
(intermediate CTC: Lee and Watanabe 2021, section 2.2); regression onto the 12.5 Hz averages of a Whisper encoder's
features of the clean clip, where those were computed.  Acoustics: a target that is the same for near and far speech
teaches an encoder to forget the cue, so the top layer must also give back what the microphone heard (log energy in
eight bands), who was speaking (nobody, wearer, somebody else, both) and how direct the sound was.

Shape suffixes: B batch, T mel frames, F mel bins, L encoder frames, D width, U target symbols, W teacher width.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from wearllama.audio.timebase import MEL_FRAMES_PER_EMBEDDING
from wearllama.modeling.conformer import ConformerConfig, ConformerEncoder, valid_mask

CTC_BLANK = 0
CHARS_PER_FRAME = 2
NUM_BANDS = 8
ROLES = ("nobody", "wearer", "other", "both")
DRR_SCALE_DB = 10.0
LOSSES = ("piece", "char", "teacher", "band", "role", "drr")


@dataclass(kw_only=True)
class EncoderPretrainingConfig:
    """What the encoder is asked for, and how much each answer weighs."""

    encoder: ConformerConfig = field(default_factory=ConformerConfig)
    num_pieces: int = 1000
    """Word pieces of the top CTC, blank included."""
    num_chars: int = 29
    """Characters of the middle CTC, blank included."""
    char_layer: int = 3
    teacher_width: int = 512
    piece_weight: float = 1.0
    """0 here or below leaves that CTC head out: without words the corpus needs no transcripts."""
    char_weight: float = 0.3
    teacher_weight: float = 1.0
    band_weight: float = 0.5
    role_weight: float = 0.3
    drr_weight: float = 0.1

    def __post_init__(self) -> None:
        if not 1 <= self.char_layer <= self.encoder.layers:
            raise ValueError(f"char_layer {self.char_layer} is outside the encoder's 1..{self.encoder.layers}")
        weights = [getattr(self, f"{name}_weight") for name in LOSSES]
        if min(weights) < 0 or not any(weights):
            raise ValueError(f"model: weights of {LOSSES} are {weights}, wanted none below 0 and one above")

    @property
    def words(self) -> bool:
        """Whether transcripts are asked for."""
        return self.piece_weight > 0 or self.char_weight > 0


class PretrainingTargets(NamedTuple):
    """What a batch of single-channel clips should give."""

    pieces_BU: Tensor
    piece_lengths_B: Tensor
    chars_BU: Tensor
    char_lengths_B: Tensor
    teacher_BLW: Tensor
    teacher_mask_BL: Tensor
    roles_BL: Tensor
    drr_db_BL: Tensor
    """Direct-to-reverberant ratio of whoever speaks, NaN where nobody or both do."""


def band_energies(feats_BTF: Tensor, mel_lengths_B: Tensor) -> Tensor:
    """Mean normalised log-mel value of eight bands and eight frames: (B, ceil(T / 8), 8)."""
    batch, frames, mels = feats_BTF.shape
    padding = -frames % MEL_FRAMES_PER_EMBEDDING
    mask_BT1 = valid_mask(mel_lengths_B, frames)[..., None].to(feats_BTF.dtype)
    groups = F.pad(feats_BTF * mask_BT1, (0, 0, 0, padding)).view(
        batch, -1, MEL_FRAMES_PER_EMBEDDING, NUM_BANDS, mels // NUM_BANDS
    )
    counts_BL = F.pad(mask_BT1[..., 0], (0, padding)).view(batch, -1, MEL_FRAMES_PER_EMBEDDING).sum(-1)
    return groups.mean(-1).sum(2) / counts_BL.clamp_min(1.0)[..., None]


def masked_mean(loss: Tensor, mask: Tensor) -> Tensor:
    return (loss * mask).sum() / mask.sum().clamp_min(1.0)


class EncoderForPretraining(nn.Module):
    """The encoder with its pre-training heads; ``encoder`` alone is kept afterwards."""

    def __init__(self, config: EncoderPretrainingConfig) -> None:
        super().__init__()
        self.config = config
        width = config.encoder.width
        self.encoder = ConformerEncoder(config.encoder)
        self.piece_head = nn.Linear(width, config.num_pieces) if config.piece_weight else None
        self.char_head = nn.Linear(width, CHARS_PER_FRAME * config.num_chars) if config.char_weight else None
        self.teacher_head = nn.Linear(width, config.teacher_width)
        self.band_head = nn.Linear(width, NUM_BANDS)
        self.role_head = nn.Linear(width, len(ROLES))
        self.drr_head = nn.Linear(width, 1)

    def forward(
        self,
        feats_BTF: Tensor,
        mel_lengths_B: Tensor,
        targets: PretrainingTargets | Mapping[str, Tensor] | None = None,
        seen_feats_BTF: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """Losses by name with their weighted sum under ``loss``; ``piece_logits`` (B, L, pieces) if it has that head.

        Args:
            feats_BTF: clean view of the mixture's features: the target of the band energies.
            mel_lengths_B: valid frames.
            targets: what to learn; without it only the logits come back.
            seen_feats_BTF: what the encoder sees instead, if augmented (masked, warped).
        """
        seen = feats_BTF if seen_feats_BTF is None else seen_feats_BTF
        layers = (self.config.char_layer, self.config.encoder.layers)
        states, lengths_B = self.encoder.layer_states(seen, mel_lengths_B, layers)
        char_states_BLD, top_BLD = states[0], states[-1]
        outputs = {"lengths": lengths_B}
        if self.piece_head is not None:
            outputs["piece_logits"] = self.piece_head(top_BLD)
        if targets is None:
            return outputs
        if not isinstance(targets, PretrainingTargets):
            targets = PretrainingTargets(**targets)
        frames = valid_mask(lengths_B, top_BLD.shape[1]).to(top_BLD.dtype)
        if self.piece_head is not None:
            outputs["piece"] = self._ctc(outputs["piece_logits"], lengths_B, targets.pieces_BU, targets.piece_lengths_B)
        if self.char_head is not None:
            char_logits = self.char_head(char_states_BLD).unflatten(-1, (CHARS_PER_FRAME, -1)).flatten(1, 2)
            outputs["char"] = self._ctc(
                char_logits, lengths_B * CHARS_PER_FRAME, targets.chars_BU, targets.char_lengths_B
            )
        wanted_BLW = F.layer_norm(targets.teacher_BLW.to(top_BLD.dtype), targets.teacher_BLW.shape[-1:])
        error_BL = (self.teacher_head(top_BLD) - wanted_BLW).square().mean(-1)
        outputs["teacher"] = masked_mean(error_BL, targets.teacher_mask_BL.to(top_BLD.dtype))
        bands_BL = (self.band_head(top_BLD) - band_energies(feats_BTF, mel_lengths_B)).square().mean(-1)
        outputs["band"] = masked_mean(bands_BL, frames)
        role_BL = F.cross_entropy(self.role_head(top_BLD).transpose(1, 2), targets.roles_BL, reduction="none")
        outputs["role"] = masked_mean(role_BL, frames)
        known_BL = targets.drr_db_BL.isfinite() & frames.bool()
        wanted_drr_BL = torch.nan_to_num(targets.drr_db_BL) / DRR_SCALE_DB
        drr_BL = (self.drr_head(top_BLD)[..., 0] - wanted_drr_BL).square()
        outputs["drr"] = masked_mean(drr_BL, known_BL.to(top_BLD.dtype))
        asked = [name for name in LOSSES if name in outputs]
        outputs["loss"] = sum((getattr(self.config, f"{n}_weight") * outputs[n] for n in asked), top_BLD.new_zeros(()))
        return outputs

    @staticmethod
    def _ctc(logits_BLV: Tensor, lengths_B: Tensor, targets_BU: Tensor, target_lengths_B: Tensor) -> Tensor:
        """CTC (Graves et al. 2006, equation 14) per target symbol; rows that cannot align give zero."""
        log_probs_LBV = logits_BLV.float().log_softmax(-1).transpose(0, 1)
        total = F.ctc_loss(
            log_probs_LBV, targets_BU, lengths_B, target_lengths_B, CTC_BLANK, reduction="sum", zero_infinity=True
        )
        return total / target_lengths_B.sum().clamp_min(1)


def greedy_ctc(logits_BLV: Tensor, lengths_B: Tensor) -> list[list[int]]:
    """Best symbol a frame, repeats merged, blanks removed."""
    best_BL = logits_BLV.argmax(-1)
    decoded = []
    for best_L, length in zip(best_BL.tolist(), lengths_B.tolist(), strict=True):
        row = best_L[:length]
        decoded.append([s for i, s in enumerate(row) if s != CTC_BLANK and (i == 0 or s != row[i - 1])])
    return decoded
