"""Evaluate a model on VGBench's three scenarios: side-talk, self-talk, speaker-switch.

Run as: python eval/vgbench.py ckpt=runs/demo/sft data=data/demo/vgbench/manifest.jsonl
        torchrun --nproc_per_node=2 eval/vgbench.py ckpt=runs/demo/sft
        python eval/vgbench.py ckpt=... data=/data/vgbench.jsonl vgbench.audio_channels=1 vgbench.split=null
        python eval/vgbench.py model=openai:NAME base_url=http://localhost:8000/v1 controls=[majority]
        python eval/vgbench.py ckpt=... judges.side_talk.model=openai:NAME      # else a rule labels free answers
        python eval/vgbench.py ckpt=... data=data/vgbench vgbench.protocol=voices
        python eval/vgbench.py ckpt=... data=data/vgbench vgbench.scenarios=[factorised]
        python eval/vgbench.py ckpt=... adaptation=measured    # training-free: self_report, measured, chunked
        python eval/vgbench.py ckpt=... array=aria7 data=data/aria7/vgbench/manifest.jsonl    # another array
        python eval/vgbench.py ckpt=... look_ahead=1           # of a streaming encoder, in frames of 80 ms
        python eval/vgbench.py ckpt=... condition=snr          # a sweep; or wind:0, [clean,voxeval], ...

Beside the model run its controls: the majority class, and the same weights fed digital silence. A run that was
stopped goes on where it was; one that is complete is only scored again. Results: OUT/vgbench/MODEL-WEIGHTS/.
Two runs on the same items are compared by tools/compare.py (paired bootstrap, McNemar's exact test).
"""

from dataclasses import dataclass, field, replace

from wearllama.audio.array import load_array
from wearllama.evaluation.commands import RunCommand, run_benchmark
from wearllama.evaluation.vgbench import VGBenchConfig, load_vgbench
from wearllama_launch import existing_path, launch


@dataclass(kw_only=True)
class VGBenchCommand(RunCommand):
    """The whole of conf/vgbench.yaml."""

    data: str = "data/demo/vgbench/manifest.jsonl"
    """Manifest, one condition a line."""
    vgbench: VGBenchConfig = field(default_factory=VGBenchConfig)
    """What is read."""


@launch("vgbench", VGBenchCommand)
def main(config: VGBenchCommand) -> None:
    if config.ckpt is not None:
        existing_path(config.ckpt, "ckpt")
    manifest = existing_path(config.data, "data")
    settings = config.vgbench
    if config.array is not None:
        settings = replace(settings, audio_channels=load_array(config.array).num_mics)
    examples = load_vgbench(manifest, settings)
    root = manifest if manifest.is_dir() else manifest.parent
    run_benchmark("vgbench", config, examples, root=root, channels=settings.audio_channels)


if __name__ == "__main__":
    main()
