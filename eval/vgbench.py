"""Evaluate a WearLlama checkpoint on VGBench's three scenarios: side-talk, self-talk, speaker-switch.

Run as: python eval/vgbench.py ckpt=runs/demo/sft data=data/demo/vgbench/manifest.jsonl
        torchrun --nproc_per_node=2 eval/vgbench.py ckpt=runs/demo/sft
        python eval/vgbench.py ckpt=... data=/data/vgbench.jsonl vgbench.audio_channels=1 vgbench.split=null
        python eval/vgbench.py ckpt=... data=data/vgbench vgbench.protocol=voices
        python eval/vgbench.py ckpt=... data=data/vgbench vgbench.scenarios=[factorised]
        python eval/vgbench.py ckpt=... adaptation=measured    # training-free: self_report, measured, chunked
        python eval/vgbench.py ckpt=... judge.base_url=http://127.0.0.1:8000/v1
        python eval/vgbench.py ckpt=... against=runs/eval/vgbench/demo-sft-1a2b3c4d    # paired McNemar
        python eval/vgbench.py ckpt=... condition=snr          # a sweep; or wind:0, [clean,voxeval], ...

Beside the model run its controls: the majority class, and the same weights fed digital silence. A run that was
stopped goes on where it was; one that is complete is only scored again. Results: OUT/vgbench/MODEL-WEIGHTS/.
"""

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from wearllama.atomic import write_text
from wearllama.evaluation import vgbench
from wearllama.evaluation.adaptations import Adaptation, AdaptedAdapter
from wearllama.evaluation.commands import RunCommand, run_benchmark
from wearllama.evaluation.compare import paired_table
from wearllama.evaluation.evaluate import BENCHMARKS, Benchmark
from wearllama.evaluation.side_judge import JudgeConfig, SideTalkJudge
from wearllama.evaluation.vgbench import VGBenchConfig, load_vgbench
from wearllama_launch import LaunchError, existing_path, launch


@dataclass(kw_only=True)
class VGBenchCommand(RunCommand):
    """The whole of conf/vgbench.yaml."""

    data: str = "data/demo/vgbench/manifest.jsonl"
    """Manifest, one condition a line."""
    vgbench: VGBenchConfig = field(default_factory=VGBenchConfig)
    """What is read."""
    judge: JudgeConfig = field(default_factory=JudgeConfig)
    """Who labels side-talk's free answers."""
    adaptation: Adaptation | None = None
    """Training-free adaptation around the model; its results go to OUT-ADAPTATION."""
    against: str | None = None
    """Folder of an earlier run on the same items, for the paired test."""


@launch("vgbench", VGBenchCommand)
def main(config: VGBenchCommand) -> None:
    existing_path(config.ckpt, "ckpt")
    manifest = existing_path(config.data, "data")
    other = None if config.against is None else existing_path(config.against, "against")
    if other is not None and config.condition != "clean":
        raise LaunchError("against compares runs on clean recordings; leave condition=clean")
    examples = load_vgbench(manifest, config.vgbench)
    root = manifest if manifest.is_dir() else manifest.parent
    benchmark, adapt = BENCHMARKS["vgbench"], None
    if config.judge.base_url is not None:
        judge = SideTalkJudge(config.judge)
        benchmark = Benchmark("vgbench", partial(vgbench.score, labeller=judge),
                              partial(vgbench.summarise, judge=judge.name))  # fmt: skip
    if config.adaptation is not None:
        adapt = partial(AdaptedAdapter, name=config.adaptation)
        config.out = f"{config.out}-{config.adaptation}"
    pages = run_benchmark("vgbench", config, examples, root=root, channels=config.vgbench.audio_channels,
                          benchmark=benchmark, adapt=adapt)  # fmt: skip
    if other is not None and pages:
        table = paired_table(benchmark, examples, Path(pages[0]).parent, other)
        write_text(pages[0].parent / "paired.md", table.markdown())
        print(f"\n{table.text()}")


if __name__ == "__main__":
    main()
