"""Any folder of audio files as a list of clips: found, checked by their headers, remembered for the run.

Contract 1 holds: another rate is an error unless resampling is asked for, another number of channels always.
"""

import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from torch import Tensor
from tqdm import tqdm

from wearllama.atomic import write_text
from wearllama.audio.io import AudioError, audio_info, read_audio
from wearllama.audio.timebase import SAMPLE_RATE

SUFFIXES = (".wav", ".flac")
OTHER_AUDIO = (".mp3", ".ogg", ".opus", ".m4a", ".aac", ".wma", ".aiff", ".webm")


class AudioClip(NamedTuple):
    file: str
    """Path relative to the folder."""
    frames: int
    """Samples a channel, at the file's own rate."""
    sample_rate: int

    @property
    def seconds(self) -> float:
        return self.frames / self.sample_rate

    @property
    def samples(self) -> int:
        """Samples a channel at 16 kHz (polyphase conversion rounds up)."""
        return -(-self.frames * SAMPLE_RATE // self.sample_rate)


def audio_files(folder: Path) -> list[Path]:
    """WAV and FLAC files under ``folder``, sorted; warns of other audio, ValueError where there is none."""
    paths = sorted(path for path in folder.rglob("*") if not path.name.startswith("."))
    found = [path for path in paths if path.suffix.lower() in SUFFIXES]
    others = [path for path in paths if path.suffix.lower() in OTHER_AUDIO]
    if others:
        warnings.warn(f"{folder}: {len(others)} files of other formats are left out, first {others[0]}", stacklevel=2)
    if not found:
        raise ValueError(f"{folder}: no {' or '.join(SUFFIXES)} file in it")
    return found


def find_clips(folder: Path, *, channels: int, resample: bool = False, min_seconds: float = 0.5) -> list[AudioClip]:
    """Clips of a folder, from their headers.

    Args:
        folder: searched with all folders below it.
        channels: that every file must have.
        resample: take other rates than 16 kHz.
        min_seconds: shorter files are left out, with a warning of how many.

    Raises:
        ValueError: no audio, only short files; AudioError names a file of another rate or number of channels.
    """
    clips, short = [], 0
    for path in tqdm(audio_files(folder), desc="headers", unit="file", disable=None):
        info = audio_info(path)
        if info.channels != channels:
            raise AudioError(f"{path}: found {info.channels} channels, wanted {channels}")
        if info.sample_rate != SAMPLE_RATE and not resample:
            raise AudioError(f"{path}: found {info.sample_rate} Hz, wanted {SAMPLE_RATE} Hz (or set resample=true)")
        if info.seconds < min_seconds:
            short += 1
        else:
            clips.append(AudioClip(str(path.relative_to(folder)), info.frames, info.sample_rate))
    if not clips:
        raise ValueError(f"{folder}: all {short} files are shorter than {min_seconds} s")
    if short:
        warnings.warn(f"{folder}: {short} files shorter than {min_seconds} s are left out", stacklevel=2)
    return clips


def read_clip(folder: Path, clip: AudioClip, *, channels: int, start: int = 0, samples: int | None = None) -> Tensor:
    """``samples`` from ``start`` (both at 16 kHz) of a clip, (channels, samples) at 16 kHz, the rest left unread."""
    rate, path = clip.sample_rate, folder / clip.file
    if samples is None or (start == 0 and samples >= clip.samples):
        return read_audio(path, channels=channels, resample=rate != SAMPLE_RATE)
    first = start * rate // SAMPLE_RATE
    count = min(-(-samples * rate // SAMPLE_RATE), clip.frames - first)
    audio_CN = read_audio(path, channels=channels, resample=rate != SAMPLE_RATE, start=first, frames=count)
    return audio_CN[:, :samples]


def save_clips(path: Path, clips: Sequence[AudioClip]) -> None:
    """Keep the list of a run, so that a resumed one draws from the same clips whatever came to the folder since."""
    write_text(path, json.dumps({"clips": clips}) + "\n")


def load_clips(path: Path) -> list[AudioClip]:
    """What :func:`save_clips` kept; ValueError where the file is not such a list."""
    try:
        return [AudioClip(str(f), int(n), int(r)) for f, n, r in json.loads(path.read_text(encoding="utf-8"))["clips"]]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: not a run's list of clips ({error!r})") from error
