"""Pre-train the Conformer encoder: words by CTC and Whisper-feature regression, acoustics by regression.

Every batch is a fresh mixture of a transcribed corpus through the RIR bank.  Kill it and start it again: it goes on
from the last checkpoint.  The finished encoder lands in ``export=``.

Run as: python recipes/pretrain_encoder.py corpus=data/corpus bank=data/demo/rir_bank run_dir=runs/encoder
        python recipes/pretrain_encoder.py corpus=recordings bank=data/demo/rir_bank model.piece_weight=0 \
            model.char_weight=0 model.band_weight=0 model.role_weight=0 model.drr_weight=0   # Whisper's features alone
"""

import json
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch

from wearllama.audio.array import load_array
from wearllama.audio.beamforming import design_beam
from wearllama.data.ctc_text import WordPieces
from wearllama.data.encoder_corpus import PretrainingBatches
from wearllama.data.pretraining_scenes import SceneConfig, SceneSource, Utterance, read_corpus, read_recordings
from wearllama.modeling.pretraining import LOSSES, EncoderForPretraining, EncoderPretrainingConfig
from wearllama.simulation.bank import RirBank
from wearllama.simulation.noise import NoiseBank
from wearllama.training.encoder import export_encoder, load_start, word_error_rate
from wearllama.training.meters import Averages
from wearllama.training.pretraining import run_pretraining
from wearllama.training.pretraining_config import PretrainingSettings, run_fingerprint
from wearllama_launch import existing_path, launch, rank, world_size


@dataclass(kw_only=True)
class PretrainEncoder(PretrainingSettings):
    corpus: str
    """Folder with manifest.jsonl ({id, file, text, voice, seconds} a line) and, optionally, teacher/<id>.npy; without
    words (model.piece_weight=0 model.char_weight=0) any folder of mono recordings with teacher features."""
    bank: str
    """RIR bank with rooms of both splits."""
    array: str = "glasses5"
    noise_folders: list[str] = field(default_factory=list)
    validation_voices: list[str] = field(default_factory=list)
    """Voices kept out of training; the word error rate is theirs, in held-out rooms."""
    model: EncoderPretrainingConfig = field(default_factory=EncoderPretrainingConfig)
    scenes: SceneConfig = field(default_factory=SceneConfig)
    init: str | None = None
    """Run or export folder to take weights and word pieces from (``wearllama/assets/encoder_demo``, or a curriculum's
    earlier run: easy scenes first); of another objective (BEST-RQ) the encoder alone."""
    validation_batches: int = 8


@launch("pretrain_encoder", PretrainEncoder)
def main(config: PretrainEncoder) -> None:
    torch.set_num_threads(config.threads)
    torch.manual_seed(config.seed)
    run_dir, corpus = Path(config.run_dir), existing_path(config.corpus, "corpus")
    utterances = read_utterances(corpus, config)
    voices = {u.voice for u in utterances}
    if unknown := sorted(set(config.validation_voices) - voices):
        raise ValueError(f"validation_voices has {unknown}, wanted some of the corpus's: {sorted(voices)}")
    held_out = [u for u in utterances if u.voice in config.validation_voices]
    training = [u for u in utterances if u.voice not in config.validation_voices]
    print(f"{len(training)} training utterances, {len({u.voice for u in training})} voices; {len(held_out)} held out")
    pieces = run_pieces(run_dir / "pieces.json", training, config) if config.model.words else None
    teacher = teacher_folder(corpus, training, config)
    settings = dict(pieces=pieces, teacher_width=config.model.teacher_width, seed=config.seed)
    batches = PretrainingBatches(
        scene_source(training, corpus, "train", config),
        teacher_dir=teacher,
        num_batches=config.max_steps * config.accumulation * world_size(),
        augment=True,
        **settings,
    )
    model = EncoderForPretraining(config.model)
    if config.init and not load_start(model, Path(config.init)):
        print(f"init={config.init}: only the encoder is taken, the heads start anew")
    print(f"encoder: {sum(p.numel() for p in model.encoder.parameters()) / 1e6:.2f} M parameters")
    result = run_pretraining(
        model, batches, config, run_dir, Averages(LOSSES), fingerprint=run_fingerprint(config, config.bank, absent={})
    )
    if result.stopped_by is not None:
        print(f"stopped after step {result.steps}; the same command with run_dir={run_dir} goes on from there")
        sys.exit(128 + result.stopped_by)

    if rank() != 0:
        return
    facts = {"steps": result.steps, "utterances": len(training), "config": asdict(config)}
    if held_out and pieces is not None and config.model.piece_weight:
        validation = PretrainingBatches(
            scene_source(held_out, corpus, "eval", config),
            teacher_dir=None,
            num_batches=config.validation_batches,
            augment=False,
            **settings,
        )
        facts["wer_held_out_voices_and_rooms"] = word_error_rate(
            model, (validation[i] for i in range(len(validation))), pieces
        )
    folder = Path(config.export or run_dir / "encoder")
    weights = export_encoder(model, config.model.encoder, folder, facts, pieces=pieces)
    print(json.dumps({k: v for k, v in facts.items() if k != "config"}, indent=2), f"\n{weights}")


def read_utterances(corpus: Path, config: PretrainEncoder) -> list[Utterance]:
    """The manifest's utterances; without a manifest, and without words to learn, the folder's recordings."""
    manifest, longest = corpus / "manifest.jsonl", config.scenes.max_seconds - 1.0
    if config.model.words or manifest.is_file():
        return read_corpus(existing_path(manifest, "corpus"), max_seconds=longest, words=config.model.words)
    return read_recordings(corpus, max_seconds=longest)


def teacher_folder(corpus: Path, training: list[Utterance], config: PretrainEncoder) -> Path | None:
    """corpus/teacher where it is; ValueError where there is nothing but the teacher to learn from and it is empty."""
    folder = corpus / "teacher"
    found = sum((folder / f"{u.id}.npy").is_file() for u in training) if config.model.teacher_weight else 0
    print(f"teacher features: {found} of {len(training)} utterances")
    if not found and config.model.teacher_weight and not config.model.words:
        raise ValueError(f"{folder}: no features of these utterances, make them with tools/teacher_features.py")
    return folder if found else None


def scene_source(utterances: list[Utterance], corpus: Path, split: str, config: PretrainEncoder) -> SceneSource:
    """Scenes of ``utterances`` in the bank's rooms of ``split``."""
    array = load_array(config.array)
    return SceneSource(
        utterances,
        audio_root=corpus,
        bank=RirBank.open(existing_path(config.bank, "bank")),
        noise=NoiseBank(config.noise_folders),
        array=array,
        beam=design_beam(array),
        scenes=config.scenes,
        split=split,
    )


def run_pieces(path: Path, training: list[Utterance], config: PretrainEncoder) -> WordPieces:
    """The word pieces of the run, of ``init``, or learnt from the transcripts."""
    if config.init and not path.is_file():
        stored = existing_path(config.init, "init") / "pieces.json"
        if stored.is_file():  # an encoder of another objective brings none
            path.parent.mkdir(parents=True, exist_ok=True)
            WordPieces.load(stored).save(path)
    return load_or_train_pieces(path, [u.spoken for u in training], config.model.num_pieces)


def load_or_train_pieces(path: Path, texts: list[str], size: int) -> WordPieces:
    """The run's own word pieces; a resumed run must keep them even when the corpus has grown."""
    if path.is_file():
        return WordPieces.load(path)
    pieces = WordPieces.train(texts, size)
    if pieces.size != size:
        raise ValueError(f"model.num_pieces is {size}, but the corpus gives only {pieces.size} word pieces")
    path.parent.mkdir(parents=True, exist_ok=True)
    pieces.save(path)
    return pieces


if __name__ == "__main__":
    main()
