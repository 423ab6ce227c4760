"""What pre-training gives the encoder: features regressed onto Whisper's against a random start, both frozen in SFT."""

from demo import Stage  # beside the folder

from wearllama.evaluation.tables import Table

from .study import VGBENCH, WEARVOX, Setup, Study, paired_tables, rate_table

SFT_STEPS = 1000
DISTILL_STEPS = 1000
FEATURES_ALONE = " ".join(f"model.{name}_weight=0" for name in ("piece", "char", "band", "role", "drr"))


def _stages(setup: Setup) -> list[Stage]:
    speech, distilled, random = (f"{setup.runs}/{name}" for name in ("speech", "distilled", "random"))
    steps = 4 if setup.fast else DISTILL_STEPS
    found = [
        Stage("speech", "import real speech",
              f"tools/import_speech.py source.layout=table source.root={setup.speech} out_dir={speech}", 1),
        Stage("teacher", "Whisper's features of it", f"tools/teacher_features.py corpus={speech}", 5),
        Stage("distilled", "an encoder that regresses them",
              f"recipes/pretrain_encoder.py corpus={speech} bank=data/demo/rir_bank "
              f"noise_folders=[data/demo/noise/train] {FEATURES_ALONE} "
              f"max_steps={steps} warmup_steps={steps // 10} decay_steps={steps // 4} "
              f"run_dir={distilled}", 20),
        Stage("random", "the same encoder as it starts",
              f"recipes/best_rq.py data={speech} max_steps=0 run_dir={random}", 0.2),
    ]  # fmt: skip
    for seed in setup.seeds:
        for name, run in (("encoder_distilled", distilled), ("encoder_random", random)):
            changes = f"encoder={run}/encoder train.steps={SFT_STEPS}"
            found.append(setup.train(name, seed, changes, minutes=14))
            found += [setup.evaluate(script, setup.run(name, seed)) for script in ("wearvox", "vgbench")]
    return found


def _tables(setup: Setup) -> list[Table]:
    names = {"distilled": "encoder_distilled", "random": "encoder_random"}
    runs = {f"{name}, seed {seed}": setup.run(run, seed) for seed in setup.seeds for name, run in names.items()}
    tables = [
        rate_table("WearVox tasks", {name: setup.rates("wearvox", ckpt) for name, ckpt in runs.items()}, WEARVOX),
        rate_table("VGBench", {name: setup.rates("vgbench", ckpt) for name, ckpt in runs.items()}, VGBENCH),
    ]
    for seed in setup.seeds:
        both = {name: setup.run(run, seed) for name, run in names.items()}
        tables += paired_tables(setup, both, f"Distilled against random, seed {seed}")
    return tables


def studies() -> dict[str, Study]:
    """Studies by name."""
    return {
        "encoders": Study(
            "A distilled encoder against none",
            "The encoder regressed onto Whisper's features of real speech (mixed through the bank; no words), or left "
            f"as it starts; frozen in {SFT_STEPS} steps of the demo's training.", _stages, _tables,
        ),
    }  # fmt: skip
