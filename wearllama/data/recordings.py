"""Packaged recordings in telephone codecs -> 16 kHz FLAC."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import soundfile

SAMPLE_RATE = 16000


def read_g722(path: Path) -> np.ndarray:
    """Decode raw G.722 (64 kbit/s) to (N,) float32 at 16 kHz.  Raises ValueError naming a file that holds none."""
    import av

    try:
        with av.open(str(path), format="g722") as container:
            frames = [frame.to_ndarray().reshape(-1) for frame in container.decode(audio=0)]
    except av.error.FFmpegError as error:
        raise ValueError(f"{path}: not G.722 audio ({error})") from error
    if not frames:
        raise ValueError(f"{path}: no audio in it")
    return np.concatenate(frames).astype(np.float32) / 32768


def decode_g722_tree(root: Path) -> int:
    """Replace every ``.g722`` file under `root` by a 16 kHz FLAC of the same stem; returns how many."""
    paths = sorted(root.rglob("*.g722"))
    for path in paths:
        soundfile.write(path.with_suffix(".flac"), read_g722(path), SAMPLE_RATE, format="FLAC", subtype="PCM_16")
        path.unlink()
    return len(paths)
