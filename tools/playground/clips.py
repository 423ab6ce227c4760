"""Speech for the page: packaged clips with their words, and what a visitor records or uploads."""

import hashlib
import json
from pathlib import Path
from typing import NamedTuple

from wearllama.audio.io import read_audio, write_audio
from wearllama.audio.timebase import SAMPLE_RATE

LONGEST_S = 12.0
"""Of a visitor's clip; the rest is cut, and said to be."""


class SpeechClip(NamedTuple):
    """A dry mono clip and what it says."""

    file: Path
    words: str


class Loaded(NamedTuple):
    """A visitor's clip, ready for a scene, and what was done to it."""

    clip: SpeechClip
    note: str


def find_clips(folder: Path) -> list[SpeechClip]:
    """Clips of a folder with ``transcripts.json`` (file to words), or the dry speech of the demo's WearVox folder.

    Raises:
        ValueError: the folder has neither.
    """
    if (folder / "transcripts.json").is_file():
        words = json.loads((folder / "transcripts.json").read_text(encoding="utf-8"))
        return [SpeechClip(folder / name, text) for name, text in sorted(words.items(), key=lambda item: item[1])]
    if (folder / "scenes.json").is_file() and (folder / "data_public.json").is_file():
        return _demo_clips(folder)
    raise ValueError(
        f"clips={folder}: wanted a folder with transcripts.json (a mapping of file to words), or data/demo/wearvox"
    )


def _demo_clips(folder: Path) -> list[SpeechClip]:
    scenes = json.loads((folder / "scenes.json").read_text(encoding="utf-8"))
    words = {row["id"]: row.get("gt_transcript", "") for row in json.loads((folder / "data_public.json").read_text())}
    found: dict[str, SpeechClip] = {}
    for name, mixture in scenes["mixtures"].items():
        segments = mixture["recipe"].get("segments", [])
        if len(segments) == 1 and words.get(name):
            file = folder / scenes["audio_root"] / segments[0]["file"]
            found.setdefault(words[name], SpeechClip(file, words[name]))
    return [found[text] for text in sorted(found)]


def visitor_clip(file: str | Path, folder: Path) -> Loaded:
    """A recording of any rate and channel count as a mono 16 kHz file in ``folder``, named after what is in it.

    Raises:
        AudioError: it cannot be read, or holds nothing.
    """
    audio_CN = read_audio(file, resample=True)
    notes = [] if audio_CN.shape[0] == 1 else [f"the first of {audio_CN.shape[0]} channels is taken"]
    audio_1N = audio_CN[:1]
    seconds = audio_1N.shape[1] / SAMPLE_RATE
    if seconds > LONGEST_S:
        notes.append(f"the first {LONGEST_S:g} of {seconds:.1f} s are taken")
        audio_1N = audio_1N[:, : int(LONGEST_S * SAMPLE_RATE)]
    name = hashlib.sha256(audio_1N.contiguous().numpy().tobytes()).hexdigest()[:16]
    path = folder / f"{name}.wav"
    if not path.is_file():
        write_audio(path, audio_1N)
    return Loaded(SpeechClip(path, Path(file).name), "; ".join(notes))
