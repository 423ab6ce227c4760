"""Commissioned recordings in place of synthetic voices: a folder of files with speaker labels."""

import json
from collections.abc import Sequence
from pathlib import Path

import soundfile

from wearllama.data.demo_speakers import Line
from wearllama.data.textgen import normalise
from wearllama.data.voices import resample, trim_silence, write_clip

PREFIX = "recorded/"
"""Engine of speakers whose clips are recordings."""


def place_recordings(folder: Path, lines: Sequence[Line], root: Path) -> int:
    """Put what speakers read where the scenes look for it, at 16 kHz without the silence around; returns how many.

    ``folder/index.jsonl`` has ``{"file", "speaker", "text"}`` a line.  Raises ValueError naming the sentences nobody
    read, or a file that is not mono.
    """
    index = folder / "index.jsonl"
    if not index.is_file():
        raise ValueError(f"recordings={folder}: no index.jsonl with file, speaker and text a line")
    found: dict[tuple[str, str], Path] = {}
    for number, text in enumerate(index.read_text(encoding="utf-8").splitlines(), start=1):
        row = json.loads(text)
        if not {"file", "speaker", "text"} <= set(row):
            raise ValueError(f"{index}, line {number}: wanted file, speaker and text, found {sorted(row)}")
        found[row["speaker"], normalise(row["text"])] = folder / row["file"]
    wanted = [line for line in lines if line.speaker.voice.startswith(PREFIX)]
    missing = [
        line for line in wanted
        if (line.speaker.voice.removeprefix(PREFIX), normalise(line.utterance.text)) not in found
    ]  # fmt: skip
    if missing:
        first = missing[0]
        raise ValueError(f"{index}: {len(missing)} of {len(wanted)} sentences are missing, first {first.speaker.voice} "
                         f"reading {first.utterance.text!r}; script_only=true writes the script")  # fmt: skip
    for line in wanted:
        path = found[line.speaker.voice.removeprefix(PREFIX), normalise(line.utterance.text)]
        audio, rate = soundfile.read(path, dtype="float32", always_2d=True)
        if audio.shape[1] != 1:
            raise ValueError(f"{path}: found {audio.shape[1]} channels, wanted a mono recording")
        target = root / line.file
        target.parent.mkdir(parents=True, exist_ok=True)
        write_clip(target, trim_silence(resample(audio[:, 0], rate)))
    return len(wanted)
