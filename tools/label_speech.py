"""Real recordings -> 16 kHz FLAC with text: packaged prompts labelled by Whisper, read speech with its own transcripts.

Run as::

    python tools/label_speech.py asterisk_en cache/speech/asterisk_en     # labels by Whisper-base
    python tools/label_speech.py librivox cache/speech/librivox           # five sentences with their text

Writes `wav/*.flac` and an append-only `manifest.jsonl` of {id, file, text, voice, seconds, kind, avg_logprob}; a
second run goes on where the first stopped.  Clips without words (tones, silence) and unsure labels are left out.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
from tqdm import tqdm

from wearllama.data.assets import AssetUnavailable, fetch
from wearllama.data.labeller import Labeller
from wearllama.data.text_checks import repeats_itself
from wearllama.data.voices import SAMPLE_RATE, trim_silence, write_clip

MIN_LOGPROB = -0.8
"""Labels below this mean log-probability are dropped."""
_SILENT_DIRECTORIES = ("silence",)


def prompts(directory: Path) -> Iterator[tuple[str, Path]]:
    """(id, path) of every spoken prompt of an Asterisk package."""
    for path in sorted(directory.rglob("*.flac")):
        relative = path.relative_to(directory).with_suffix("")
        if not set(relative.parts) & set(_SILENT_DIRECTORIES):
            yield "-".join(relative.parts), path


def label_prompts(asset: str, out_dir: Path, cache_dir: str | None, threads: int) -> None:
    """Label every prompt of `asset` by Whisper-base, append to the manifest."""
    label = Labeller(asset.partition("_")[2], cache_dir, threads)
    done = _known_ids(out_dir)
    for key, path in tqdm(list(prompts(fetch(asset, cache_dir))), unit="clip"):
        row_id = f"{asset}-{key}"
        audio_N = trim_silence(_read(path)) if row_id not in done else np.zeros(0, np.float32)
        if not SAMPLE_RATE // 5 < audio_N.size < 28 * SAMPLE_RATE or np.abs(audio_N).max() < 0.01:
            continue
        text, logprob = label(audio_N)
        if not re.search(r"\w", text) or logprob < MIN_LOGPROB or repeats_itself(text):
            continue
        row = {"id": row_id, "text": text, "voice": asset, "kind": "prompt", "avg_logprob": round(logprob, 3)}
        _append(out_dir, row, audio_N)


def librivox(out_dir: Path, cache_dir: str | None) -> None:
    """The read sentences of pocketsphinx-testdata with their transcripts."""
    root = fetch("pocketsphinx_testdata", cache_dir)
    done = _known_ids(out_dir)
    for line in (root / "librivox" / "transcription").read_text().splitlines():
        found = re.fullmatch(r"\s*(?:<s>)?\s*(.+?)\s*(?:</s>)?\s*\((\S+)\)\s*", line)
        if found is None or f"librivox-{found[2]}" in done:
            continue
        audio_N = _read(root / "librivox" / f"{found[2]}.wav")
        row = {"id": f"librivox-{found[2]}", "text": found[1], "voice": "librivox", "kind": "read"}
        _append(out_dir, row, audio_N)


def _read(path: Path) -> np.ndarray:
    audio_N, rate = soundfile.read(path, dtype="float32")
    if rate != SAMPLE_RATE:
        raise ValueError(f"{path}: sample rate is {rate}, wanted {SAMPLE_RATE}")
    return audio_N


def _known_ids(out_dir: Path) -> set[str]:
    manifest = out_dir / "manifest.jsonl"
    if not manifest.is_file():
        return set()
    return {json.loads(line)["id"] for line in manifest.read_text().splitlines()}


def _append(out_dir: Path, row: dict[str, Any], audio_N: np.ndarray) -> None:
    relative = Path("wav") / row["voice"] / f"{row['id']}.flac"
    write_clip(out_dir / relative, np.clip(audio_N, -1, 1))
    row = {**row, "file": str(relative), "seconds": round(len(audio_N) / SAMPLE_RATE, 3)}
    with (out_dir / "manifest.jsonl").open("a") as handle:
        handle.write(json.dumps(row, ensure_ascii=False) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("asset", choices=["asterisk_en", "asterisk_es", "asterisk_fr", "asterisk_it", "librivox"])
    parser.add_argument("out_dir", type=Path)
    parser.add_argument("--cache-dir")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    try:
        if args.asset == "librivox":
            librivox(args.out_dir, args.cache_dir)
        else:
            label_prompts(args.asset, args.out_dir, args.cache_dir, args.threads)
    except AssetUnavailable as error:
        raise SystemExit(f"left out: {error}") from error


if __name__ == "__main__":
    main()
