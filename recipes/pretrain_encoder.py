"""Pre-train the Conformer encoder: words by CTC and Whisper-feature regression, acoustics by regression.

Every batch is a fresh mixture of a transcribed corpus through the RIR bank.  Kill it and start it again: it goes on
from the last checkpoint.  The finished encoder lands in ``export=``.

Run as: python recipes/pretrain_encoder.py corpus=data/corpus bank=data/demo/rir_bank run_dir=runs/encoder
"""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

import torch
from transformers import TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

from wearllama.audio.array import load_array
from wearllama.audio.beamforming import design_beam
from wearllama.data.ctc_text import WordPieces
from wearllama.data.encoder_corpus import PretrainingBatches, SceneConfig, read_corpus
from wearllama.modeling.pretraining import EncoderForPretraining, EncoderPretrainingConfig
from wearllama.simulation.bank import RirBank
from wearllama.simulation.noise import NoiseBank
from wearllama.training.config import use_bf16
from wearllama.training.encoder import (
    EncoderTrainer,
    export_encoder,
    initial_weights,
    only_item,
    word_error_rate,
)
from wearllama_launch import existing_path, launch, rank, world_size


@dataclass(kw_only=True)
class PretrainEncoder:
    corpus: str
    """Folder with manifest.jsonl ({id, file, text, voice, seconds} a line) and, optionally, teacher/<id>.npy."""
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
    earlier run: easy scenes first)."""
    max_steps: int = 20_000
    decay_steps: int = 3_000
    """The last steps, over which the rate falls to zero; the steps before keep it constant (WSD)."""
    warmup_steps: int = 400
    learning_rate: float = 1.5e-3
    weight_decay: float = 0.01
    bf16: bool | Literal["auto"] = "auto"
    """bfloat16 autocast; auto takes it where the hardware multiplies in it."""
    workers: int = 1
    threads: int = 1
    save_steps: int = 500
    validation_batches: int = 8
    seed: int = 0
    run_dir: str | None = None
    export: str | None = None
    """Folder of the exported encoder; run_dir/encoder if not given."""


@launch("pretrain_encoder", PretrainEncoder)
def main(config: PretrainEncoder) -> None:
    torch.set_num_threads(config.threads)
    torch.manual_seed(config.seed)
    run_dir = Path(config.run_dir)
    corpus = existing_path(config.corpus, "corpus")
    utterances = read_corpus(corpus / "manifest.jsonl", max_seconds=config.scenes.max_seconds - 1.0)
    held_out = [u for u in utterances if u.voice in config.validation_voices]
    training = [u for u in utterances if u.voice not in config.validation_voices]
    if config.init and not (run_dir / "pieces.json").is_file():
        pieces_of_init = WordPieces.load(existing_path(config.init, "init") / "pieces.json")
        run_dir.mkdir(parents=True, exist_ok=True)
        pieces_of_init.save(run_dir / "pieces.json")
    pieces = load_or_train_pieces(run_dir / "pieces.json", [u.spoken for u in training], config.model.num_pieces)
    print(f"{len(training)} training utterances, {len({u.voice for u in training})} voices; {len(held_out)} held out")

    array = load_array(config.array)
    common = dict(
        audio_root=corpus,
        bank=RirBank.open(existing_path(config.bank, "bank")),
        noise=NoiseBank(config.noise_folders),
        array=array,
        beam=design_beam(array),
        pieces=pieces,
        scenes=config.scenes,
        teacher_width=config.model.teacher_width,
        seed=config.seed,
    )
    teacher = corpus / "teacher"
    batches = PretrainingBatches(
        utterances=training,
        split="train",
        teacher_dir=teacher if teacher.is_dir() else None,
        num_batches=config.max_steps * world_size(),
        augment=True,
        **common,
    )
    model = EncoderForPretraining(config.model)
    if config.init:
        model.load_state_dict(initial_weights(Path(config.init)))
    print(f"encoder: {sum(p.numel() for p in model.encoder.parameters()) / 1e6:.2f} M parameters")
    trainer = EncoderTrainer(
        model=model, args=arguments(config, run_dir), train_dataset=batches, data_collator=only_item
    )
    trainer.train(resume_from_checkpoint=get_last_checkpoint(run_dir) if run_dir.is_dir() else None)

    if rank() != 0:
        return
    facts = {"steps": trainer.state.global_step, "utterances": len(training), "config": asdict(config)}
    if held_out:
        validation = PretrainingBatches(
            utterances=held_out,
            split="eval",
            teacher_dir=None,
            num_batches=config.validation_batches,
            augment=False,
            **common,
        )
        facts["wer_held_out_voices_and_rooms"] = word_error_rate(
            model, (validation[i] for i in range(len(validation))), pieces
        )
    weights = export_encoder(model, pieces, Path(config.export or run_dir / "encoder"), facts)
    print(json.dumps({k: v for k, v in facts.items() if k != "config"}, indent=2), f"\n{weights}")


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


def arguments(config: PretrainEncoder, run_dir: Path) -> TrainingArguments:
    on_cpu = not torch.cuda.is_available()
    return TrainingArguments(
        output_dir=str(run_dir),
        per_device_train_batch_size=1,
        max_steps=config.max_steps,
        learning_rate=config.learning_rate,
        weight_decay=config.weight_decay,
        adam_beta2=0.98,
        max_grad_norm=1.0,
        lr_scheduler_type="warmup_stable_decay",
        lr_scheduler_kwargs={"num_decay_steps": config.decay_steps},
        warmup_steps=config.warmup_steps,
        logging_steps=50,
        save_steps=config.save_steps,
        save_total_limit=2,
        dataloader_num_workers=config.workers,
        remove_unused_columns=False,
        report_to="none",
        bf16=use_bf16(config.bf16, on_cpu=on_cpu),
        use_cpu=on_cpu,
        ddp_find_unused_parameters=False,
        ddp_backend="gloo" if on_cpu else None,
        seed=config.seed,
        accelerator_config={"dispatch_batches": False, "split_batches": False},
    )


if __name__ == "__main__":
    main()
