"""Frames of a clip in pieces are those of the whole clip, however it is cut."""

import numpy as np
import pytest
import torch
from torch import Tensor

from wearllama.audio.array import load_array
from wearllama.audio.beamforming import design_beam, select_channels
from wearllama.audio.frontend import LogMel, LogMelConfig
from wearllama.audio.streaming import PICKED, FrontEndStream
from wearllama.audio.timebase import num_mel_frames

ARRAY = load_array("glasses5")
BEAM = design_beam(ARRAY)
LENGTHS = (1, 87, 240, 399, 400, 401, 488, 1_600, 1_841, 16_000, 30_123)


def clip(samples: int, seed: int = 0) -> Tensor:
    noise_MN = np.random.default_rng(seed).standard_normal((5, samples)).astype(np.float32)
    return torch.from_numpy(0.05 * noise_MN)


def whole(audio_MN: Tensor, channels: str) -> Tensor:
    pair_2N = torch.stack(select_channels(audio_MN, ARRAY, BEAM))
    return LogMel()(pair_2N[list(PICKED[channels])])


def stream(channels: str = "mc") -> FrontEndStream:
    return FrontEndStream(channels, ARRAY, BEAM, LogMelConfig())


def streamed(audio_MN: Tensor, channels: str, cuts: list[int]) -> Tensor:
    front = stream(channels)
    parts = [front.push(piece_MN) for piece_MN in audio_MN.split(cuts, dim=1)]
    return torch.cat([*parts, front.finish()], dim=1)


@pytest.mark.parametrize("channels", ["mc", "sc_beam", "sc_c0"])
@pytest.mark.parametrize("piece", [1, 160, 5_328, 10**6])
def test_any_pieces_give_the_frames_of_the_whole_clip(channels: str, piece: int) -> None:
    for samples in LENGTHS if piece > 1 else LENGTHS[:8]:
        audio_MN = clip(samples)
        cuts = [min(piece, samples - start) for start in range(0, samples, piece)]
        found = streamed(audio_MN, channels, cuts)
        assert found.shape[1] == num_mel_frames(samples)
        torch.testing.assert_close(found, whole(audio_MN, channels), atol=2e-6, rtol=0)


def test_random_pieces_with_empty_ones_between() -> None:
    audio_MN, rng = clip(20_000, 3), np.random.default_rng(1)
    places = sorted(rng.integers(0, 20_000, size=40).tolist())
    cuts = np.diff([0, *places, places[-1], 20_000]).tolist()
    torch.testing.assert_close(streamed(audio_MN, "mc", cuts), whole(audio_MN, "mc"), atol=2e-6, rtol=0)


def test_a_frame_leaves_once_the_beam_has_heard_its_look_ahead() -> None:
    front, audio_MN = stream(), clip(2_000)
    needed = 160 * 2 + 400 + BEAM.delay_samples
    assert front.push(audio_MN[:, : needed - 1]).shape[1] == 2
    assert front.push(audio_MN[:, needed - 1 : needed]).shape[1] == 1
    no_beam = stream()
    c0_N, cx_N = select_channels(audio_MN, ARRAY, BEAM)
    assert no_beam.push((c0_N[:399], cx_N[:399])).shape[1] == 0
    assert no_beam.push((c0_N[399:400], cx_N[399:400])).shape[1] == 1


def test_pairs_and_single_waveforms_need_no_beam() -> None:
    audio_MN = clip(5_000)
    c0_N, cx_N = select_channels(audio_MN, ARRAY, BEAM)
    front = stream()
    parts = [front.push((c0_N[:777], cx_N[:777])), front.push((c0_N[777:], cx_N[777:])), front.finish()]
    torch.testing.assert_close(torch.cat(parts, dim=1), whole(audio_MN, "mc"), atol=2e-6, rtol=0)
    single = stream("sc_c0")
    parts = [single.push(c0_N[:900]), single.push(c0_N[900:]), single.finish()]
    torch.testing.assert_close(torch.cat(parts, dim=1), LogMel()(c0_N[None]), atol=2e-6, rtol=0)


def test_what_cannot_be_heard_is_refused_and_changes_nothing() -> None:
    front, audio_MN = stream(), clip(1_000)
    front.push(audio_MN[:, :600])
    broken = audio_MN.clone()
    broken[2, 7] = float("nan")
    for wrong, words in (
        (audio_MN[:4], r"\(4, 1000\), wanted \(5, samples\)"),
        (audio_MN[0], "wanted c_0 and c_x"),
        ((audio_MN[0], audio_MN[1]), "a pair after microphones"),
        (broken, "finite floats"),
        ((audio_MN * 1000).short(), "int16"),
    ):
        with pytest.raises(ValueError, match=words):
            front.push(wrong)
    parts = [front.push(audio_MN[:, 600:]), front.finish()]
    assert sum(part.shape[1] for part in parts) + 1 == num_mel_frames(1_000)
    with pytest.raises(ValueError, match="at least one sample"):
        stream().finish()
