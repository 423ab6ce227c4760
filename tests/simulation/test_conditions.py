"""Conditions: each does what its name says, repeats, keeps the spatial cue where it must, and takes the beam along."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.signal
import soundfile
import torch

from wearllama.audio.array import load_array
from wearllama.audio.beamforming import apply_beam, design_beam
from wearllama.audio.head import diffuse_covariance
from wearllama.audio.io import read_audio
from wearllama.simulation.bank import RirBank
from wearllama.simulation.conditions import GROUPS, KINDS, SAME_FOR_ALL, SCENE, Condition, parse_conditions
from wearllama.simulation.mixing import MixtureRecipe, Segment, render
from wearllama.simulation.noise import NoiseBank
from wearllama.simulation.scene_edits import Surrounding, talk_of
from wearllama.simulation.sources import active_samples

GLASSES = load_array("glasses5")
BEAM = design_beam(GLASSES)
NOISE = NoiseBank()
SPEECH = Path(__file__).resolve().parents[1] / "fixtures" / "speech"
RECORDING_KINDS = [name for name, kind in KINDS.items() if kind.how != SCENE]


def recording() -> torch.Tensor:
    """Speech on five channels with delays and levels of their own, at -30 dBFS."""
    speech_N = read_audio(SPEECH / "flite_slt_f892.flac")[0]
    speech_N = speech_N * 0.0316 / speech_N.square().mean().sqrt()
    heard = {0: (0, 1.0), 1: (3, 0.5), 2: (3, 0.4), 3: (7, 0.2), 4: (7, 0.2)}
    return torch.stack([torch.roll(speech_N, lag) * gain for lag, gain in heard.values()])


def apply(name: str, audio_MN: torch.Tensor, beam_N: torch.Tensor | None = None, key: str = "a"):
    (condition,) = parse_conditions(name)
    return condition.apply(audio_MN, beam_N, array=GLASSES, beam=BEAM, noise=NOISE, key=key)


def lag_and_level(audio_MN: torch.Tensor, channel: int) -> tuple[int, float]:
    first_N, second_N = audio_MN[0].double().numpy(), audio_MN[channel].double().numpy()
    correlation = scipy.signal.correlate(second_N, first_N)
    lag = int(np.argmax(np.abs(correlation))) - len(first_N) + 1
    return lag, 10 * np.log10(np.sum(second_N**2) / np.sum(first_N**2))


@pytest.mark.parametrize("kind", RECORDING_KINDS)
def test_every_condition_repeats_differs_by_recording_and_stays_finite(kind: str) -> None:
    audio_MN = recording()
    name = Condition(kind=kind, value=KINDS[kind].sweep[0]).name
    before_MN = audio_MN.clone()
    first_MN, first_N = apply(name, audio_MN, apply_beam(audio_MN, BEAM))
    again_MN, again_N = apply(name, audio_MN, apply_beam(audio_MN, BEAM))
    assert torch.equal(audio_MN, before_MN)  # what is cached elsewhere must not change
    assert torch.equal(first_MN, again_MN) and torch.equal(first_N, again_N)
    assert first_MN.dtype == first_N.dtype == torch.float32 and first_N.shape == first_MN.shape[1:]
    assert torch.isfinite(first_MN).all() and not torch.equal(first_MN, before_MN)
    if kind in ("snr", "wind", "equaliser", "background_music", "reverberation", "gaussian_noise"):
        assert not torch.equal(apply(name, audio_MN, key="b")[0], first_MN)


@pytest.mark.parametrize("kind", RECORDING_KINDS)
def test_the_recorded_beam_follows_as_the_beam_of_the_changed_array_would(kind: str) -> None:
    """For a beam that is the nominal one, c_x under the condition is the beam of the array under it."""
    audio_MN = recording()
    name = Condition(kind=kind, value=KINDS[kind].sweep[-1]).name
    changed_MN, beam_N = apply(name, audio_MN, apply_beam(audio_MN, BEAM))
    expected_N = apply_beam(changed_MN, BEAM)
    error = (beam_N - expected_N)[400:-400].square().mean() / expected_N.square().mean()
    # Cutting and joining, and interpolation, exchange with a filter only roughly.
    assert error < (0.2 if kind in ("tempo", "pitch", "aliasing") else 1e-6)


@pytest.mark.parametrize("kind", [name for name, kind in KINDS.items() if kind.how == SAME_FOR_ALL])
def test_what_is_the_same_for_all_channels_keeps_delays_and_levels(kind: str) -> None:
    before_MN = recording()
    for value in KINDS[kind].sweep:
        after_MN, _ = apply(Condition(kind=kind, value=value).name, before_MN)
        for channel in range(1, 5):
            lag, level = lag_and_level(before_MN, channel)
            found_lag, found_level = lag_and_level(after_MN, channel)
            assert found_lag == lag and found_level == pytest.approx(level, abs=0.3), (kind, value)


@pytest.mark.parametrize("kind", ["snr", "gaussian_noise", "coloured_noise", "background_music", "background_sounds"])
@pytest.mark.parametrize("asked", [-5.0, 12.0])
def test_added_noise_has_the_asked_ratio_over_active_speech(kind: str, asked: float) -> None:
    audio_MN = recording()
    noise_N = (apply(f"{kind}:{asked}", audio_MN)[0] - audio_MN)[0]
    active_N = torch.from_numpy(active_samples(audio_MN[0].numpy()))
    found = 10 * torch.log10(audio_MN[0][active_N].square().mean() / noise_N[active_N].square().mean())
    assert float(found) == pytest.approx(asked, abs=0.05)


def test_fields_of_added_noise() -> None:
    """Diffuse noise has the array's coherence, wind and self-noise none, music one direction."""
    audio_MN = torch.zeros(5, 6 * 16_000)
    audio_MN[:, ::160] = 0.01
    coherences = {}
    for name in ("snr:0", "wind:0", "gaussian_noise:0", "background_music:0"):
        noise_MN = (apply(name, audio_MN)[0] - audio_MN).numpy()
        freqs_F, coherences[name] = scipy.signal.coherence(noise_MN[0], noise_MN[3], 16_000, nperseg=512)
    covariance_FMM = diffuse_covariance(GLASSES.positions_M3, freqs_F)
    wanted_F = np.abs(covariance_FMM[:, 0, 3]) ** 2 / (covariance_FMM[:, 0, 0] * covariance_FMM[:, 3, 3]).real
    band_F = (freqs_F > 200) & (freqs_F < 3000)
    assert np.abs(coherences["snr:0"] - wanted_F)[band_F].mean() < 0.1
    assert coherences["wind:0"][band_F].mean() < 0.1 and coherences["gaussian_noise:0"][band_F].mean() < 0.1
    assert np.median(coherences["background_music:0"][band_F]) > 0.9


def test_reverberation_decays_as_asked_and_is_diffuse() -> None:
    audio_MN = torch.zeros(5, 24_000)
    audio_MN[:, 1000] = 0.5
    tail_MN = (apply("reverberation:0.6", audio_MN)[0] - audio_MN).numpy().astype(float)
    decay_N = 10 * np.log10(np.cumsum(tail_MN[0, ::-1] ** 2)[::-1] + 1e-20)
    decay_N -= decay_N[1000]
    at = [int(np.argmax(decay_N[1200:] < level)) for level in (-5, -25)]
    assert 3 * (at[1] - at[0]) / 16_000 == pytest.approx(0.6, rel=0.1)
    energy = np.sum(tail_MN[0] ** 2) / 0.25
    assert energy == pytest.approx(1.2, rel=0.05)
    assert np.abs(tail_MN[:, :1100]).max() < 1e-6  # walls are not at the microphones


def test_overload_and_failures() -> None:
    audio_MN = recording()
    clipped_MN, _ = apply("clipping:12", audio_MN)
    assert float(clipped_MN.abs().max()) == pytest.approx(float(audio_MN.abs().max()) * 10 ** (-0.6), rel=1e-4)
    dead_MN, _ = apply("dead_microphone:2", audio_MN)
    assert torch.equal(dead_MN[[0, 1, 3, 4]], audio_MN[[0, 1, 3, 4]])
    assert 10 * torch.log10(dead_MN[2].square().mean() / audio_MN.square().mean()) == pytest.approx(-60, abs=1)
    covered_MN, _ = apply("covered_microphone:1", audio_MN)
    assert torch.equal(covered_MN[[0, 2, 3, 4]], audio_MN[[0, 2, 3, 4]])
    loss = [
        torch.fft.rfft(x_MN[1]).abs().square()[int(0.25 * audio_MN.shape[1]) :].sum() for x_MN in (audio_MN, covered_MN)
    ]
    assert 10 * float(torch.log10(loss[0] / loss[1])) == pytest.approx(20, abs=4)
    with pytest.raises(ValueError, match=r"has 0\.\.4"):
        apply("dead_microphone:5", audio_MN)
    with pytest.raises(ValueError, match="mono"):
        apply("covered_microphone:0", audio_MN[:1])


@pytest.mark.parametrize("kind", [name for name in RECORDING_KINDS if "microphone" not in name])
def test_mono_recordings_stay_mono(kind: str) -> None:
    audio_MN = recording()[:1]
    changed_MN, beam_N = apply(Condition(kind=kind, value=KINDS[kind].sweep[0]).name, audio_MN)
    assert changed_MN.shape[0] == 1 and beam_N is None


def test_names_sweeps_and_groups() -> None:
    assert parse_conditions("clean") == [None]
    assert [c.name for c in parse_conditions("snr")] == ["snr:20", "snr:10", "snr:5", "snr:0", "snr:-5"]
    assert [c and c.name for c in parse_conditions(["clean", "pitch:-3", "tempo:1.5", "pitch"])][:3] == [
        None,
        "pitch:-3",
        "tempo:1.5",
    ]
    voxeval = [c.name for c in parse_conditions("voxeval")]
    assert len(voxeval) == 17 and len(set(voxeval)) == 17 and voxeval == [n for n in GROUPS["voxeval"]]
    for text, message in (("snow", "'snow' is unknown"), ("snr:loud", "'loud' is no number"), ("snr:", "no number")):
        with pytest.raises(ValueError, match=message):
            parse_conditions(text)
    assert parse_conditions("tempo:2")[0].seconds(4.0) == 2.0 and parse_conditions("snr:3")[0].seconds(4.0) == 4.0


def test_wrong_channels_are_refused() -> None:
    with pytest.raises(ValueError, match="3 channels, wanted 1 or 5 of array 'glasses5'"):
        apply("snr:5", torch.zeros(3, 100))


def test_silence_stays_silence() -> None:
    silent_MN = torch.zeros(5, 8000)
    for kind in ("snr", "wind", "tempo", "pitch", "clipping", "reverberation", "covered_microphone"):
        changed_MN, _ = apply(Condition(kind=kind, value=KINDS[kind].sweep[0]).name, silent_MN)
        assert not changed_MN.any()


# --- scenes ----------------------------------------------------------------------------------------------------------


def scene() -> MixtureRecipe:
    return MixtureRecipe(
        segments=(Segment(file="a.wav", role="wearer"), Segment(file="b.wav", role="bystander", start_s=1.5)),
        snr_db=30.0, noise_type="Pink", split="eval",
    )  # fmt: skip


def test_a_scene_moves_to_another_room_or_distance_or_ratio(small_bank: RirBank, voices_dir: Path) -> None:
    rt60 = small_bank.entries[small_bank.select(split="eval")[0]].rt60_s
    far = max(small_bank.select(role="bystander", split="eval"), key=lambda i: small_bank.entries[i].distance_m)
    for kind, value in (("rt60", rt60 * 1.1), ("distance", small_bank.entries[far].distance_m), ("scene_snr", 3.0)):
        edited = Condition(kind=kind, value=value).edit(scene(), Surrounding(bank=small_bank), seed=5)
        mixture = render(edited, bank=small_bank, noise=NOISE, seed=5, audio_root=voices_dir)
        if kind == "rt60":
            assert mixture.metadata["rt60_s"] == rt60
        if kind == "distance":
            bystander = mixture.metadata["sources"][1]
            assert bystander["distance_m"] == small_bank.entries[far].distance_m
        if kind == "scene_snr":
            assert mixture.metadata["snr_measured_db"] == pytest.approx(3.0, abs=0.1)


def test_what_the_bank_has_not_is_said(small_bank: RirBank) -> None:
    with pytest.raises(ValueError, match=r"no room of split 'eval' has about 9 s.*nearest is"):
        Condition(kind="rt60", value=9.0).edit(scene(), Surrounding(bank=small_bank), seed=0)
    with pytest.raises(ValueError, match="bystander at about 50 m"):
        Condition(kind="distance", value=50.0).edit(scene(), Surrounding(bank=small_bank), seed=0)
    alone = MixtureRecipe(segments=(Segment(file="a.wav", role="wearer"),), split="eval")
    assert Condition(kind="distance", value=50.0).edit(alone, Surrounding(bank=small_bank), seed=0) == alone


def test_a_bystander_talks_over_a_share_of_the_words(small_bank: RirBank, tmp_path: Path) -> None:
    for file, seconds in (("ann/a.wav", 2.0), ("bob/b.wav", 3.0), ("ann/c.wav", 1.0)):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        soundfile.write(tmp_path / file, np.full(int(16_000 * seconds), 0.1), 16_000)
    wearer = Segment(file="ann/a.wav", role="wearer", start_s=0.5)
    alone = MixtureRecipe(segments=(wearer,), split="eval", duration_s=2.8)
    rows = {"x": {"recipe": alone.to_dict()}, "y": {"recipe": {"segments": [{"file": "bob/b.wav"}]}}}
    around = Surrounding(bank=small_bank, audio_root=tmp_path, talk=talk_of(rows))
    for share, start in ((0.0, 2.5), (0.25, 2.0), (1.0, 0.5)):
        edited = Condition(kind="overlap", value=share).edit(alone, around, seed=3)
        (talk,) = edited.sidetalk
        assert (talk.file, talk.role, talk.start_s) == ("bob/b.wav", "bystander", start)  # another voice, never Ann's
        assert edited.duration_s == pytest.approx(start + 3.3) and edited.segments == alone.segments
        mixture = render(edited, bank=small_bank, noise=NOISE, seed=5, audio_root=tmp_path)
        assert mixture.audio_MN.shape[1] == round(edited.duration_s * 16_000)
    own = replace(alone, sidetalk=(Segment(file="ann/c.wav", role="bystander", start_s=0.1),))
    assert Condition(kind="overlap", value=0.5).edit(own, around, seed=3).sidetalk[0] == Segment(
        file="ann/c.wav", role="bystander", start_s=1.5
    )
    nobody = Surrounding(bank=small_bank, audio_root=tmp_path, talk=("ann/a.wav",))
    with pytest.raises(ValueError, match="no other voice speaks in these scenes"):
        Condition(kind="overlap", value=0.5).edit(alone, nobody, seed=3)
    with pytest.raises(ValueError, match="overlap:2: wanted a share of 0 to 1"):
        Condition(kind="overlap", value=2.0).edit(alone, around, seed=3)
