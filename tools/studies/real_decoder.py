"""A real decoder: SmolLM2-135M-Instruct with LoRA, on real human speech beside the demo's rows."""

from demo import TWO_RANKS, Stage  # beside the folder

from wearllama.evaluation.tables import Table, cell

from .study import VGBENCH, WEARVOX, Setup, Study, rate_table

STEPS = 1600
"""Of 12 rows: nearly two CPU hours on each of two cores."""
RUN = "smollm2"
ROWS = {
    "data/demo/train.jsonl": 4000,
    "qa.jsonl": 600,
    "mute/examples.jsonl": 600,
    "asr.jsonl": 2700,
    "notes.jsonl": 2700,
}
"""Rows at most of each part of the mixture."""
ASKED = {"words": 96, "note": 128}
"""What is asked of the held-out recordings, and the longest reply."""


def _stages(setup: Setup) -> list[Stage]:
    home = f"{setup.runs}/real"
    speech, decoder = f"{home}/speech", f"{home}/decoder"
    few = " limit=4" if setup.fast else ""
    part = "tools/import_speech.py source.layout=table"
    of_clips = f"tools/make_asr.py speech={speech} root={home} style=compact"
    mute = "rows.bystander=400 rows.partner=100 rows.to_partner=50 rows.noise=50 rows.self_talk=0"
    found = [
        Stage("decoder", "convert SmolLM2", f"tools/convert_smollm2.py --out {decoder}", 0.5),
        Stage("speech", "real speech to learn from",
              f"{part} source.root={setup.speech} part=train out_dir={speech}", 0.5),
        Stage("held out", "real speech to test on",
              f"{part} source.root={setup.speech} part=test out_dir={home}/speech_test", 0.1),
        Stage("qa", "the decoder's own replies to the words",
              f"tools/speech_qa.py speech={speech} root={home} out={home}/qa.jsonl style=compact chat.model=smollm2 "
              f"chat.max_new_tokens=80 asr_share=0{few or ' limit=1200'}", 30),
        Stage("mute", "what others say",
              f"tools/make_mute.py speech={speech} root={home} out_dir={home}/mute style=compact {mute}", 0.1),
        Stage("words", "ask for the words", f"{of_clips} out={home}/asr.jsonl", 0.1),
        Stage("notes", "ask for a note of them", f"{of_clips} out={home}/notes.jsonl ask=note", 0.1),
        Stage("mix", "one manifest",
              f"tools/mix_rows.py manifests=[{','.join(_part(home, name) for name in ROWS)}] "
              f"roots=[data/demo,{','.join([home] * (len(ROWS) - 1))}] rows=[{','.join(map(str, ROWS.values()))}] "
              f"root=. out={home}/train.jsonl", 0.1),
        Stage("recordings", "record what is held out",
              f"tools/make_asr.py speech={home}/speech_test out={home}/test/manifest.jsonl split=test style=compact "
              f"scenes.rooms=eval bank=data/demo/rir_bank noise=[data/demo/noise/eval]{few}", 1),
    ]  # fmt: skip
    for seed in setup.seeds:
        ckpt = setup.run(RUN, seed)
        found.append(Stage(ckpt, "train", _training(setup, home, seed), 110))
        found += [setup.evaluate(script, ckpt, minutes=8) for script in ("wearvox", "vgbench")]
        for ask, most in ASKED.items():
            options = f"data={home}/test/manifest.jsonl style=compact ask={ask} max_new_tokens={most}"
            found.append(setup.evaluate("asr", ckpt, options, into=f"eval_{ask}", minutes=5))
    return found


def _part(home: str, name: str) -> str:
    return name if name.startswith("data/") else f"{home}/{name}"


def _training(setup: Setup, home: str, seed: int) -> str:
    steps = 2 if setup.fast else STEPS
    return (
        f"{TWO_RANKS} recipes/sft.py experiment=smollm2 model.decoder={home}/decoder model.attn_implementation=eager "
        f"data.manifest={home}/train.jsonl data.root=. data.noise=[data/demo/noise/train] "
        f"batches.max_rows=6 train.steps={steps} train.warmup_steps={steps // 15} "
        f"train.save_every={max(1, steps // 30)} train.use_cpu=true train.threads=1 train.seed={seed} "
        f"run_dir={setup.run(RUN, seed)}"
    )


def _tables(setup: Setup) -> list[Table]:
    runs = {f"SmolLM2, seed {seed}": setup.run(RUN, seed) for seed in setup.seeds}
    rows = []
    for name, ckpt in runs.items():
        for ask, most in ASKED.items():
            found = setup.rates("asr", ckpt, into=f"eval_{ask}", max_new_tokens=most)
            kinds = next(iter(found["actions"].values()))
            rows.append((f"{name}, {ask}", cell(found["rates"]["wer"]), cell(found["rates"]["exact"]),
                         ", ".join(f"{kind} {count}" for kind, count in kinds.items())))  # fmt: skip
    note = "Lines of the speakers in training, not heard in training, in held-out rooms. note: of the call's text."
    header = ("asked for", "word error rate", "without error", "replies")
    return [
        Table("Real speech, held out", header, rows, note),
        rate_table("WearVox tasks", {name: setup.rates("wearvox", ckpt) for name, ckpt in runs.items()}, WEARVOX),
        rate_table("VGBench", {name: setup.rates("vgbench", ckpt) for name, ckpt in runs.items()}, VGBENCH),
    ]


def studies() -> dict[str, Study]:
    """Studies by name."""
    return {
        "real_decoder": Study(
            "A real decoder on real speech",
            "SmolLM2-135M-Instruct with LoRA under the packaged encoder: the demo's rows, and real human speech: the "
            "decoder's own replies to it, notes dictated with it, its words, and [Mute] for what others say.",
            _stages, _tables,
        ),
    }  # fmt: skip
