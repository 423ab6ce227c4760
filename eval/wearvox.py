"""Evaluate a model on WearVox: two kinds of questions, tool calls, side-talk, translation.

Run as: python eval/wearvox.py ckpt=runs/demo/sft data=data/demo/wearvox
        torchrun --nproc_per_node=2 eval/wearvox.py ckpt=runs/demo/sft
        python eval/wearvox.py ckpt=... data=/data/WearVox controls=[] harness.batch_size=32 dtype=bfloat16
        python eval/wearvox.py ckpt=... pair=[c_x-c_0,c_x-c_1,c_0-c_1]    # other channels than the trained ones
        python eval/wearvox.py ckpt=... array=aria7 data=data/aria7/wearvox    # recordings of another array
        python eval/wearvox.py ckpt=... look_ahead=1           # of a streaming encoder, in frames of 80 ms
        python eval/wearvox.py ckpt=... condition=snr          # a sweep; or wind:0, [clean,voxeval], ...
        python eval/wearvox.py model=openai:NAME base_url=http://localhost:8000/v1 controls=[majority]
        python eval/wearvox.py model=hf:Qwen/Qwen2-Audio-7B-Instruct device=cuda:0 dtype=bfloat16
        python eval/wearvox.py model=cascade asr.model=whisper_base llm.model=smollm2
        python eval/wearvox.py ckpt=... judges.qa.model=openai:NAME judges.qa.endpoint.base_url=http://localhost:8000/v1
        python eval/wearvox.py ckpt=... wearvox.crag=/data/crag.jsonl.bz2 prompts=my_prompts.yaml

Beside the model run its controls: the majority class, and the same weights fed digital silence. A run that was
stopped goes on where it was; one that is complete is only judged and scored again. Results: OUT/wearvox/MODEL-WEIGHTS/.
"""

from dataclasses import dataclass, field, replace

from wearllama.audio.array import load_array
from wearllama.evaluation.commands import RunCommand, run_benchmark
from wearllama.evaluation.wearvox import WearVoxConfig, read_wearvox
from wearllama_launch import existing_path, launch


@dataclass(kw_only=True)
class WearVoxCommand(RunCommand):
    """The whole of conf/wearvox.yaml."""

    data: str = "data/demo/wearvox"
    """Folder in the published layout."""
    wearvox: WearVoxConfig = field(default_factory=WearVoxConfig)
    """What is read."""
    prompts: str | None = None
    """Short for ``wearvox.prompts``."""


@launch("wearvox", WearVoxCommand)
def main(config: WearVoxCommand) -> None:
    if config.ckpt is not None:
        existing_path(config.ckpt, "ckpt")
    folder = existing_path(config.data, "data")
    settings = replace(config.wearvox, prompts=config.prompts or config.wearvox.prompts)
    if config.array is not None:
        settings = replace(settings, channels=load_array(config.array).num_mics)
    data = read_wearvox(folder, settings, progress=config.harness.progress)
    channels = settings.channels
    run_benchmark("wearvox", config, data.examples, root=folder, channels=channels, notes=data.notes())


if __name__ == "__main__":
    main()
