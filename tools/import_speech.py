"""A speech corpus in its published layout -> mono 16 kHz FLAC files and a manifest.

Layouts: librispeech, common_voice, mls, table (CSV, TSV, JSONL), folder. A killed run goes on where it stopped. What is
broken (no audio, undecodable, an id twice) is named in faults.jsonl, and above ``tolerance`` ends the run.

Run as: python tools/import_speech.py source.layout=librispeech source.root=LibriSpeech out_dir=speech/ls
        python tools/import_speech.py source.layout=table source.root=speech_en/manifest.jsonl out_dir=speech/en
"""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm

from wearllama.audio.io import AudioError
from wearllama.data.corpora import Broken, CorpusSource, read_source
from wearllama.data.faults import Faults
from wearllama.data.speech_rows import MANIFEST, SpeechManifest, read_rows, store_clip
from wearllama_launch import launch


@dataclass(kw_only=True)
class ImportSpeech:
    source: CorpusSource
    out_dir: str
    name: str | None = None
    """``source`` of the rows, what mixtures are weighted by; the folder's name if not given."""
    tolerance: float = 0.01
    """Share of the clips that may be broken."""
    limit: int | None = None
    """Clips at most."""


@launch("import_speech", ImportSpeech)
def main(config: ImportSpeech) -> None:
    out_dir = Path(config.out_dir)
    manifest = SpeechManifest(out_dir / MANIFEST)
    faults = Faults(out_dir / "faults.jsonl", config.tolerance)
    name = config.name or out_dir.name
    for number, found in enumerate(tqdm(read_source(config.source), unit="clip", desc=name)):
        if config.limit is not None and number >= config.limit:
            break
        if isinstance(found, Broken):
            faults.add(*found)
            continue
        if found.id not in manifest:
            try:
                manifest.append(store_clip(found, out_dir, name, config.source.several_channels))
            except AudioError as error:
                faults.add("undecodable clip", found.id, str(error))
                continue
        faults.good()
    faults.finish()
    rows = list(read_rows(manifest.path))
    hours = sum(row["seconds"] for row in rows) / 3600
    languages = Counter(row["language"] for row in rows)
    print(f"{manifest.path}: {len(rows)} clips, {hours:.2f} hours, {len({row['voice'] for row in rows})} voices, "
          f"languages {dict(languages)}")  # fmt: skip


if __name__ == "__main__":
    main()
