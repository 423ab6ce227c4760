"""Rows that ask for the words, of any manifest's rows that have sound and a transcript.

Run as: python tools/make_asr.py manifest=data/demo/train.jsonl out=data/demo/asr.jsonl style=compact

Recipes and paths stay as they are: put OUT beside MANIFEST, or give training data.root=.
"""

from dataclasses import dataclass

from wearllama.data.manifest import read_manifest, write_manifest
from wearllama.data.prompts import PromptStyle
from wearllama.data.transcription_rows import ask_for_words
from wearllama_launch import existing_path, launch


@dataclass(kw_only=True)
class MakeAsr:
    manifest: str
    """Rows with ``metadata.transcript``."""
    out: str
    style: PromptStyle = "full"
    """Of the prompt: ``compact`` at the demo's scale."""


@launch("make_asr", MakeAsr)
def main(config: MakeAsr) -> None:
    rows = read_manifest(existing_path(config.manifest, "manifest"))
    count = write_manifest(config.out, ask_for_words(rows, style=config.style))
    print(f"{config.out}: {count} rows of transcription, of {len(rows)} rows")


if __name__ == "__main__":
    main()
