import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import scipy.fft
import scipy.signal
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from wearllama.audio.io import AudioError, AudioWarning, FirstDamaged, read_audio, write_audio
from wearllama.simulation import sources
from wearllama.simulation.bank import RirBank
from wearllama.simulation.device import IDEAL_DEVICE, DeviceConfig
from wearllama.simulation.mixing import Mixture, MixtureRecipe, Segment, render
from wearllama.simulation.noise import NoiseBank

NOISE = NoiseBank()


def scene(**changes: object) -> MixtureRecipe:
    fields = dict(
        segments=[Segment(file="a.wav", role="wearer", start_s=0.25)],
        sidetalk=[Segment(file="b.wav", role="bystander", start_s=0.5)],
        noise_type="Pink",
        snr_db=(0.0, 20.0),
    )
    return MixtureRecipe(**{**fields, **changes})


def mix(recipe: MixtureRecipe, bank: RirBank, root: Path, seed: int = 0) -> Mixture:
    return render(recipe, bank=bank, noise=NOISE, seed=seed, audio_root=root)


def alone(role: str, **changes: object) -> MixtureRecipe:
    fixed = dict(segments=[Segment(file="a.wav", role=role)], sidetalk=[], snr_db=None, device=IDEAL_DEVICE)
    return scene(**{**fixed, **changes})


def lag_and_level(audio_MN: np.ndarray, channel: int) -> tuple[float, float]:
    """Delay in samples and level in dB of a channel against c_0, by cross-correlation."""
    n_fft = 4 * audio_MN.shape[1]
    cross = scipy.fft.rfft(audio_MN[channel], n_fft // 2) * scipy.fft.rfft(audio_MN[0], n_fft // 2).conj()
    correlation = scipy.fft.irfft(cross, n_fft * 4)
    peak = int(np.argmax(np.abs(correlation)))
    lag = (peak if peak < n_fft * 2 else peak - n_fft * 4) / 8
    return lag, 10 * np.log10(np.sum(audio_MN[channel] ** 2) / np.sum(audio_MN[0] ** 2))


@pytest.mark.parametrize("role", ["wearer", "partner", "bystander"])
def test_delays_and_level_differences_are_the_responses_own(role: str, small_bank: RirBank, voices_dir: Path) -> None:
    index = small_bank.select(role=role, split="train")[0]
    recipe = alone(role, segments=[Segment(file="a.wav", role=role, rir=index, start_s=0.1)], level_dbfs=-20.0)
    audio_MN = mix(recipe, small_bank, voices_dir).audio_MN.numpy().astype(float)
    dry_N = read_audio(voices_dir / "a.wav")[0].numpy().astype(float)
    direct_MN = np.stack([scipy.signal.fftconvolve(dry_N, rir_K) for rir_K in small_bank.rir(index).astype(float)])
    for channel in range(1, 5):
        lag, level = lag_and_level(audio_MN, channel)
        true_lag, true_level = lag_and_level(direct_MN, channel)
        assert lag == pytest.approx(true_lag, abs=1.0) and level == pytest.approx(true_level, abs=0.1)


def test_a_mixture_is_the_sum_of_direct_convolutions(small_bank: RirBank, voices_dir: Path) -> None:
    recipe = scene(snr_db=None, device=IDEAL_DEVICE, effort_db=0.0, level_dbfs=-30.0, duration_s=2.0)
    mixture = mix(recipe, small_bank, voices_dir)
    expected_MN = np.zeros((5, 32000 + 4000))
    for source in mixture.metadata["sources"]:
        index = next(i for i, e in enumerate(small_bank.entries) if e.id == source["rir"])
        dry_N = read_audio(voices_dir / source["file"])[0].numpy().astype(float)
        active_N = np.repeat(dry_N.reshape(-1, 320).any(axis=1), 320)
        dry_N = dry_N / np.sqrt(np.mean(dry_N[active_N] ** 2))
        start = round(source["start_s"] * 16000) - small_bank.pre_samples
        for channel, rir_K in enumerate(small_bank.rir(index)):
            image_N = scipy.signal.fftconvolve(dry_N, rir_K.astype(float))
            end = min(start + len(image_N), expected_MN.shape[1])
            expected_MN[channel, start:end] += image_N[: end - start]
    found_MN = mixture.audio_MN.numpy()
    expected_MN = expected_MN[:, : found_MN.shape[1]]
    scale = np.sum(expected_MN * found_MN) / np.sum(expected_MN**2)
    assert found_MN.shape == (5, 32000)
    assert np.abs(found_MN - scale * expected_MN).max() < 1e-4 * np.abs(found_MN).max()


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(asked=st.floats(-5, 40), seed=st.integers(0, 2**40), kind=st.sampled_from(NOISE.names))
def test_signal_to_noise_ratio_is_the_asked_one(
    asked: float, seed: int, kind: str, small_bank: RirBank, voices_dir: Path
) -> None:
    recipe = scene(sidetalk=[], snr_db=asked, noise_type=kind, level_dbfs=-30.0, device=IDEAL_DEVICE)
    noisy = mix(recipe, small_bank, voices_dir, seed)
    quiet = mix(MixtureRecipe.from_dict({**recipe.to_dict(), "snr_db": None}), small_bank, voices_dir, seed)
    signal_N = quiet.audio_MN[0].double().numpy()
    noise_N = noisy.audio_MN[0].double().numpy() - signal_N
    if np.abs(noisy.audio_MN.numpy()).max() >= 1.0:
        return  # clipped: noise far over speech at a high level
    dry_N = read_audio(voices_dir / "a.wav")[0].numpy()
    active = np.flatnonzero(np.repeat(dry_N.reshape(-1, 320).any(axis=1), 320)) + 4000
    found = 10 * np.log10(np.mean(signal_N[active] ** 2) / np.mean(noise_N[active] ** 2))
    assert found == pytest.approx(asked, abs=0.1)
    assert noisy.metadata["snr_measured_db"] == pytest.approx(asked, abs=0.1)


def test_near_and_far_keep_their_relation(small_bank: RirBank, voices_dir: Path) -> None:
    levels = {}
    for role in ("wearer", "bystander"):
        mixture = mix(alone(role, effort_db=0.0, level_dbfs=-20.0, split="eval"), small_bank, voices_dir, 4)
        levels[role] = mixture.metadata["sources"][0]["level_dbfs"]
    assert levels["wearer"] == pytest.approx(-20, abs=1.5)
    assert 8 < levels["wearer"] - levels["bystander"] < 35


def test_sidetalk_ratio_on_request(small_bank: RirBank, voices_dir: Path) -> None:
    sources = mix(scene(sidetalk_snr_db=7.0, snr_db=None), small_bank, voices_dir).metadata["sources"]
    assert sources[0]["level_dbfs"] - sources[1]["level_dbfs"] == pytest.approx(7.0, abs=0.1)


class Mixtures(torch.utils.data.Dataset[torch.Tensor]):
    def __init__(self, bank: RirBank, root: Path) -> None:
        self.bank, self.root = bank, root

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> torch.Tensor:
        return mix(scene(duration_s=1.6, noise_type=None), self.bank, self.root, seed=100 + index).audio_MN


@pytest.mark.parametrize("num_workers", [1, 2, 4])
def test_same_seed_same_samples_in_any_worker(small_bank: RirBank, voices_dir: Path, num_workers: int) -> None:
    alone_first = [audio.clone() for audio in torch.utils.data.DataLoader(Mixtures(small_bank, voices_dir))]
    workers = torch.utils.data.DataLoader(Mixtures(small_bank, voices_dir), num_workers=num_workers)
    for first, second in zip(alone_first, workers, strict=True):
        assert torch.equal(first, second)
    assert not torch.equal(alone_first[0], alone_first[1])


def test_recipes_survive_json_and_pickle(small_bank: RirBank, voices_dir: Path) -> None:
    recipe = scene(device=DeviceConfig(gain_sd_db=0.5), duration_s=2.0, level_dbfs=-25.0)
    copied = MixtureRecipe.from_dict(json.loads(json.dumps(recipe.to_dict())))
    assert copied == recipe == pickle.loads(pickle.dumps(recipe))
    first, second = mix(recipe, small_bank, voices_dir, 9), mix(copied, small_bank, voices_dir, 9)
    assert torch.equal(first.audio_MN, second.audio_MN)
    assert json.loads(json.dumps(first.metadata)) == second.metadata
    assert MixtureRecipe().to_dict() == {}


def test_bad_recipes_are_refused() -> None:
    for row, message in (
        ({"segmnts": []}, "segmnts"),
        ({"segments": [{"file": "a.wav"}]}, "role"),
        ({"segments": [{"file": "a.wav", "role": "cat"}]}, "'cat'"),
        ({"snr_db": [3, 1]}, "snr_db"),
        ({"device": {"gain": 1}}, "gain"),
    ):
        with pytest.raises(ValueError, match=message):
            MixtureRecipe.from_dict(row)


def test_what_cannot_be_rendered_says_why(small_bank: RirBank, voices_dir: Path) -> None:
    with pytest.raises(ValueError, match="after duration_s"):
        mix(scene(duration_s=1.0), small_bank, voices_dir)
    with pytest.raises(ValueError, match="split 'test'"):
        mix(scene(split="test"), small_bank, voices_dir)
    with pytest.raises(ValueError, match="train_00777"):
        mix(scene(room="train_00777"), small_bank, voices_dir)
    with pytest.raises(AudioError, match=r"missing\.wav"):
        mix(scene(segments=[Segment(file="missing.wav", role="wearer")]), small_bank, voices_dir)
    with pytest.raises(ValueError, match="Barking"):
        mix(scene(noise_type="Barking"), small_bank, voices_dir)


def test_noise_only_silence_and_single_samples(
    small_bank: RirBank, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noise_only = mix(MixtureRecipe(snr_db=10.0, level_dbfs=-30.0), small_bank, tmp_path)
    rms = 10 * np.log10(float(noise_only.audio_MN[0].square().mean()))
    assert 1.5 * 16000 <= noise_only.audio_MN.shape[1] <= 4 * 16000 and rms == pytest.approx(-40, abs=2)
    write_audio(tmp_path / "one.wav", torch.full((1, 1), 0.5))
    monkeypatch.setattr(sources, "_damaged", FirstDamaged())  # a process names the first one alone
    with pytest.warns(AudioWarning, match=r"silent.wav: channel 0 is silent .*others are not named"):
        write_audio(tmp_path / "silent.wav", torch.zeros(1, 8000))
        silent = mix(scene(segments=[Segment(file="silent.wav", role="wearer")], sidetalk=[]), small_bank, tmp_path)
        one = mix(scene(segments=[Segment(file="one.wav", role="wearer")], sidetalk=[]), small_bank, tmp_path)
    for mixture in (silent, one):
        assert torch.isfinite(mixture.audio_MN).all()


def test_a_minute_long_source_is_whole_and_at_the_asked_ratio(small_bank: RirBank, tmp_path: Path) -> None:
    dry_N = np.random.default_rng(0).standard_normal(60 * 16_000) * 0.05
    write_audio(tmp_path / "long.wav", torch.from_numpy(dry_N[None]).float())
    words = [Segment(file="long.wav", role="wearer", rir=small_bank.select(role="wearer")[0])]
    fixed = {"sidetalk": [], "segments": words, "device": IDEAL_DEVICE, "level_dbfs": -30.0}
    quiet, noisy = (mix(scene(**fixed, snr_db=snr), small_bank, tmp_path) for snr in (None, 3.0))
    signal_MN, noise_MN = quiet.audio_MN.double().numpy(), (noisy.audio_MN - quiet.audio_MN).double().numpy()
    found = 10 * np.log10(np.mean(signal_MN[0, : len(dry_N)] ** 2) / np.mean(noise_MN[0, : len(dry_N)] ** 2))
    assert found == pytest.approx(3.0, abs=0.1)
    expected_N = scipy.signal.fftconvolve(dry_N, small_bank.rir(words[0].rir)[3].astype(float))
    expected_N = expected_N[small_bank.pre_samples :][: signal_MN.shape[1]]
    heard_N = signal_MN[3, : len(expected_N)]
    scale = np.sum(expected_N * heard_N) / np.sum(expected_N**2)
    assert np.abs(heard_N - scale * expected_N).max() < 2e-4 * np.abs(heard_N).max()


def test_sidetalk_may_run_past_the_end_but_the_words_may_not(small_bank: RirBank, voices_dir: Path) -> None:
    longer = [Segment(file="b.wav", role="bystander", start_s=1.2)]
    mixture = mix(scene(sidetalk=longer, duration_s=1.6), small_bank, voices_dir)
    assert mixture.audio_MN.shape == (5, 25600)
    assert [source["end_s"] for source in mixture.metadata["sources"]] == [1.55, 1.6]
    with pytest.raises(ValueError, match=r"speech ends at 1\.55 s"):
        mix(scene(duration_s=1.5), small_bank, voices_dir)


def test_dead_and_covered_microphones(small_bank: RirBank, voices_dir: Path) -> None:
    """A dead one has its self-noise only, wind or not; a covered c_0 loses its highs; the others are untouched."""
    fields = dict(noise_type="Wind", snr_db=10.0, level_dbfs=-20.0)
    plain = mix(scene(**fields), small_bank, voices_dir)
    broken = mix(scene(**fields, device=DeviceConfig(dead=(2,), covered=(0,), cover_db=20.0)), small_bank, voices_dir)
    assert broken.metadata["dead"] == [2] and broken.metadata["covered"] == [0] and "dead" not in plain.metadata
    levels = 10 * torch.log10(broken.audio_MN.double().square().mean(dim=1))
    assert -80 < float(levels[2]) < -65  # 50..55 dB under -20
    assert torch.equal(plain.audio_MN[[1, 3, 4]], broken.audio_MN[[1, 3, 4]])
    spectra = [np.abs(np.fft.rfft(m.audio_MN[0].numpy())) ** 2 for m in (plain, broken)]
    high = slice(len(spectra[0]) // 2, None)  # over 4 kHz, where wind is not
    assert 10 * np.log10(spectra[0][high].sum() / spectra[1][high].sum()) > 12


@pytest.mark.parametrize("asked", [-5.0, 40.0])
def test_a_minute_of_speech_has_the_asked_ratio_and_level_too(
    asked: float, small_bank: RirBank, voices_dir: Path, tmp_path: Path
) -> None:
    voice_N = torch.from_numpy(np.random.default_rng(0).standard_normal(60 * 16_000)).float() * 0.05
    voice_N[200_000:500_000] = 0.0
    write_audio(tmp_path / "long.wav", voice_N[None])
    recipe = scene(
        segments=[Segment(file="long.wav", role="wearer")], sidetalk=[], snr_db=asked, level_dbfs=-35.0, effort_db=0.0
    )
    mixture = mix(recipe, small_bank, tmp_path)
    assert mixture.metadata["snr_measured_db"] == pytest.approx(asked, abs=0.1)
    assert mixture.metadata["sources"][0]["level_dbfs"] == pytest.approx(-35.0, abs=1.0)
    assert 60 * 16_000 < mixture.audio_MN.shape[1] < 61 * 16_000 and torch.isfinite(mixture.audio_MN).all()
