"""Noise in mixtures: levels and Lombard effort, the array's coherence, talkers in places of their own."""

from pathlib import Path

import numpy as np
import pytest
import scipy.signal
import torch

from wearllama.audio.array import load_array
from wearllama.audio.head import diffuse_covariance
from wearllama.audio.io import write_audio
from wearllama.simulation.bank import RirBank
from wearllama.simulation.device import IDEAL_DEVICE
from wearllama.simulation.levels import OWN_VOICE_DBA, lombard_db
from wearllama.simulation.mixing import Mixture, MixtureRecipe, Segment, render
from wearllama.simulation.noise import NoiseBank


def mix(bank: RirBank, root: Path, noise: NoiseBank | None = None, seed: int = 0, **fields: object) -> Mixture:
    fields = {"device": IDEAL_DEVICE, "level_dbfs": -50.0, "effort_db": 0.0, **fields}
    return render(MixtureRecipe(**fields), bank=bank, noise=noise or NoiseBank(), seed=seed, audio_root=root)


def level_db(audio_N: torch.Tensor) -> float:
    return float(10 * torch.log10(audio_N.double().square().mean()))


@pytest.mark.parametrize("asked", [40.0, 60.0, 75.0])
def test_noise_of_a_level_and_raised_voices(asked: float, small_bank: RirBank, voices_dir: Path) -> None:
    alone = mix(small_bank, voices_dir, noise_type="Vacuum Cleaning", noise_dba=asked, duration_s=3.0)
    assert level_db(alone.audio_MN[0]) == pytest.approx(-50.0 + asked - OWN_VOICE_DBA, abs=0.1)
    spoken = mix(
        small_bank, voices_dir, noise_type="Vacuum Cleaning", noise_dba=asked,
        segments=[Segment(file="a.wav", role="wearer")],
    )  # fmt: skip
    source = spoken.metadata["sources"][0]
    assert source["effort_db"] == pytest.approx(lombard_db(asked), abs=0.01)
    assert spoken.metadata["lombard_db"] == pytest.approx(lombard_db(asked), abs=0.01)
    # Room and microphone make own voice a little louder or weaker than nominal.
    wanted = OWN_VOICE_DBA + lombard_db(asked) - asked
    assert spoken.metadata["snr_measured_db"] == pytest.approx(wanted, abs=2.0)


def test_lombard_effort_starts_at_fifty_and_ends_in_a_shout() -> None:
    assert lombard_db(30.0) == lombard_db(50.0) == 0.0
    assert lombard_db(70.0) == pytest.approx(10.0)
    assert lombard_db(130.0) == 18.0


def test_usual_levels_follow_distance(small_bank: RirBank, tmp_path: Path) -> None:
    fields = dict(noise_type="Construction Noise: Jackhammer, other (15m)", noise_dba="typical", duration_s=2.0)
    near, far = (mix(small_bank, tmp_path, noise_distance_m=metres, **fields) for metres in (15.0, 60.0))
    assert 78 <= near.metadata["noise_dba"] <= 90
    assert near.metadata["noise_dba"] - far.metadata["noise_dba"] == pytest.approx(12.04, abs=0.02)
    assert level_db(near.audio_MN[0]) - level_db(far.audio_MN[0]) == pytest.approx(12.04, abs=0.1)


def coherence(mixtures: list[Mixture]) -> np.ndarray:
    """Real part of the coherence (M, F) of every channel with c_0, over all mixtures."""
    cross = np.zeros((5, 5, 257), complex)
    for mixture in mixtures:
        audio_MN = mixture.audio_MN.numpy()
        cross += scipy.signal.csd(audio_MN[:, None], audio_MN[None], 16_000, nperseg=512)[1]
    scale = np.sqrt(np.einsum("mmf->mf", cross).real)
    return (cross / scale[:, None] / scale[None])[0].real


def wanted_coherence() -> np.ndarray:
    covariance_FMM = diffuse_covariance(load_array("glasses5").positions_M3, np.linspace(0, 8000, 257))
    scale_FM = np.sqrt(np.einsum("fmm->fm", covariance_FMM).real)
    return (covariance_FMM / scale_FM[:, :, None] / scale_FM[:, None, :])[:, 0].real.T


def test_an_isotropic_field_has_the_arrays_coherence(small_bank: RirBank, tmp_path: Path) -> None:
    fields = dict(noise_type="Pink", noise_field="isotropic", snr_db=0.0, duration_s=12.0, level_dbfs=-30.0)
    mixture = mix(small_bank, tmp_path, **fields)
    error_MF = np.abs(coherence([mixture]) - wanted_coherence())[:, 5:250]
    assert error_MF.mean(axis=1).max() < 0.06 and error_MF.max() < 0.35
    assert mixture.metadata["noise_field"] == "isotropic"


def test_a_diffuse_response_has_it_on_the_mean_over_frequency(small_bank: RirBank, tmp_path: Path) -> None:
    """One response is one draw of the field: bands of 375 Hz are averaged, and two rooms."""
    fields = dict(noise_type="Pink", snr_db=0.0, duration_s=6.0, level_dbfs=-30.0)
    mixtures = [mix(small_bank, tmp_path, split=split, **fields) for split in ("train", "eval")]
    bands = [np.mean(x_MF[:, 8:128].reshape(5, 10, 12), axis=-1) for x_MF in (coherence(mixtures), wanted_coherence())]
    assert np.abs(bands[0] - bands[1]).mean(axis=1).max() < 0.2
    assert bands[0][1:, 0].min() > 0.6  # not independent noises


def test_talkers_of_a_conversation_have_places_of_their_own(small_bank: RirBank, tmp_path: Path) -> None:
    for name in ("ann", "bob"):
        write_audio(tmp_path / f"{name}.wav", 0.1 * torch.randn(1, 16_000))
    noise = NoiseBank(speech=tmp_path)
    fields = dict(noise_type="Normal Conversation (1m)", snr_db=5.0, duration_s=3.0, level_dbfs=-30.0)
    mixture = mix(small_bank, tmp_path, noise, **fields)
    assert mixture.metadata["noise_source"] in ("speakers/ann+bob", "speakers/bob+ann")
    assert mixture.metadata["noise_field"] == "point"
    assert level_db(mixture.audio_MN[0]) == pytest.approx(-35.0, abs=0.2)
    # One point source has one direction: two independent ones leave the channels less alike.
    single = mix(small_bank, tmp_path, NoiseBank(), **{**fields, "noise_type": "Vacuum Cleaning"})

    def rank_ratio(audio_MN: torch.Tensor) -> float:
        spectra = torch.stft(audio_MN, 2048, return_complex=True, window=torch.hann_window(2048))[:, 40:60]
        values = torch.linalg.svdvals(spectra.permute(1, 0, 2))
        return float((values[:, 1] / values[:, 0]).median())

    assert rank_ratio(mixture.audio_MN) > 1.2 * rank_ratio(single.audio_MN)


def test_bad_levels_are_refused() -> None:
    with pytest.raises(ValueError, match="'loud'"):
        MixtureRecipe(noise_dba="loud")
    with pytest.raises(ValueError, match="needs noise_dba='typical'"):
        MixtureRecipe(noise_distance_m=3.0)
    with pytest.raises(ValueError, match="positive"):
        MixtureRecipe(noise_dba="typical", noise_distance_m=(0.0, 2.0))
    recipe = MixtureRecipe(noise_dba="typical", noise_distance_m=(5.0, 20.0))
    assert MixtureRecipe.from_dict(recipe.to_dict()) == recipe
