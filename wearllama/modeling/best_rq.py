"""BEST-RQ: the encoder guesses, under masked spans, the codes that a frozen random quantiser gives (Chiu et al. 2022).

Settings follow Llama 3's speech encoder (Grattafiori et al. 2024, section 8.1.1): spans of 32 mel frames, 16 books of
8,192 codes, one linear head a book, cross-entropy on masked frames only.

Shape suffixes: B rows (C clips times views), C clips, T mel frames, F mel bins, L encoder frames, D width,
M masked frames, K books, V codes.
"""

from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from wearllama.modeling.conformer import ConformerConfig, ConformerEncoder
from wearllama.modeling.quantizer import RandomProjectionQuantizer, stacked_targets

IGNORED = -100
"""Entry of ``labels`` where a frame carries no loss."""


@dataclass(kw_only=True)
class BestRqConfig:
    """Encoder, masks and quantiser; the defaults are the paper's."""

    encoder: ConformerConfig = field(default_factory=ConformerConfig)
    codebooks: int = 16
    codes: int = 8192
    """Codes of a book."""
    code_width: int = 16
    """Numbers that a stack is projected to."""
    span_frames: int = 32
    """Mel frames of a masked span; a multiple of the encoder's stack."""
    start_probability: float = 0.025
    """Probability that a span starts at a mel frame; the start then moves back to the first frame of its stack."""
    quantizer_seed: int = 0

    def __post_init__(self) -> None:
        for name in ("codebooks", "codes", "code_width", "span_frames"):
            if getattr(self, name) < 1:
                raise ValueError(f"best_rq.{name} is {getattr(self, name)}, wanted at least 1")
        if not 0.0 < self.start_probability < 1.0:
            raise ValueError(f"best_rq.start_probability is {self.start_probability}, wanted between 0 and 1")
        if self.span_frames % self.stack:
            raise ValueError(f"best_rq.span_frames is {self.span_frames}, wanted a multiple of the stack {self.stack}")

    @property
    def stack(self) -> int:
        """Mel frames of an encoder frame: what masks and targets are aligned to."""
        return self.encoder.stride


def draw_spans(
    mel_frames: int, *, stack: int, span_frames: int, start_probability: float, rng: np.random.Generator
) -> NDArray[np.bool_]:
    """Which encoder frames are masked, (L,), L = ceil(mel_frames / stack); spans may overlap and run out of the clip.

    One draw a mel frame, moved back to its stack's start: a mel frame is masked exactly as often as without alignment,
    1 - (1 - p) ** span_frames of the time, once a span's length from the beginning.
    """
    frames = -(-mel_frames // stack)
    starts_L = (rng.random((frames, stack)) < start_probability).any(axis=1)
    return np.convolve(starts_L, np.ones(span_frames // stack))[:frames] > 0.5


class EncoderForBestRq(nn.Module):
    """The encoder with its quantiser and one linear head a book; ``encoder`` alone is kept afterwards."""

    def __init__(self, config: BestRqConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = ConformerEncoder(config.encoder)
        self.quantizer = RandomProjectionQuantizer(
            stack_width=config.stack * config.encoder.n_mels,
            width=config.code_width,
            books=config.codebooks,
            codes=config.codes,
            seed=config.quantizer_seed,
        )
        self.heads = nn.ModuleList(nn.Linear(config.encoder.width, config.codes) for _ in range(config.codebooks))

    def forward(
        self,
        seen_feats_BTF: Tensor,
        mel_lengths_B: Tensor,
        power_CTF: Tensor,
        labels: Tensor,
        num_items: Tensor | int | None = None,
    ) -> dict[str, Tensor]:
        """Mean cross-entropy of masked frames and books under ``loss``, and counts for the log.

        Args:
            seen_feats_BTF: normalised log-mel features with noise in the masked spans; where a clip has two views
                (c_0 and c_x), the first C rows are one view of all clips and the next C rows the other.
            mel_lengths_B: valid frames.
            power_CTF: mel power that the clips' targets come from, shared by their views.
            labels: (B, L) int64, 0 where a frame carries loss and ``IGNORED`` elsewhere, the same for a clip's views.
            num_items: masked frames of all ranks and accumulated batches; this batch's own if not given.

        Returns:
            ``loss`` and, without gradient, this batch's ``code_counts_KV``, ``correct_K``, ``masked`` frames and all
            valid ``frames``, every row counted.
        """
        clips, rows = len(power_CTF), len(seen_feats_BTF)
        assert rows % clips == 0, f"{rows} rows are no whole number of views of {clips} clips"
        targets_MK = self.targets(power_CTF, mel_lengths_B[:clips], labels[:clips]).repeat(rows // clips, 1)
        embeddings_BLD, lengths_B = self.encoder(seen_feats_BTF, mel_lengths_B)
        if not torch.equal(lengths_B, -(-mel_lengths_B // self.config.stack)):
            raise ValueError(f"the encoder's frames are not of {self.config.stack} mel frames: lengths {lengths_B}")
        masked_MD = embeddings_BLD[labels != IGNORED]
        total = masked_MD.new_zeros((), dtype=torch.float32)
        correct = []
        for head, targets_M in zip(self.heads, targets_MK.T, strict=True):
            logits_MV = head(masked_MD)
            total = total + F.cross_entropy(logits_MV.float(), targets_M, reduction="sum")
            correct.append((logits_MV.detach().argmax(-1) == targets_M).sum())
        count = len(targets_MK) if num_items is None else num_items
        divisor = torch.as_tensor(count, device=total.device).clamp_min(1) * self.config.codebooks
        counts_KV = torch.stack([targets_M.bincount(minlength=self.config.codes) for targets_M in targets_MK.T])
        return {
            "loss": total / divisor,
            "code_counts_KV": counts_KV,
            "correct_K": torch.stack(correct),
            "masked": torch.tensor(len(targets_MK), device=total.device),
            "frames": lengths_B.sum(),
        }

    def targets(self, power_CTF: Tensor, mel_lengths_C: Tensor, labels_CL: Tensor) -> Tensor:
        """Codes (M, K) of the frames that carry loss, in the order of rows and frames."""
        stacks_CLS = stacked_targets(power_CTF, mel_lengths_C, self.config.stack)
        whole = stacks_CLS.shape[1]
        chosen_CL = labels_CL != IGNORED
        assert not chosen_CL[:, whole:].any(), "a frame without a whole stack has no target"
        return self.quantizer(stacks_CLS[chosen_CL[:, :whole]])
