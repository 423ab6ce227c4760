"""BEST-RQ's rules: aligned masks, targets that ignore gain, padding and bf16, logits on masked frames only."""

import numpy as np
import pytest
import torch
from torch import Tensor

from wearllama.audio.frontend import LogMelConfig, mel_power, normalised_log
from wearllama.audio.timebase import num_mel_frames
from wearllama.modeling.best_rq import IGNORED, BestRqConfig, EncoderForBestRq, draw_spans
from wearllama.modeling.conformer import ConformerConfig
from wearllama.modeling.quantizer import RandomProjectionQuantizer, stacked_targets
from wearllama.training.meters import perplexity

ENCODER = ConformerConfig(subsampling_width=16, width=32, layers=1, heads=2, kernel=5, dropout=0.0)
TINY = BestRqConfig(encoder=ENCODER, codebooks=3, codes=64)
FRONTEND = LogMelConfig()


def speech_like(seconds: float, seed: int) -> Tensor:
    """Noise of changing colour and level, (N,): every stack differs."""
    generator = torch.Generator().manual_seed(seed)
    samples = round(16000 * seconds)
    white = torch.randn(samples, generator=generator)
    slow = torch.randn(samples // 800 + 2, generator=generator).exp().repeat_interleave(800)[:samples]
    return 0.02 * slow * (white + 3.0 * white.cumsum(0).diff(prepend=torch.zeros(1)).roll(3))


def quantizer(stack: int = 8, books: int = 16, codes: int = 8192) -> RandomProjectionQuantizer:
    return RandomProjectionQuantizer(stack_width=80 * stack, width=16, books=books, codes=codes, seed=0)


def labels_of(power_TF: Tensor, stack: int = 8, quantize: RandomProjectionQuantizer | None = None) -> Tensor:
    stacks_CLS = stacked_targets(power_TF[None], torch.tensor([len(power_TF)]), stack)
    return (quantize or quantizer(stack))(stacks_CLS[0])


@pytest.mark.parametrize("stack", [4, 8])
def test_spans_start_at_stacks_and_cover_what_the_paper_says(stack: int) -> None:
    masked = [
        draw_spans(2000, stack=stack, span_frames=32, start_probability=0.025, rng=np.random.default_rng(seed))
        for seed in range(40)
    ]
    for mask_L in masked:
        assert len(mask_L) == 2000 // stack
        edges = np.flatnonzero(np.diff(np.concatenate([[False], mask_L, [False]]).astype(int)))
        runs = (edges[1::2] - edges[::2]) * stack
        ends_early = edges[1::2] == len(mask_L)  # the clip's end cuts the last span
        assert (runs[~ends_early] >= 32).all()
    expected = 1 - (1 - 0.025) ** 32  # .555: the same density as with starts at any mel frame
    assert abs(np.mean([mask_L[8:].mean() for mask_L in masked]) - expected) < 0.02


def test_a_span_that_is_no_multiple_of_the_stack_is_refused() -> None:
    with pytest.raises(ValueError, match=r"best_rq.span_frames is 30, wanted a multiple of the stack 8"):
        BestRqConfig(encoder=ENCODER, span_frames=30)
    for name, value in (("codebooks", 0), ("codes", 0), ("start_probability", 1.5)):
        with pytest.raises(ValueError, match=f"best_rq.{name}"):
            BestRqConfig(encoder=ENCODER, **{name: value})


@pytest.mark.parametrize("gain_db", [6.0, -20.0])
def test_gain_keeps_every_label_where_global_statistics_do_not(gain_db: float) -> None:
    audio_N = speech_like(6.0, 1)
    quiet_TF, loud_TF = mel_power(audio_N, FRONTEND), mel_power(audio_N * 10 ** (gain_db / 20), FRONTEND)
    assert torch.equal(labels_of(quiet_TF), labels_of(loud_TF))
    stacks = [normalised_log(p, FRONTEND)[:592].reshape(-1, 640) for p in (quiet_TF, loud_TF)]
    before, after = (quantizer()(stack) for stack in stacks)
    assert float((before == after).double().mean()) < 0.8


def test_targets_alone_equal_targets_padded() -> None:
    clips = [speech_like(seconds, seed) for seed, seconds in enumerate((1.0, 2.37, 4.0))]
    lengths_C = torch.tensor([num_mel_frames(len(clip)) for clip in clips])
    power_CTF = torch.full((3, int(lengths_C.max()), 80), 5.0)  # what lies in the padding must not matter
    for row, clip in enumerate(clips):
        power_CTF[row, : lengths_C[row]] = mel_power(clip, FRONTEND)
    stacks_CLS, quantize = stacked_targets(power_CTF, lengths_C, 8), quantizer()
    for row, frames in enumerate(lengths_C.tolist()):
        alone = labels_of(power_CTF[row, :frames], quantize=quantize)
        assert len(alone) == frames // 8
        assert torch.equal(quantize(stacks_CLS[row, : frames // 8]), alone)


def test_labels_use_many_codes_and_an_empty_band_is_no_target() -> None:
    power_TF = mel_power(speech_like(20.0, 2), FRONTEND)
    counts_KV = torch.stack([book.bincount(minlength=8192) for book in labels_of(power_TF).T])
    assert float(perplexity(counts_KV).min()) > 30
    power_TF[:, 60:] = 1e-12 * torch.rand(len(power_TF), 20)  # a telephone's upper band: dither, 100 dB down
    other_TF = power_TF.clone()
    other_TF[:, 60:] = 1e-12 * torch.rand(len(power_TF), 20)
    assert torch.equal(labels_of(power_TF), labels_of(other_TF))


def test_silence_has_finite_targets() -> None:
    assert stacked_targets(torch.zeros(1, 16, 80), torch.tensor([16]), 8).eq(0).all()


def test_autocast_changes_no_label_and_a_cast_quantiser_is_refused() -> None:
    power_TF, quantize = mel_power(speech_like(6.0, 3), FRONTEND), quantizer()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(labels_of(power_TF, quantize=quantize), labels_of(power_TF))
    stacks_LS = stacked_targets(power_TF[None], torch.tensor([len(power_TF)]), 8)[0]
    rounded = quantize(stacks_LS.bfloat16().float())
    assert not torch.equal(rounded, quantize(stacks_LS))  # the test above could fail: bf16 does move labels
    with pytest.raises(ValueError, match="float32"):
        quantize.bfloat16()(stacks_LS)


def test_the_stack_follows_the_encoder() -> None:
    stacking = ConformerConfig(subsampling="stacking", width=32, layers=1, heads=2, kernel=5, dropout=0.0)
    config = BestRqConfig(encoder=stacking, codebooks=2, codes=32)
    assert (config.stack, TINY.stack) == (4, 8)
    four = batch()
    four["labels"] = torch.full((2, 30), IGNORED)
    four["labels"][:, 3:11] = 0
    outputs = EncoderForBestRq(config)(**four)
    assert int(outputs["masked"]) == 16 and outputs["loss"].isfinite()


def batch(seed: int = 0, views: int = 1) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    lengths_C = torch.tensor([120, 83])
    labels_CL = torch.full((2, 15), IGNORED)
    labels_CL[0, 2:9] = 0
    labels_CL[1, 4:8] = 0
    return {
        "seen_feats_BTF": torch.randn(2 * views, 120, 80, generator=generator),
        "mel_lengths_B": lengths_C.repeat(views),
        "power_CTF": torch.rand(2, 120, 80, generator=generator),
        "labels": labels_CL.repeat(views, 1),
    }


def test_logits_exist_only_where_frames_are_masked() -> None:
    model = EncoderForBestRq(TINY)
    shapes: list[tuple[int, ...]] = []
    for head in model.heads:
        head.register_forward_hook(lambda module, inputs, output: shapes.append(tuple(output.shape)))
    outputs = model(**batch())
    assert shapes == [(11, 64)] * 3
    assert int(outputs["masked"]) == 11 and int(outputs["frames"]) == 15 + 11
    assert outputs["code_counts_KV"].sum(1).tolist() == [11, 11, 11]


def test_two_views_learn_the_same_labels() -> None:
    model = EncoderForBestRq(TINY)
    one, two = batch(), batch(views=2)
    two["power_CTF"] = one["power_CTF"]
    wanted: list[Tensor] = []
    original = torch.nn.functional.cross_entropy

    def spy(logits: Tensor, targets: Tensor, **kwargs: str) -> Tensor:
        wanted.append(targets)
        return original(logits, targets, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.nn.functional, "cross_entropy", spy)
        model(**two)
    alone_MK = model.targets(one["power_CTF"], one["mel_lengths_B"], one["labels"])
    for book, targets_M in enumerate(wanted):
        first, second = targets_M.chunk(2)
        assert torch.equal(first, second) and torch.equal(first, alone_MK[:, book])


def test_the_loss_is_that_of_the_masked_frames_of_all_batches() -> None:
    model = EncoderForBestRq(TINY).eval()
    first, second = batch(0), batch(1)
    second["labels"][:, 6:] = IGNORED
    count = sum(int((b["labels"] != IGNORED).sum()) for b in (first, second))
    parts = sum(model(**b, num_items=torch.tensor(count))["loss"] for b in (first, second))
    both = {name: torch.cat([first[name], second[name]]) for name in first}
    torch.testing.assert_close(parts, model(**both)["loss"])


def test_a_batch_without_masks_gives_zero_loss_and_gradients_everywhere() -> None:
    model = EncoderForBestRq(TINY)
    nothing = batch()
    nothing["labels"][:] = IGNORED
    loss = model(**nothing)["loss"]
    loss.backward()
    assert float(loss.detach()) == 0.0
    assert all(p.grad is not None and not p.grad.any() for p in model.parameters())


def test_the_quantiser_is_frozen_saved_and_the_same_for_a_seed() -> None:
    model = EncoderForBestRq(TINY)
    before = {name: value.clone() for name, value in model.quantizer.state_dict().items()}
    assert sorted(before) == ["codes_KVP", "projection_SP"] and not list(model.quantizer.parameters())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    first = None
    for _ in range(60):
        loss = model(**batch())["loss"]
        first = first or float(loss.detach())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert float(loss.detach()) < 0.5 * first
    torch.manual_seed(99)
    for name, value in EncoderForBestRq(TINY).quantizer.state_dict().items():
        assert torch.equal(value, before[name]) and torch.equal(value, model.state_dict()[f"quantizer.{name}"])


def test_a_frame_without_a_whole_stack_cannot_be_asked_for() -> None:
    wrong = batch()
    wrong["power_CTF"] = wrong["power_CTF"][:, :119]
    wrong["labels"][0, 14] = 0
    with pytest.raises(AssertionError, match="whole stack"):
        EncoderForBestRq(TINY)(**wrong)
