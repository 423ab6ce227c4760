"""VoxGate at the demo's scale, every seed and ablation: build, mix, SFT, GRPO, evaluate, tabulate.

Run as: make voxgate        (or: python tools/voxgate.py seeds=[1] variants=[sft,grpo])

Needs `make demo` (its checkpoint and data). Every step is one of the project's own commands; what is there and valid
ends at once, so an interrupted run goes on. Results: docs/results/voxgate.md.
"""

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from demo import Stage, note_time, run_stage  # beside this script
from page import write_page

from wearllama.evaluation.adapters import CheckpointAdapter
from wearllama.evaluation.commands import run_folder
from wearllama.evaluation.intervals import Rate
from wearllama.evaluation.tables import HEADLINE, Table, cell
from wearllama_launch import launch

ROOT = Path(__file__).resolve().parents[1]
SFT = {
    "sft": "voxgate_demo_sft",
    "cue_balanced": "voxgate_demo_cue_balanced",
    "random_gaps": "voxgate_demo_random_gaps",
}
"""Supervised variants and their experiments."""
GAPS = "data.manifest=data/voxgate/random_gaps.jsonl"
GRPO = {
    "grpo": ("sft", ""), "grpo_unpaired": ("sft", "grpo=unpaired"), "grpo_no_std": ("sft", "grpo=no_std"),
    "grpo_k4": ("sft", "grpo=k4"), "grpo_k16": ("sft", "grpo=k16"), "grpo_loss_grpo": ("sft", "grpo=loss_grpo"),
    "grpo_loss_dapo": ("sft", "grpo=loss_dapo"), "grpo_loss_dr_grpo": ("sft", "grpo=loss_dr_grpo"),
    "grpo_kl": ("sft", "grpo=kl"), "grpo_cue_balanced": ("cue_balanced", ""),
    "grpo_cue_balanced_unpaired": ("cue_balanced", "grpo=unpaired"), "grpo_random_gaps": ("random_gaps", GAPS),
}  # fmt: skip
"""GRPO variants: the supervised one they start from, and what they change."""
DEFAULT = ("sft", "cue_balanced", "grpo", "grpo_unpaired", "grpo_cue_balanced", "grpo_cue_balanced_unpaired")
PUBLISHED = ("91.3 % / 92.5 %", "100 %", "100 %", "-", "52.0 % / 60.0 %", "68.4 % / 70.9 %")


@dataclass(kw_only=True)
class VoxGate:
    """Which part of the study to run."""

    seeds: tuple[int, ...] = (1, 2, 3)
    variants: tuple[str, ...] = DEFAULT
    start: str = "runs/demo/sft"
    """Model that hears, which every supervised variant starts from."""
    runs: str = "runs/voxgate"
    eval_data: str = "data/demo/vgbench/manifest.jsonl"
    """Held-out voices, rooms and wordings."""
    factor_data: str = "data/vgbench/manifest.jsonl"
    out: str = "docs/results/voxgate.md"

    def __post_init__(self) -> None:
        unknown = sorted(set(self.variants) - set(SFT) - set(GRPO))
        if unknown or not self.variants or not self.seeds:
            raise ValueError(f"variants {unknown} are unknown, wanted some of {[*SFT, *GRPO]}; seeds {self.seeds}")


@launch("voxgate", VoxGate)
def main(config: VoxGate) -> None:
    begin, times = time.perf_counter(), ROOT / config.runs / "times.json"
    done: list[str] = []
    for stage in stages(config):
        print(f"\n[{stage.name}] {stage.title}", flush=True)
        note_time(times, stage.name, run_stage(stage))
        done.append(stage.command)
    table, factors = tables(config)
    minutes = sum(json.loads(times.read_text()).values()) / 60
    intro = (
        f"Made by `make voxgate`; its steps took {minutes:.0f} minutes, each counted when it was new. Rewards, K, "
        "learning rates and levels are ours (conf/grpo/default.yaml)."
    )
    write_page(ROOT / config.out, "VoxGate at the demo's scale", intro, [table, factors], done)
    print(f"\n{table.text()}\n\n{factors.text()}\n\n{config.out}; {(time.perf_counter() - begin) / 60:.1f} min")


def stages(config: VoxGate) -> list[Stage]:
    """Every command, in order."""
    found = [
        Stage("build", "build VGBench from quick voices", "tools/build_vgbench.py preset=demo", 6.0),
        Stage("mix", "mix the training rows", "tools/mix_voxgate.py", 0.2),
    ]
    for seed in config.seeds:
        needed = dict.fromkeys([*(v for v in config.variants if v in SFT), *(GRPO[v][0] for v in config.variants
                                                                             if v in GRPO)])  # fmt: skip
        for name in needed:
            found.append(Stage(f"{name}-{seed}", "supervised stage",
                               f"recipes/sft.py experiment={SFT[name]} init={config.start} train.seed={seed} "
                               f"run_dir={folder(config, name, seed)}", 4.0))  # fmt: skip
        for name in (v for v in config.variants if v in GRPO):
            start, change = GRPO[name]
            command = (f"recipes/grpo.py experiment=voxgate_demo_grpo ckpt={folder(config, start, seed)} "
                       f"grpo.seed={seed} train.seed={seed} run_dir={folder(config, name, seed)} {change}")  # fmt: skip
            found.append(Stage(f"{name}-{seed}", "GRPO stage", command.strip(), 4.0))
        for name in config.variants:
            for kind, data, more in (("eval", config.eval_data, ""), ("factors", config.factor_data,
                                                                      " vgbench.scenarios=[factorised]")):  # fmt: skip
                command = (f"eval/vgbench.py ckpt={folder(config, name, seed)} data={data} controls=[] clips=0 "
                           f"harness.ttft_items=0 max_new_tokens=48 out={config.runs}/{kind}{more}")  # fmt: skip
                found.append(Stage(f"{kind}-{name}-{seed}", "evaluate", command, 1.0))
    return found


def folder(config: VoxGate, name: str, seed: int) -> str:
    """Run folder of a variant and seed."""
    return f"{config.runs}/{name}-{seed}"


def rates_of(config: VoxGate, kind: str, name: str, seed: int) -> dict[str, Any]:
    """The model's row of a run's results."""
    model = CheckpointAdapter(ROOT / folder(config, name, seed), max_new_tokens=48)
    path = run_folder(ROOT / config.runs / kind, "vgbench", model) / "results.json"
    return json.loads(path.read_text())["systems"][0]


def tables(config: VoxGate) -> tuple[Table, Table]:
    """Headline rates of every variant and seed with their sums over seeds, and the factorised mute rates."""
    columns = HEADLINE["vgbench"]
    rows: list[tuple[str, ...]] = []
    factor_rows: list[tuple[str, ...]] = []
    names: list[str] = []
    for variant in config.variants:
        found = [rates_of(config, "eval", variant, seed) for seed in config.seeds]
        for seed, system in zip(config.seeds, found, strict=True):
            rows.append((f"{variant}, seed {seed}", *(cell(system["rates"].get(key)) for _, key in columns)))
        if len(config.seeds) > 1:
            pooled_cells = (pooled([s["rates"].get(key) for s in found]) for _, key in columns)
            rows.append((f"{variant}, all seeds", *pooled_cells))
        factors = [rates_of(config, "factors", variant, seed)["mute_by_factor"] for seed in config.seeds]
        names = names or list(factors[0])
        factor_rows.append((variant, *(pooled([f.get(name) for f in factors]) for name in names)))
    rows.append(("VoxGate SFT / GRPO (published)", *PUBLISHED))
    paper = {"A-near-600": "1.2 %", "B-near-600": "50.0 % / 53.8 %", "A-far-600": "60.0 % / 60.0 %"}
    factor_rows.append(("VoxGate SFT / GRPO (published)", *(paper.get(name, "-") for name in names)))
    note = "Pooled rates count every seed's items; the items are the same, so their intervals are too narrow."
    return (Table("VoxGate", ("system", *(title for title, _ in columns)), rows, note),
            Table("Mute rates: source - distance - gap (ms)", ("system", *names), factor_rows))  # fmt: skip


def pooled(rates: list[dict[str, Any] | None]) -> str:
    """Several seeds' rate as one count."""
    told = [rate for rate in rates if rate]
    return str(Rate(sum(r["hits"] for r in told), sum(r["total"] for r in told))) if told else "-"


if __name__ == "__main__":
    main()
