"""One microphone beam against the array: WearVox's Tables 4 to 6 in miniature, and how channels are put together."""

import json

from demo import Stage  # beside the folder

from wearllama.evaluation.encoder_words import table_of
from wearllama.evaluation.intervals import relative_reduction
from wearllama.evaluation.table import MARK
from wearllama.evaluation.tables import Table, cell

from .study import ROOT, VGBENCH, WEARVOX, Setup, Study, paired_tables, rate_table

WIND = ("wind:5", "wind:-5", "snr:0")
PAIRS = ("c_0-c_1", "c_x-c_1", "c_x-c_0")
PUBLISHED_WER = {"c_x alone": "8.58 %", "c_0-c_1": "8.21 %", "c_x-c_1": "8.16 %", "c_x-c_0": "7.38 %"}
"""Table 6: trained on c_x, and on (c_x, c_0)."""
FUSIONS = {"interleave": "", "concat": "model.fusion.kind=concat", "sum": "model.fusion.kind=sum"}
SINGLE = "model.channels=sc_beam"


def _sc_mc_stages(setup: Setup) -> list[Stage]:
    found = []
    for seed in setup.seeds:
        for name, changes in (("mc", ""), ("sc", SINGLE)):
            ckpt = setup.run(name, seed)
            found += [
                setup.train(name, seed, changes),
                setup.evaluate("wearvox", ckpt),
                setup.evaluate("wearvox", ckpt, f"condition=[{','.join(WIND)}]", minutes=3),
                setup.evaluate("vgbench", ckpt),
            ]
    return found


def _sc_mc_tables(setup: Setup) -> list[Table]:
    runs = {f"{name.upper()}, seed {seed}": setup.run(name, seed) for seed in setup.seeds for name in ("mc", "sc")}
    heard = {name: setup.rates("wearvox", ckpt) for name, ckpt in runs.items()}
    tables = [rate_table("WearVox tasks", heard, WEARVOX)]
    for condition in WIND:
        under = {name: setup.rates("wearvox", ckpt, condition=condition) for name, ckpt in runs.items()}
        tables.append(rate_table(f"WearVox tasks under {condition}", under, WEARVOX))
    tables.append(rate_table("VGBench", {name: setup.rates("vgbench", ckpt) for name, ckpt in runs.items()}, VGBENCH))
    for seed in setup.seeds:
        both = {name.upper(): setup.run(name, seed) for name in ("mc", "sc")}
        tables += paired_tables(setup, both, f"MC against SC, seed {seed}")
    return tables


def _wer_stages(setup: Setup) -> list[Stage]:
    rows = "tools/make_asr.py manifest=data/demo/train.jsonl out=data/demo/asr.jsonl style=compact"
    few = " limit=4" if setup.fast else ""
    found = [
        Stage("asr rows", "ask the training rows for their words", rows, 0.2),
        Stage("encoder words", "the encoder's own", f"tools/encoder_wer.py out={setup.runs}/encoder_wer{few}", 0.5),
    ]
    for seed in setup.seeds:
        for name, changes, heard in (("asr_sc", SINGLE, ""), ("asr_mc", "", f" pair=[{','.join(PAIRS)}]")):
            found.append(setup.train(name, seed, changes, experiment="demo_asr"))
            found.append(setup.evaluate("asr", setup.run(name, seed), f"style=compact{heard}"))
    return found


def _wer_tables(setup: Setup) -> list[Table]:
    rows = []
    for seed in setup.seeds:
        single, several = (setup.run(name, seed) for name in ("asr_sc", "asr_mc"))
        heard = {"c_x alone": setup.rates("asr", single)}
        heard |= {pair: setup.rates("asr", several, pair=pair) for pair in PAIRS}
        counts = {name: {k: (e, w) for k, (e, w) in found["errors_and_words"].items()} for name, found in heard.items()}
        for name, found in heard.items():
            less = "-" if name == "c_x alone" else str(relative_reduction(counts["c_x alone"], counts[name]))
            rows.append((f"{name}, seed {seed}", cell(found["rates"]["wer"]), less))
    first, *others = PUBLISHED_WER.items()
    base = float(first[1].split()[0])
    lower = [(name + MARK, wer, f"{100 * (1 - float(wer.split()[0]) / base):.1f} %") for name, wer in others]
    note = (
        "Trained on c_x alone, or on (c_x, c_0) and tested on three pairs. Errors less than those of c_x alone, of the "
        "same recordings (paired bootstrap over recordings). Published: arXiv 2601.02391, Table 6."
    )
    header = ("heard", "word error rate", "fewer errors than c_x alone")
    alone = json.loads((ROOT / setup.runs / "encoder_wer" / "results.json").read_text())
    return [
        Table("Word error rate", header, [*rows, (first[0] + MARK, first[1], "-"), *lower], note),
        table_of(alone["systems"]),
    ]


def _fusion_stages(setup: Setup) -> list[Stage]:
    found = []
    for seed in setup.seeds:
        for name, changes in FUSIONS.items():
            ckpt = _fusion_run(name)
            found.append(setup.train(ckpt, seed, changes))
            found += [setup.evaluate(script, setup.run(ckpt, seed)) for script in ("wearvox", "vgbench")]
    return found


def _fusion_run(name: str) -> str:
    return "mc" if name == "interleave" else f"fusion_{name}"  # the same run as the other study's


def _fusion_tables(setup: Setup) -> list[Table]:
    def of(script: str) -> dict[str, dict[str, object]]:
        return {f"{name}, seed {seed}": setup.rates(script, setup.run(_fusion_run(name), seed))
                for name in FUSIONS for seed in setup.seeds}  # fmt: skip

    return [rate_table("WearVox tasks", of("wearvox"), WEARVOX), rate_table("VGBench", of("vgbench"), VGBENCH)]


def studies() -> dict[str, Study]:
    """Studies by name."""
    return {
        "sc_mc": Study(
            "One channel against the array",
            "The demo's training with the beam alone (SC) and with c_0 and the beam (MC): the form of WearVox's "
            "Tables 4 and 5, with wind.", _sc_mc_stages, _sc_mc_tables,
        ),
        "wer": Study(
            "Word error rate by channels",
            "Transcription of the demo's WearVox recordings (held-out voices, rooms and sentences): the form of "
            "WearVox's Table 6.", _wer_stages, _wer_tables,
        ),
        "fusion": Study(
            "How channels are put together",
            "Interleaved embeddings (default) against joined frames (half the positions) and summed projections.",
            _fusion_stages, _fusion_tables,
        ),
    }  # fmt: skip
