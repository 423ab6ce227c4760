"""Evaluate a WearLlama checkpoint on WearVox's four turn-based tasks.

Run as: python eval/wearvox.py ckpt=runs/demo/sft data=data/demo/wearvox
        torchrun --nproc_per_node=2 eval/wearvox.py ckpt=runs/demo/sft
        python eval/wearvox.py ckpt=... data=/data/WearVox controls=[] harness.batch_size=32 dtype=bfloat16
        python eval/wearvox.py ckpt=... pair=[c_x-c_0,c_x-c_1,c_0-c_1]    # other channels than the trained ones
        python eval/wearvox.py ckpt=... condition=snr          # a sweep; or wind:0, [clean,voxeval], ...

Beside the model run its controls: the majority class, and the same weights fed digital silence. A run that was
stopped goes on where it was; one that is complete is only scored again. Results: OUT/wearvox/MODEL-WEIGHTS/.
"""

from dataclasses import dataclass, field

from wearllama.evaluation.commands import RunCommand, run_benchmark
from wearllama.evaluation.wearvox import WearVoxConfig, load_wearvox
from wearllama_launch import existing_path, launch


@dataclass(kw_only=True)
class WearVoxCommand(RunCommand):
    """The whole of conf/wearvox.yaml."""

    data: str = "data/demo/wearvox"
    """Folder in the published layout."""
    wearvox: WearVoxConfig = field(default_factory=WearVoxConfig)
    """What is read."""


@launch("wearvox", WearVoxCommand)
def main(config: WearVoxCommand) -> None:
    existing_path(config.ckpt, "ckpt")
    folder = existing_path(config.data, "data")
    examples = load_wearvox(folder, config.wearvox, progress=config.harness.progress)
    run_benchmark("wearvox", config, examples, root=folder, channels=config.wearvox.channels)


if __name__ == "__main__":
    main()
