"""The ways to a mixture and its beam that ``tools/benchmark.py mixing`` compares.

Shapes: S sources, M microphones, N samples, K taps, B blocks, P samples of a block, F bins.
"""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyroomacoustics as pra
import scipy.fft
import scipy.signal
import torch
import torchaudio
from numpy.typing import NDArray
from torch import Tensor

from wearllama.audio.array import load_array
from wearllama.audio.beamforming import Beam, apply_beam, beam_blocks, design_beam, select_channels
from wearllama.audio.io import write_audio
from wearllama.audio.timebase import SAMPLE_RATE
from wearllama.simulation.bank import RirBank, RirEntry, write_bank
from wearllama.simulation.convolve import BlockPlan, mix_channels, transform_source
from wearllama.simulation.device import IDEAL_DEVICE
from wearllama.simulation.mixing import MixtureRecipe, Segment, render
from wearllama.simulation.noise import NoiseBank

PRE_SAMPLES = 32
ROLES = ("wearer", "partner", "bystander")

Signal = NDArray[np.float32]


class Scene(NamedTuple):
    """The same mixture for all."""

    signal_SN: Signal
    rir_SMK: NDArray[np.float32]
    beam: Beam


class Way(NamedTuple):
    """One way to the mixture (M, N) and the beam (N,) of it."""

    name: str
    mix: Callable[[], Tensor]
    beam: Callable[[Tensor], Tensor]


def make_scene(seconds: float, response_s: float, array_name: str, seed: int) -> Scene:
    """Noise through decaying noise: what they are changes no time."""
    rng = np.random.default_rng(seed)
    array = load_array(array_name)
    samples, taps = round(seconds * SAMPLE_RATE), round(response_s * SAMPLE_RATE)
    rir_SMK = rng.standard_normal((len(ROLES), array.num_mics, taps)) * 10 ** (-3 * np.arange(taps) / taps)
    rir_SMK[..., :PRE_SAMPLES] = 0.0
    rir_SMK[..., PRE_SAMPLES] = 4.0
    signal_SN = 0.1 * rng.standard_normal((len(ROLES), samples))
    return Scene(signal_SN.astype(np.float32), rir_SMK.astype(np.float32), design_beam(array))


def ours(scene: Scene) -> Way:
    """Blocks in the frequency domain, the responses' spectra kept, one inverse transform a channel."""
    samples, (_, mics, taps) = scene.signal_SN.shape[1], scene.rir_SMK.shape
    plan = BlockPlan(length=samples, taps=taps)
    spectra = [scipy.fft.rfft(rir_MK, plan.n_fft) for rir_MK in scene.rir_SMK]

    def mix() -> Tensor:
        sources = [transform_source(plan, signal_N, 0) for signal_N in scene.signal_SN]
        audio_MN = np.empty((mics, samples), np.float32)
        mix_channels(plan, sources, spectra, list(range(mics)), audio_MN)
        return torch.from_numpy(audio_MN)

    return Way("ours", mix, lambda audio_MN: apply_beam(audio_MN, scene.beam))


def scipy_way(scene: Scene) -> Way:
    """One scipy.signal.fftconvolve for each source and channel."""
    samples, fir_MK, delay = scene.signal_SN.shape[1], scene.beam.fir_MK, scene.beam.delay_samples

    def mix() -> Tensor:
        audio_MN = np.zeros((len(fir_MK), samples), np.float32)
        for signal_N, rir_MK in zip(scene.signal_SN, scene.rir_SMK, strict=True):
            for mic, rir_K in enumerate(rir_MK):
                audio_MN[mic] += scipy.signal.fftconvolve(signal_N, rir_K)[:samples]
        return torch.from_numpy(audio_MN)

    def beam(audio_MN: Tensor) -> Tensor:
        full = [scipy.signal.fftconvolve(x_N, fir_K) for x_N, fir_K in zip(audio_MN.numpy(), fir_MK, strict=True)]
        return torch.from_numpy(sum(full)[delay : delay + samples])

    return Way("scipy.signal.fftconvolve", mix, beam)


def torchaudio_way(scene: Scene) -> Way:
    """One torchaudio.functional.fftconvolve for each source, all channels at once."""
    samples, delay = scene.signal_SN.shape[1], scene.beam.delay_samples
    signal_SN, rir_SMK = torch.from_numpy(scene.signal_SN), torch.from_numpy(scene.rir_SMK)
    fir_MK = torch.from_numpy(scene.beam.fir_MK.copy())
    convolve = torchaudio.functional.fftconvolve

    def mix() -> Tensor:
        images = [convolve(x_N.expand(len(h_MK), -1), h_MK) for x_N, h_MK in zip(signal_SN, rir_SMK, strict=True)]
        return torch.stack(images).sum(dim=0)[:, :samples]

    return Way("torchaudio fftconvolve", mix, lambda a_MN: convolve(a_MN, fir_MK).sum(dim=0)[delay : delay + samples])


def pyroomacoustics_way(scene: Scene) -> Way:
    """room.simulate() with its responses ready; the beam, which it lacks, is ours."""
    sources, mics, _ = scene.rir_SMK.shape
    samples = scene.signal_SN.shape[1]
    room = pra.ShoeBox([5.0, 4.0, 3.0], fs=SAMPLE_RATE, max_order=0)
    for source, signal_N in enumerate(scene.signal_SN):
        room.add_source([1.0 + source, 1.0, 1.5], signal=signal_N)
    room.add_microphone_array(np.array([[2.0 + 0.01 * mic, 2.0, 1.5] for mic in range(mics)]).T)
    room.rir = [[scene.rir_SMK[source, mic] for source in range(sources)] for mic in range(mics)]

    def mix() -> Tensor:
        room.simulate()
        return torch.from_numpy(np.asarray(room.mic_array.signals[:, :samples], np.float32))

    return Way("pyroomacoustics simulate()", mix, lambda audio_MN: apply_beam(audio_MN, scene.beam))


def whole_render(scene: Scene, folder: Path) -> Callable[[], object]:
    """What a data worker calls: the recipe drawn, levels set on images at c_0, metadata, clipping, and the beam."""
    array = load_array(scene.beam.array)
    bank = folder / "bank"
    known = dict(azimuth_deg=0.0, elevation_deg=0.0, distance_m=1.0, rt60_s=0.5, drr_db=0.0, room="r", split="train")
    entries = [RirEntry(id=role, role=role, array=array.name, **known) for role in ROLES]  # type: ignore[arg-type]
    shape = dict(num_channels=scene.rir_SMK.shape[1], num_taps=scene.rir_SMK.shape[2], pre_samples=PRE_SAMPLES)
    write_bank(bank, entries, scene.rir_SMK, **shape, dtype="float32")
    for role, signal_N in zip(ROLES, scene.signal_SN, strict=True):
        write_audio(folder / f"{role}.wav", torch.from_numpy(signal_N[None]))
    segments = [Segment(file=f"{role}.wav", role=role, rir=index) for index, role in enumerate(ROLES)]
    seconds = scene.signal_SN.shape[1] / SAMPLE_RATE
    recipe = MixtureRecipe(
        segments=segments[:2], sidetalk=segments[2:], snr_db=None, duration_s=seconds, device=IDEAL_DEVICE
    )
    opened, noise = RirBank.open(bank), NoiseBank()

    def run() -> object:
        mixture = render(recipe, bank=opened, noise=noise, seed=0, audio_root=folder)
        return select_channels(mixture.audio_MN, array, scene.beam)

    return run


def bare_transforms(scene: Scene) -> Callable[[], object]:
    """The transforms that ours needs, called as ours calls them on as much data, and nothing else."""
    samples, (sources, mics, taps) = scene.signal_SN.shape[1], scene.rir_SMK.shape
    plan = BlockPlan(length=samples, taps=taps)
    rng = np.random.default_rng(0)
    windows_SBP = rng.standard_normal((sources, plan.blocks, plan.n_fft), np.float32)
    spectra_MBF = scipy.fft.rfft(rng.standard_normal((mics, plan.blocks, plan.n_fft), np.float32))
    beam_size, hop = beam_blocks(scene.beam)
    padded_MN = torch.randn(mics, -(-samples // hop) * hop + beam_size - hop)
    filters_MK = torch.from_numpy(scene.beam.fir_MK.copy())
    beam_BF = torch.fft.rfft(padded_MN[0].unfold(0, beam_size, hop))

    def run() -> object:
        for blocks_BP in windows_SBP:
            scipy.fft.rfft(blocks_BP)
        for spectra_BF in spectra_MBF:
            scipy.fft.irfft(spectra_BF, plan.n_fft)
        torch.fft.rfft(filters_MK, n=beam_size)
        for padded_N in padded_MN:
            torch.fft.rfft(padded_N.unfold(0, beam_size, hop))
        return torch.fft.irfft(beam_BF, n=beam_size)

    return run


def check_equal(ways: list[Way]) -> None:
    """ValueError unless all ways give the same mixture and beam."""
    wanted_MN = ways[0].mix()
    wanted_N = ways[0].beam(wanted_MN)
    for way in ways[1:]:
        audio_MN = way.mix()
        for found, wanted in ((audio_MN, wanted_MN), (way.beam(audio_MN), wanted_N)):
            error = float((found - wanted).abs().max() / wanted.abs().max())
            if not error < 1e-4:
                raise ValueError(f"{way.name} differs from ours by {error:.1e} of the peak")
