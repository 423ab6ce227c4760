"""Heads, targets and augmentations of encoder pre-training."""

import pytest
import torch

from wearllama.modeling.conformer import ConformerConfig
from wearllama.modeling.pretraining import (
    EncoderForPretraining,
    EncoderPretrainingConfig,
    PretrainingTargets,
    band_energies,
    greedy_ctc,
)

TINY = EncoderPretrainingConfig(
    encoder=ConformerConfig(subsampling_width=16, width=32, layers=2, heads=2, kernel=5, dropout=0.0),
    num_pieces=12,
    num_chars=8,
    char_layer=1,
    teacher_width=6,
)


def targets(frames: int, rows: int) -> PretrainingTargets:
    generator = torch.Generator().manual_seed(1)
    drr_db_BL = torch.full((rows, frames), float("nan"))
    drr_db_BL[:, : frames // 2] = 12.0
    return PretrainingTargets(
        pieces_BU=torch.randint(1, 12, (rows, 3), generator=generator),
        piece_lengths_B=torch.full((rows,), 3),
        chars_BU=torch.randint(1, 8, (rows, 4), generator=generator),
        char_lengths_B=torch.full((rows,), 4),
        teacher_BLW=torch.randn(rows, frames, 6, generator=generator).half(),
        teacher_mask_BL=torch.ones(rows, frames, dtype=torch.bool),
        roles_BL=torch.randint(0, 4, (rows, frames), generator=generator),
        drr_db_BL=drr_db_BL,
    )


def test_every_head_learns() -> None:
    torch.manual_seed(0)
    model = EncoderForPretraining(TINY)
    feats_BTF, lengths_B = torch.randn(2, 80, 80), torch.tensor([80, 80])
    wanted = targets(10, 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    first = {k: float(v.detach()) for k, v in model(feats_BTF, lengths_B, wanted).items() if v.ndim == 0}
    for _ in range(150):
        loss = model(feats_BTF, lengths_B, wanted)["loss"]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    last = model(feats_BTF, lengths_B, wanted)
    for name, value in first.items():
        assert float(last[name].detach()) < 0.5 * value, name


def test_band_energies_ignore_padding_and_follow_level() -> None:
    feats_BTF = torch.randn(1, 20, 80)
    padded_BTF = torch.cat([feats_BTF, torch.full((1, 12, 80), 9.0)], dim=1)
    alone = band_energies(feats_BTF, torch.tensor([20]))
    assert alone.shape == (1, 3, 8)
    torch.testing.assert_close(band_energies(padded_BTF, torch.tensor([20]))[:, :3], alone)
    torch.testing.assert_close(alone[0, 2, 0], feats_BTF[0, 16:20, :10].mean())
    torch.testing.assert_close(band_energies(feats_BTF + 1.5, torch.tensor([20])), alone + 1.5)


def test_unknown_drr_gives_no_gradient() -> None:
    model = EncoderForPretraining(TINY)
    wanted = targets(10, 2)._replace(drr_db_BL=torch.full((2, 10), float("nan")))
    outputs = model(torch.randn(2, 80, 80), torch.tensor([80, 72]), wanted)
    assert float(outputs["drr"]) == 0.0 and outputs["loss"].isfinite()


def test_greedy_ctc_merges_repeats_not_across_blanks() -> None:
    best = torch.tensor([[3, 3, 0, 3, 5, 5, 0, 7]])
    logits = torch.nn.functional.one_hot(best, 8).float()
    assert greedy_ctc(logits, torch.tensor([7])) == [[3, 3, 5]]


def test_char_layer_outside_the_encoder() -> None:
    with pytest.raises(ValueError, match="char_layer 3"):
        EncoderPretrainingConfig(encoder=TINY.encoder, char_layer=3)
