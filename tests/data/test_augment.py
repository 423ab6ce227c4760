"""Augmentation: what moves, what stays, and that channels and seeds keep their promise."""

import pytest
import torch

from wearllama.data.augment import Augmentation, mask_spans, warp_frequency


def test_warp_one_is_identity_and_moves_a_peak() -> None:
    feats_BTF = torch.zeros(1, 4, 80)
    feats_BTF[..., 40] = 1.0
    torch.testing.assert_close(warp_frequency(feats_BTF, torch.tensor([1.0])), feats_BTF)
    assert int(warp_frequency(feats_BTF, torch.tensor([1.25]))[0, 0].argmax()) == 32


def test_masks_leave_most_in_place() -> None:
    feats_BTF = torch.ones(8, 200, 80)
    masked = mask_spans(feats_BTF, torch.Generator().manual_seed(0), count=2)
    assert 0.5 < float(masked.mean()) < 1.0 and float(feats_BTF.mean()) == 1.0


def test_channels_of_a_clip_get_one_view_and_a_seed_gives_it_again() -> None:
    c0_TF = torch.randn(120, 80)
    clip_BCTF = torch.stack([c0_TF, 2 * c0_TF])[None]
    augment = Augmentation(warp=0.1, mask_spans=2)
    seen_BCTF = augment(clip_BCTF, seed=3)
    torch.testing.assert_close(seen_BCTF[0, 1], 2 * seen_BCTF[0, 0])
    assert torch.equal(seen_BCTF, augment(clip_BCTF, seed=3))
    assert not torch.equal(seen_BCTF, augment(clip_BCTF, seed=4)) and not torch.equal(seen_BCTF, clip_BCTF)
    assert torch.equal(Augmentation()(clip_BCTF, seed=3), clip_BCTF)


def test_settings_are_checked() -> None:
    with pytest.raises(ValueError, match="warp must lie"):
        Augmentation(warp=0.6)
