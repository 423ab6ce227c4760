"""Evaluate transcription: the word error rate on a benchmark's recordings (WearVox paper, Table 6).

Run as: python eval/asr.py ckpt=runs/demo/sft style=compact
        python eval/asr.py ckpt=... 'pair=[c_x-c_0,c_x-c_1,c_0-c_1]'    # other channels than the trained ones
        python eval/asr.py ckpt=... data=/data/WearVox condition=snr
        python eval/asr.py ckpt=... data=data/demo/vgbench/manifest.jsonl
        python eval/asr.py ckpt=... ask=note                            # dictated: the words of the call
        python eval/asr.py ckpt=... data=data/mine_test/manifest.jsonl   # your own clips: tools/make_asr.py bank=...

The recordings of a WearVox folder, a VGBench manifest or a manifest of recorded rows that have a transcript; the model
is asked to write down what is said, in the words of training's asr rows (``style``). Case and punctuation do not
count. A run that was stopped goes on where it was. Results: OUT/asr/MODEL-WEIGHTS/.
"""

from dataclasses import dataclass

from wearllama.audio.array import load_array
from wearllama.data.prompts import PromptStyle
from wearllama.data.transcription_rows import Ask, ask_for_words
from wearllama.evaluation.commands import OWN_ARRAY, RunCommand, run_benchmark
from wearllama.evaluation.evaluate import Control
from wearllama.evaluation.recordings import audio_root, read_examples
from wearllama_launch import existing_path, launch


@dataclass(kw_only=True)
class AsrCommand(RunCommand):
    """The whole of conf/asr.yaml."""

    data: str = "data/demo/wearvox"
    """Folder in WearVox's layout, VGBench manifest, or manifest of recorded rows (tools/make_asr.py bank=...)."""
    limit: int | None = None
    """Only the first so many recordings."""
    ask: Ask = "words"
    """``note``: for a call of the tool ``create_note`` with the words as its text (dictation)."""
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
    examples = read_examples(data, channels)[: config.limit]
    asked = ask_for_words(examples, style=config.style, ask=config.ask)
    notes = {"recordings_without_transcript": len(examples) - len(asked)}
    run_benchmark("asr", config, asked, root=audio_root(data), channels=channels, notes=notes)


if __name__ == "__main__":
    main()
