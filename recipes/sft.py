"""Supervised fine-tuning of WearLlama: encoder (frozen) -> projector -> decoder, on five-channel mixtures.

Run as: python recipes/sft.py experiment=demo run_dir=runs/demo/sft
        torchrun --nproc_per_node=2 recipes/sft.py experiment=demo
        python recipes/sft.py experiment=demo encoder=scratch train.steps=200 model.channels=sc_beam

A run that was stopped goes on when it is started again with the same run_dir; the trained model is run_dir/final.
"""

import shutil
import sys
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Literal

import torch
from transformers import set_seed
from transformers.utils import logging as transformers_logging

from wearllama.atomic import write_text
from wearllama.data.collate import Collator
from wearllama.data.dataset import ExampleDataset
from wearllama.data.sampling import BatchConfig, BucketBatchSampler
from wearllama.modeling.encoder_io import find_encoder, stored_config, weight_files
from wearllama.modeling.factory import ModelConfig, build_model, build_processor
from wearllama.modeling.fusion import FusionConfig
from wearllama.modeling.modeling_wearllama import WearLlamaForConditionalGeneration
from wearllama.training.align import align_projector
from wearllama.training.checkpoint import (
    FINAL,
    completed_facts,
    last_complete_checkpoint,
    load_initial_weights,
    trained_projector,
    weights_file,
)
from wearllama.training.config import TrainConfig
from wearllama.training.data import SftData, batch_sampler, load_sets
from wearllama.training.provenance import Origin
from wearllama.training.resume import FINGERPRINT
from wearllama.training.sft import run_sft
from wearllama_launch import LaunchError, existing_path, launch, rank, world_size


@dataclass(kw_only=True)
class SftCommand:
    """The whole of conf/sft.yaml."""

    model: ModelConfig
    data: SftData
    batches: BatchConfig = field(default_factory=BatchConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    init: str | None = None
    """WearLlama checkpoint (or run folder) of the same sizes whose weights this run starts from: training in stages.
    A stored encoder that model.encoder names stays that one."""
    init_without: tuple[str, ...] = ()
    """Beginnings of the names of weights that ``init`` does not give: ``projector.`` for another fusion of channels."""
    align: bool = False
    """Start the projector's word path (model.projector.pieces) from the encoder's CTC head and the decoder's words; an
    encoder without such a head (BEST-RQ) has none to start from."""
    encoder: str | None = None
    """Short for model.encoder: ``packaged``, ``scratch`` or a folder that a pre-training recipe exported."""
    run_dir: str | None = None
    resume: Literal["auto", "must", "never"] = "auto"
    """Go on from run_dir's last whole checkpoint where there is one (auto), only where there is one (must), or set what
    is there aside and begin anew (never)."""
    changed: Literal["refuse", "restart"] = "refuse"
    """What to do when run_dir holds a run of other settings or data: refuse it, or set it aside and begin anew."""

    def __post_init__(self) -> None:
        if self.encoder is not None:
            self.model = replace(self.model, encoder=self.encoder)  # its own checks follow from the choice
        if self.model.encoder == "scratch":
            self.align = False  # a random encoder has no words to align with
        if self.init_without and self.init is None:
            raise ValueError(f"init_without is {list(self.init_without)}, which only init=... reads")


@launch("sft", SftCommand)
def main(config: SftCommand) -> None:
    run_dir = Path(config.run_dir)
    existing_path(config.data.manifest, "data.manifest")
    if config.data.bank is not None:
        existing_path(config.data.bank, "data.bank")
    for bank in config.data.other_banks:
        existing_path(bank, "data.other_banks")
    check_word_path(config)
    made_from = origin(config)
    if config.resume == "never":
        set_aside(run_dir)
    elif is_trained(run_dir, made_from, config.changed):
        print(f"{run_dir / FINAL} is trained already with these settings and data")
        return
    if config.resume == "must" and last_complete_checkpoint(run_dir) is None:
        raise LaunchError(f"resume=must, but {run_dir} has no whole checkpoint")
    if rank() == 0:
        claim(run_dir, made_from)

    transformers_logging.disable_progress_bar()  # of writing weights; training has its own
    set_seed(config.train.seed)
    processor = build_processor(config.model)
    model = build_model(config.model, processor)
    if config.init is not None:
        start_from(model, config)
    if aligns(config):
        align_projector(model, processor, config.model.encoder)
    elif config.align and rank() == 0:
        print(
            f"align: {config.model.encoder} was pre-trained without words, the projector's word path starts at random"
        )
    sets = load_sets(config.data, processor, seed=config.train.seed)

    def batches(rows: ExampleDataset, settings: BatchConfig) -> BucketBatchSampler:
        seed, positions = config.train.seed, model.config.positions_per_frame
        return batch_sampler(rows, processor, positions, settings, seed=seed, rank=rank(), world_size=world_size())

    sampler, validation_sampler = batches(sets.train, config.batches), None
    if config.train.eval_every and sets.validation is not None:
        each_once = replace(config.batches, weights={}, source_weights={}, temperature=1.0)
        validation_sampler = batches(sets.validation, each_once)
    describe(model, len(sets.train), sampler.padding_ratio(), config)
    result = run_sft(
        model=model,
        processor=processor,
        train_data=sets.train,
        sampler=sampler,
        collator=Collator(processor),
        config=config.train,
        run_dir=run_dir,
        validation_data=sets.validation if config.train.eval_every else None,
        validation_sampler=validation_sampler,
        facts={"fingerprint": made_from.fingerprint},
        tolerance=config.data.tolerance,
    )
    if result.stopped_by is not None:
        print(f"stopped after step {result.steps}; the same command with run_dir={run_dir} goes on from there")
        sys.exit(128 + result.stopped_by)
    print(f"trained model: {result.model_dir}")


def start_from(model: WearLlamaForConditionalGeneration, config: SftCommand) -> None:
    """The weights of ``init``; an encoder among them is no random one, and stays frozen where ``freeze`` says so."""
    kept = (*(() if config.model.encoder == "scratch" else ("encoder.",)), *config.init_without)
    source = existing_path(config.init, "init")
    load_initial_weights(model, source, keep=kept)
    if "encoder.".startswith(kept):
        return
    model.config.freeze = dict(config.model.freeze)
    model.apply_freeze()


def aligns(config: SftCommand) -> bool:
    """Whether the projector's word path is filled: ``align`` is asked for, and the encoder was trained on words."""
    return config.align and "ctc" in stored_config(config.model.encoder)


def check_word_path(config: SftCommand) -> None:
    """ValueError where ``align`` would write over the word path that ``init`` has trained."""
    if config.init is None or not aligns(config) or "projector.words.weight".startswith(tuple(config.init_without)):
        return
    if trained_projector(weights_file(existing_path(config.init, "init"))):
        raise ValueError(
            f"align=true would write over the word path that init={config.init} has trained: wanted align=false, or "
            "init_without=[projector.] for a new projector"
        )


NEVER_DECIDES = (
    "workers", "prefetch", "threads", "report_to", "log_every", "log_ids", "save_every", "keep_checkpoints",
    "staging",
)  # fmt: skip
ADDED = {"decay_steps": 0, "ema": 0.0, "distill": 0.0, "distill_temperature": 1.0, "parallel": "ddp", "packed": False}
"""Settings of ``train`` that came later: at these values a run is what it was before they were known."""


def origin(config: SftCommand) -> Origin:
    """What decides the weights: settings, rows and simulation; not the folder, the worker count or the log."""
    settings = asdict(config)
    if config.model.fusion == FusionConfig():
        settings["model"].pop("fusion")  # runs from before there was a choice keep theirs
    for name in ("run_dir", "changed", "resume"):
        settings.pop(name)
    for name in NEVER_DECIDES:
        settings["train"].pop(name)
    for name, value in ADDED.items():
        if settings["train"][name] == value:
            settings["train"].pop(name)
    for name, empty in (("source_weights", {}), ("temperature", 1.0)):
        if settings["batches"][name] == empty:
            settings["batches"].pop(name)
    if not settings["init_without"]:
        settings.pop("init_without")
    for name in ("tolerance", "other_banks"):
        if not settings["data"][name]:
            settings["data"].pop(name)
    settings["data"].pop("shards")  # the samples are those of rendering
    return Origin(settings, data_files(config))


def data_files(config: SftCommand) -> list[str]:
    """Files that decide the weights."""
    files = [config.data.manifest]
    if config.data.shards is not None and config.data.bank is None:
        files.append(str(Path(config.data.shards) / "shards.json"))
    files += [str(Path(bank) / "meta.json") for bank in config.data.banks]
    if config.model.encoder != "scratch":
        files += map(str, weight_files(find_encoder(config.model.encoder)))
    decoder = Path(config.model.decoder).expanduser()
    if decoder.is_dir():
        files += map(str, sorted(path for kind in ("safetensors", "bin", "json") for path in decoder.glob(f"*.{kind}")))
    if config.init is not None:
        files += map(str, weight_files(weights_file(existing_path(config.init, "init"))))
    return files


def is_trained(run_dir: Path, made_from: Origin, changed: str) -> bool:
    """Whether run_dir/final is this very run; a run of other settings is refused or set aside (see ``changed``)."""
    note = run_dir / FINGERPRINT
    before = note.read_text().strip() if note.is_file() else None
    if before not in (None, made_from.fingerprint):
        what = "; ".join(made_from.differences(run_dir)) or f"see {run_dir}/launches"
        if changed == "refuse":
            raise LaunchError(
                f"{run_dir} holds a run of other settings or data ({what}); give another run_dir, or "
                "changed=restart to set it aside"
            )
        if rank() == 0:
            print(f"{run_dir} begins anew, other than before: {what}")
        set_aside(run_dir)
    final = completed_facts(run_dir / FINAL)
    return final is not None and final.get("fingerprint") == made_from.fingerprint


def claim(run_dir: Path, made_from: Origin) -> None:
    """Write down whose run the folder is."""
    write_text(run_dir / FINGERPRINT, made_from.fingerprint + "\n")
    made_from.record(run_dir)


def set_aside(run_dir: Path) -> None:
    """Rank 0 moves the old model and checkpoints into run_dir/before-TIME; training begins when all ranks have met."""
    old = [path for name in ("checkpoint-*", FINAL, "log.jsonl", "rows-rank*.jsonl") for path in run_dir.glob(name)]
    if rank() == 0 and old:
        folder = run_dir / time.strftime("before-%Y%m%d-%H%M%S")
        folder.mkdir()
        for path in old:
            shutil.move(path, folder / path.name)
        print(f"the old run is in {folder}")


def describe(model: torch.nn.Module, rows: int, padding: float, config: SftCommand) -> None:
    """What is about to be trained, and where each figure comes from."""
    if rank() != 0:
        return
    parts = {name: sum(p.numel() for p in part.parameters()) for name, part in model.named_children()}
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    print("parameters: " + ", ".join(f"{name} {count / 1e6:.2f} M" for name, count in parts.items() if count))
    print(f"trained: {trained / 1e6:.2f} M; encoder {config.model.encoder}; channels {config.model.channels}")
    print(f"rows: {rows}; padding of decoder positions: {padding:.1%}; steps: {config.train.steps}")
    print(f"bf16: {config.train.bf16}; ranks: {world_size()}; workers: {config.train.workers}")


if __name__ == "__main__":
    main()
