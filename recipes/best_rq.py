"""Pre-train the Conformer encoder without transcripts: BEST-RQ on any folder of audio, or on mixtures of it.

Kill it and start it again: it goes on from the last checkpoint.  The finished encoder lands in ``export=`` and enters
SFT as ``encoder=FOLDER``.  run_dir/log.jsonl has masked accuracy, codebook perplexity and unique codes by step.

Run as: python recipes/best_rq.py data=recordings run_dir=runs/best_rq
        python recipes/best_rq.py data=five_channel_recordings channels=mc array=glasses5
        python recipes/best_rq.py data=speech channels=mc bank=data/demo/rir_bank     # mixtures, c_0 and c_x
        torchrun --nproc_per_node=8 recipes/best_rq.py data=recordings best_rq=paper
"""

import json
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np
import torch

from wearllama.audio.array import load_array
from wearllama.audio.beamforming import design_beam
from wearllama.data.audio_folder import AudioClip, find_clips, load_clips, save_clips
from wearllama.data.best_rq_batches import BestRqBatches, Channels, ClipConfig, FolderSource, MixtureSource, Source
from wearllama.data.pretraining_scenes import SceneConfig, SceneSource, Utterance, read_recordings
from wearllama.modeling.best_rq import BestRqConfig, EncoderForBestRq
from wearllama.simulation.bank import RirBank
from wearllama.simulation.noise import NoiseBank
from wearllama.training.encoder import export_encoder, load_start
from wearllama.training.meters import CodebookMeter
from wearllama.training.pretraining import HeldOut, run_pretraining
from wearllama.training.pretraining_config import PretrainingSettings, run_fingerprint
from wearllama.unread import refuse_unread
from wearllama_launch import existing_path, launch, rank, world_size

Clip = TypeVar("Clip")
HELD_OUT_BATCHES = 8
"""Measured by each rank."""


@dataclass(kw_only=True)
class BestRq(PretrainingSettings):
    data: str
    """Folder of WAV and FLAC files; with ``bank`` mono speech at 16 kHz for mixtures."""
    channels: Channels = "mono"
    """``mono`` files, or of an array's channels c0, cx or both (mc: a clip's two views share masks and targets)."""
    array: str | None = None
    """Microphone array of the recordings, by name or file; of the mixtures, glasses5 if not given."""
    bank: str | None = None
    """RIR bank: train on mixtures of ``data`` instead of the files as they are."""
    noise_folders: list[str] = field(default_factory=list)
    """Noise recordings for the mixtures."""
    targets: Literal["c0", "cx"] = "c0"
    """View whose labels both views learn, with channels=mc."""
    clips: ClipConfig = field(default_factory=ClipConfig)
    """How the folder's files become batches."""
    scenes: SceneConfig = field(default_factory=SceneConfig)
    """How mixtures are drawn, with ``bank``."""
    best_rq: BestRqConfig = field(default_factory=BestRqConfig)
    init: str | None = None
    """Run or export folder to start from: its encoder, and quantiser and heads too where it is a BEST-RQ run's."""
    held_out: float = 0.02
    """Share of the clips that are kept out of training and measured at every checkpoint (``held_out_...`` in the log):
    a small corpus is learned by heart, and its masked accuracy then says nothing."""
    log_every: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0.0 <= self.held_out < 1.0:
            raise ValueError(f"held_out is {self.held_out}, wanted a share of at least 0 and below 1")
        if self.bank:
            refuse_unread(self, ["clips"], "with a bank")
        else:
            refuse_unread(self, ["noise_folders", "scenes"], "without a bank")


@launch("best_rq", BestRq)
def main(config: BestRq) -> None:
    torch.set_num_threads(config.threads)
    torch.manual_seed(config.seed)
    run_dir, data = Path(config.run_dir), existing_path(config.data, "data")
    model = EncoderForBestRq(config.best_rq)
    if config.init and not load_start(model, existing_path(config.init, "init")):
        print(f"init={config.init}: only the encoder is taken, quantiser and heads start anew")
    seen, unseen = mixtures(config, data) if config.bank else recordings(config, data, run_dir)
    describe(model, config)
    result = run_pretraining(
        model,
        batches_of(seen, config, config.max_steps * config.accumulation * world_size()),
        config,
        run_dir,
        CodebookMeter(),
        held_out=unseen
        and HeldOut(batches=batches_of(unseen, config, HELD_OUT_BATCHES * world_size()), meter=CodebookMeter()),
        fingerprint=run_fingerprint(config, config.bank, absent={"held_out": 0.0}),
    )
    if result.stopped_by is not None:
        print(f"stopped after step {result.steps}; the same command with run_dir={run_dir} goes on from there")
        sys.exit(128 + result.stopped_by)
    if rank() == 0:
        facts = {"objective": "best_rq", "steps": result.steps, "config": asdict(config)}
        folder = Path(config.export or run_dir / "encoder")
        weights = export_encoder(model, config.best_rq.encoder, folder, facts, heads=False)
        print(json.dumps({"steps": result.steps, "encoder": str(weights)}))


def batches_of(source: Source, config: BestRq, count: int) -> BestRqBatches:
    """``count`` batches of what the run trains on, or measures."""
    target_view = 1 if config.channels == "mc" and config.targets == "cx" else 0
    return BestRqBatches(source, config.best_rq, num_batches=count, seed=config.seed, target_view=target_view)


def recordings(config: BestRq, data: Path, run_dir: Path) -> tuple[Source, Source | None]:
    """The folder's files as they are: to train on, and held out."""
    array = None if config.array is None else load_array(config.array)
    if (config.channels == "mono") != (array is None):
        raise ValueError(f"channels={config.channels} with array={config.array}: wanted an array unless channels=mono")
    clips = run_clips(run_dir / "clips.json", data, 1 if array is None else array.num_mics, config.clips)
    seen, unseen = split(clips, config)
    if rank() == 0:
        hours = sum(clip.seconds for clip in seen) / 3600
        print(f"{len(seen)} clips, {hours:.2f} h, and {len(unseen)} held out")

    def source(chosen: list[AudioClip]) -> Source:
        return FolderSource(data, chosen, config=config.clips, channels=config.channels, array=array, seed=config.seed)

    return source(seen), source(unseen) if unseen else None


def split(found: list[Clip], config: BestRq) -> tuple[list[Clip], list[Clip]]:
    """Clips to train on and clips held out; too few to hold any out give none."""
    count = min(round(config.held_out * len(found)), len(found) - 1)
    out = set(np.random.default_rng(config.seed).permutation(len(found))[:count].tolist())
    return [clip for i, clip in enumerate(found) if i not in out], [found[i] for i in sorted(out)]


def run_clips(kept: Path, data: Path, channels: int, config: ClipConfig) -> list[AudioClip]:
    """The run's own list; a resumed run keeps it even when the folder has grown."""
    if kept.is_file():
        return load_clips(kept)
    clips = find_clips(data, channels=channels, resample=config.resample, min_seconds=config.min_seconds)
    if rank() == 0:
        save_clips(kept, clips)
    return clips


def mixtures(config: BestRq, data: Path) -> tuple[Source, Source | None]:
    """Fresh scenes of the folder's speech in the bank's rooms: to train on, and of speech held out."""
    array = load_array(config.array or "glasses5")
    seen, unseen = split(read_recordings(data, max_seconds=config.scenes.max_seconds - 1.0), config)
    bank = RirBank.open(existing_path(config.bank, "bank"))
    noise, beam = NoiseBank(config.noise_folders), design_beam(array)

    def source(recordings: list[Utterance]) -> Source:
        scenes = SceneSource(
            recordings,
            audio_root=data,
            bank=bank,
            noise=noise,
            array=array,
            beam=beam,
            scenes=config.scenes,
            split="train",
        )
        return MixtureSource(scenes, channels=config.channels)

    return source(seen), source(unseen) if unseen else None


def describe(model: EncoderForBestRq, config: BestRq) -> None:
    """What is about to be trained."""
    if rank() != 0:
        return
    encoder, heads = (sum(p.numel() for p in part.parameters()) / 1e6 for part in (model.encoder, model.heads))
    c = config.best_rq
    print(f"parameters: encoder {encoder:.2f} M, heads {heads:.2f} M; {c.codebooks} books of {c.codes} codes")
    print(
        f"spans of {c.span_frames} mel frames in stacks of {c.stack}; ranks: {world_size()}, workers: {config.workers}"
    )


if __name__ == "__main__":
    main()
