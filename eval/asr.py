"""Evaluate transcription: the word error rate on a benchmark's recordings (WearVox paper, Table 6).

Run as: python eval/asr.py ckpt=runs/demo/sft style=compact
        python eval/asr.py ckpt=... 'pair=[c_x-c_0,c_x-c_1,c_0-c_1]'    # other channels than the trained ones
        python eval/asr.py ckpt=... data=/data/WearVox condition=snr
        python eval/asr.py ckpt=... data=data/demo/vgbench/manifest.jsonl

The recordings of a WearVox folder or a VGBench manifest that have a transcript; the model is asked to write down what
is said, in the words of training's asr rows (``style``). Case and punctuation do not count. A run that was stopped
goes on where it was. Results: OUT/asr/MODEL-WEIGHTS/.
"""

from dataclasses import dataclass

from wearllama.audio.array import load_array
from wearllama.data.prompts import PromptStyle
from wearllama.data.transcription_rows import ask_for_words
from wearllama.evaluation.commands import OWN_ARRAY, RunCommand, run_benchmark
from wearllama.evaluation.evaluate import Control
from wearllama.evaluation.vgbench import VGBenchConfig, load_vgbench
from wearllama.evaluation.wearvox import TURN_TASKS, WearVoxConfig, load_wearvox
from wearllama_launch import existing_path, launch


@dataclass(kw_only=True)
class AsrCommand(RunCommand):
    """The whole of conf/asr.yaml."""

    data: str = "data/demo/wearvox"
    """Folder in WearVox's layout, or a VGBench manifest."""
    style: PromptStyle = "full"
    """Of the prompt: ``compact`` for checkpoints of the demo."""
    controls: tuple[Control, ...] = ("silence",)
    """What stands beside the model: ``silence``, ``majority``."""


@launch("asr", AsrCommand)
def main(config: AsrCommand) -> None:
    if config.ckpt is not None:
        existing_path(config.ckpt, "ckpt")
    data = existing_path(config.data, "data")
    channels = load_array(config.array or OWN_ARRAY).num_mics
    if data.suffix == ".jsonl":
        examples = load_vgbench(data, VGBenchConfig(audio_channels=channels))
    else:
        examples = load_wearvox(data, WearVoxConfig(tasks=TURN_TASKS, channels=channels))
    asked = ask_for_words(examples, style=config.style)
    notes = {"recordings_without_transcript": len(examples) - len(asked)}
    root = data.parent if data.suffix == ".jsonl" else data
    run_benchmark("asr", config, asked, root=root, channels=channels, notes=notes)


if __name__ == "__main__":
    main()
