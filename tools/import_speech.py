"""A speech corpus in its published layout -> mono 16 kHz FLAC files and a manifest.

Layouts: librispeech, common_voice, mls, table (CSV, TSV, JSONL), folder. A killed run goes on where it stopped. What is
broken (no audio, undecodable, an id twice) is named in faults.jsonl, and above ``tolerance`` ends the run.

Run as: python tools/import_speech.py source.layout=librispeech source.root=LibriSpeech out_dir=speech/ls
        python tools/import_speech.py source.layout=table source.root=speech_en/manifest.jsonl out_dir=speech/en
"""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from wearllama.data.corpora import Recording
from wearllama.data.corpus_job import CorpusJob, for_each_recording
from wearllama.data.speech_rows import MANIFEST, SpeechManifest, read_rows, store_clip
from wearllama_launch import launch


@dataclass(kw_only=True)
class ImportSpeech(CorpusJob):
    """The whole of conf/import_speech.yaml."""


@launch("import_speech", ImportSpeech)
def main(config: ImportSpeech) -> None:
    manifest = SpeechManifest(Path(config.out_dir) / MANIFEST)

    def store(recording: Recording) -> None:
        if recording.id not in manifest:
            manifest.append(
                store_clip(recording, Path(config.out_dir), config.source_name, config.source.several_channels)
            )

    for_each_recording(config, store)
    rows = list(read_rows(manifest.path))
    hours = sum(row["seconds"] for row in rows) / 3600
    languages = Counter(row["language"] for row in rows)
    silent = sum(not str(row.get("text") or "").strip() for row in rows)
    if silent:
        print(f"{silent} clips have no words: tools/pseudo_label.py writes them, into another folder")
    beside = Path(config.source.root) / MANIFEST
    if config.source.layout == "folder" and beside.is_file():
        print(f"{beside} was not read: source.layout=table source.root={beside} takes its words")
    print(f"{manifest.path}: {len(rows)} clips, {hours:.2f} hours, {len({row['voice'] for row in rows})} voices, "
          f"languages {dict(languages)}")  # fmt: skip


if __name__ == "__main__":
    main()
