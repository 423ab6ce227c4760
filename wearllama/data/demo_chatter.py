"""Real recorded speech that bystanders say in the demo's training scenes."""

import os
from pathlib import Path

import soundfile
from tqdm import tqdm

from wearllama.data.assets import AssetError, AssetUnavailable, fetch
from wearllama.data.voices import SAMPLE_RATE, resample, trim_silence

ASSET = "asterisk_en"
MIN_SECONDS, MAX_SECONDS = 1.0, 4.0


def chatter_files(out_dir: Path, *, limit: int = 240) -> tuple[list[str], list[str]]:
    """Recorded clips as 16 kHz FLAC under ``out_dir/chatter``.

    Returns paths relative to ``out_dir`` (none where the recordings cannot be had) and sentences about what is missing.
    """
    try:
        source = fetch(ASSET)
    except (AssetUnavailable, AssetError) as error:
        return [], [f"recorded bystanders are left out: {error}"]
    folder = out_dir / "chatter"
    folder.mkdir(parents=True, exist_ok=True)
    found = sorted(path for path in source.rglob("*") if path.suffix in (".wav", ".flac"))
    listing = folder / "files.txt"
    if listing.is_file():
        names = listing.read_text().split()
        if all((out_dir / name).is_file() for name in names):
            return names, []
    names = []
    for path in tqdm(found, desc="chatter", unit="clip"):
        if len(names) == limit:
            break
        audio, rate = soundfile.read(path, dtype="float32", always_2d=True)
        audio_N = trim_silence(resample(audio[:, 0], rate))
        if not MIN_SECONDS <= len(audio_N) / SAMPLE_RATE <= MAX_SECONDS:
            continue
        name = "chatter/" + "_".join(path.relative_to(source).with_suffix("").parts) + ".flac"
        temporary = out_dir / f"{name}.{os.getpid()}.tmp"
        soundfile.write(temporary, audio_N, SAMPLE_RATE, format="FLAC", subtype="PCM_16")
        os.replace(temporary, out_dir / name)
        names.append(name)
    listing.write_text("\n".join(names) + "\n")
    return names, []
