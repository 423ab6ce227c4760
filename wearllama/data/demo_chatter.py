"""Real recordings in the demo: speech that bystanders say in training's scenes, and music as noise."""

from pathlib import Path

import soundfile
from tqdm import tqdm

from wearllama.atomic import write_text
from wearllama.data.assets import AssetError, AssetUnavailable, fetch
from wearllama.data.voices import SAMPLE_RATE, resample, trim_silence, write_clip
from wearllama.simulation.noise import synthesised_loop

ASSET = "asterisk_en"
MUSIC = "music"
MUSIC_SECONDS = 60.0
SYNTHESISED = "music/synthesised.flac"
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
        write_clip(out_dir / name, audio_N)
        names.append(name)
    write_text(listing, "\n".join(names) + "\n")
    return names, []


def noise_folders(out_dir: Path) -> tuple[dict[str, Path], list[str]]:
    """Folders of recorded noise, ``out_dir/noise/train`` and ``.../eval``: no piece of music is in both.

    Where the recordings cannot be had, music is synthesised in their place; sentences about it are returned as well.
    """
    folders = {split: out_dir / "noise" / split for split in ("train", "eval")}
    for folder in folders.values():
        (folder / "music").mkdir(parents=True, exist_ok=True)
    try:
        source = fetch(MUSIC)
    except (AssetUnavailable, AssetError) as error:
        for variant, folder in enumerate(folders.values()):
            write_clip(folder / SYNTHESISED, 0.1 * synthesised_loop("Music", variant))
        return folders, [f"music is synthesised, not recorded: {error}"]
    for folder in folders.values():
        (folder / SYNTHESISED).unlink(missing_ok=True)
    pieces = sorted(path for path in source.rglob("*") if path.suffix in (".wav", ".flac"))
    for number, path in enumerate(pieces):
        target = folders["eval" if number % 5 in (1, 3) else "train"] / "music" / f"{path.stem}.flac"
        if target.is_file():
            continue
        rate = soundfile.info(str(path)).samplerate
        audio, _ = soundfile.read(path, frames=int(MUSIC_SECONDS * rate), dtype="float32", always_2d=True)
        write_clip(target, resample(audio[:, 0], rate))
    return folders, []
