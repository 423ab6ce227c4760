"""The packaged encoder hears words, and near and far stay linearly separable in its embeddings."""

import json
from pathlib import Path

import jiwer
import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from wearllama.audio.array import load_array
from wearllama.audio.beamforming import design_beam, select_channels
from wearllama.audio.frontend import LogMel, LogMelConfig
from wearllama.audio.io import read_audio
from wearllama.audio.timebase import num_mel_frames
from wearllama.data.ctc_text import WordPieces, spoken_form
from wearllama.modeling.conformer import ConformerEncoder
from wearllama.modeling.encoder_io import PACKAGED, load_encoder, stored_config
from wearllama.modeling.pretraining import greedy_ctc
from wearllama.simulation.build import BankConfig, build_bank
from wearllama.simulation.mixing import MixtureRecipe, Segment, render
from wearllama.simulation.noise import NoiseBank
from wearllama.simulation.scenes import SceneConfig

SPEECH = Path(__file__).parents[1] / "fixtures" / "speech"
TRANSCRIPTS: dict[str, str] = json.loads((SPEECH / "transcripts.json").read_text())
MAX_WEIGHTS_BYTES = 15_000_000
RIDGE = 3000.0  # a thousand frames of only 48 clips are far from independent
SILENCE_SAMPLES = 4800  # recordings do not end with the last phoneme


@pytest.fixture(scope="module")
def encoder() -> ConformerEncoder:
    return load_encoder("packaged").eval()


@torch.no_grad()
def embed(encoder: ConformerEncoder, clips: list[Tensor]) -> list[Tensor]:
    """Embeddings (L, D) of each clip (N,)."""
    lengths_B = torch.tensor([num_mel_frames(len(clip)) for clip in clips])
    audio_BN = torch.nn.utils.rnn.pad_sequence(clips, batch_first=True)
    outputs = encoder(LogMel()(audio_BN), lengths_B)
    return [row[:length] for row, length in zip(outputs.embeddings_BLD, outputs.lengths_B.tolist(), strict=True)]


def test_weights_are_small_and_belong_to_this_front_end() -> None:
    assert (PACKAGED / "encoder.safetensors").stat().st_size <= MAX_WEIGHTS_BYTES
    assert LogMelConfig(**stored_config("packaged")["frontend"]) == LogMelConfig()
    assert (PACKAGED / "README.md").is_file()


def test_words_of_clean_speech(encoder: ConformerEncoder) -> None:
    names = sorted(TRANSCRIPTS)
    pieces = WordPieces.load(PACKAGED / "pieces.json")
    head = load_file(PACKAGED / "encoder.safetensors")
    clips = [torch.nn.functional.pad(read_audio(SPEECH / name)[0] * 0.1, (1600, SILENCE_SAMPLES)) for name in names]
    embeddings = embed(encoder, clips)
    heard = []
    for row_LD in embeddings:
        logits_LV = row_LD @ head["piece_head.weight"].float().T + head["piece_head.bias"].float()
        heard.append(pieces.decode(greedy_ctc(logits_LV[None], torch.tensor([len(row_LD)]))[0]))
    assert jiwer.wer([spoken_form(TRANSCRIPTS[name]) for name in names], heard) < 0.35


def near_far_clips(
    encoder: ConformerEncoder, bank_dir: Path, split: str, files: list[str]
) -> list[tuple[Tensor, float]]:
    """Embeddings of c_0 beside those of c_x (L, 2 D), and +1 for wearer, -1 for bystander; loudness is made no cue."""
    array, noise = load_array("glasses5"), NoiseBank()
    rooms = SceneConfig(wearer_poses=2, partners=1, bystanders=2, noises=1, diffuse=0)
    bank = build_bank(BankConfig(train_rooms=3, eval_rooms=2, scene=rooms), array, bank_dir, progress=False)
    beam = design_beam(array)
    clips = []
    rng = np.random.default_rng(0)
    for seed in range(24):
        for role, label in (("wearer", 1.0), ("bystander", -1.0)):
            segment = Segment(file=files[rng.integers(len(files))], role=role, start_s=0.1)
            recipe = MixtureRecipe(segments=(segment,), snr_db=(15.0, 30.0), noise_type="Quiet Office", split=split)
            audio_MN = render(recipe, bank=bank, noise=noise, seed=seed, audio_root=SPEECH).audio_MN
            channels = select_channels(audio_MN, array, beam)
            loudness = channels[0].square().mean().sqrt().clamp_min(1e-6)
            pair = embed(encoder, [channel * (0.03 / loudness) for channel in channels])
            clips.append((torch.cat(pair, dim=-1), label))
    return clips


def test_near_and_far_are_linearly_separable(encoder: ConformerEncoder, tmp_path: Path) -> None:
    """A ridge probe on frames of some voices and rooms tells wearer from bystander with other voices in other rooms."""
    names = sorted(TRANSCRIPTS)
    train = near_far_clips(encoder, tmp_path / "bank", "train", [n for n in names if n.startswith("flite")])
    test = near_far_clips(encoder, tmp_path / "bank", "eval", [n for n in names if n.startswith("pico")])
    x_ND = torch.cat([frames_LD for frames_LD, _ in train])
    y_N = torch.cat([torch.full((len(frames_LD),), label) for frames_LD, label in train])
    mean_D, scale_D = x_ND.mean(0), x_ND.std(0) + 1e-4
    z_ND = (x_ND - mean_D) / scale_D
    weights_D = torch.linalg.solve(z_ND.T @ z_ND + RIDGE * torch.eye(z_ND.shape[1]), z_ND.T @ y_N)
    right = [float(((frames_LD - mean_D) / scale_D @ weights_D).mean()) * label > 0 for frames_LD, label in test]
    assert np.mean(right) >= 0.9
