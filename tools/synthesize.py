"""Speak many sentences: JSONL of {id, text, voice, speed, pitch} -> FLAC files and an append-only manifest.

Run as::

    python tools/synthesize.py requests.jsonl cache/corpus --workers 2
    python tools/synthesize.py requests.jsonl cache/corpus --workers 2 --max-seconds 1800   # stop after half an hour

Every further field of a request is copied to its manifest line ({id, file, text, voice, speed, pitch, seconds, ...};
`file` is relative to the output directory).  A clip is skipped when the manifest has its id, so a killed job goes on
where it stopped; the manifest may be read while it grows.  Each worker is one process with one ONNX thread.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tqdm import tqdm

from wearllama.data.voices import SAMPLE_RATE, clip_id, get_voice, synthesize, write_clip


def read_requests(path: Path) -> list[dict[str, Any]]:
    """Read requests, checking each voice; fills in id, speed and pitch.  Raises ValueError naming the line."""
    requests = []
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        if not line.strip():
            continue
        try:
            request = json.loads(line)
            get_voice(request["voice"])
            request.setdefault("speed", 1.0)
            request.setdefault("pitch", 1.0)
            request.setdefault("id", clip_id(request["text"], request["voice"], request["speed"], request["pitch"]))
        except (json.JSONDecodeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path}, line {number}: {type(error).__name__}: {error}") from error
        requests.append(request)
    return requests


def finished_ids(manifest: Path) -> set[str]:
    """Ids in the manifest; a last line cut short by a kill is dropped from the file first."""
    if not manifest.is_file():
        return set()
    data = manifest.read_bytes()
    if data and not data.endswith(b"\n"):
        data = data[: data.rfind(b"\n") + 1]
        with manifest.open("r+b") as handle:
            handle.truncate(len(data))
    return {json.loads(line)["id"] for line in data.splitlines()}


def speak_one(job: tuple[dict[str, Any], str]) -> dict[str, Any]:
    """Synthesise one request into its file (atomic); returns the manifest line, with `error` where it failed."""
    request, out_dir = job
    relative = Path("wav") / request["voice"].replace("/", "_") / f"{request['id']}.flac"
    try:
        audio_N = synthesize(request["text"], request["voice"], speed=request["speed"], pitch=request["pitch"])
    except Exception as error:  # one bad sentence must not end a job of hours
        return {"id": request["id"], "error": f"{type(error).__name__}: {error}"}
    write_clip(Path(out_dir) / relative, audio_N)
    return {**request, "file": str(relative), "seconds": round(len(audio_N) / SAMPLE_RATE, 3)}


def synthesize_all(
    requests: list[dict[str, Any]], out_dir: Path, *, workers: int = 2, max_seconds: float | None = None
) -> Iterator[dict[str, Any]]:
    """Speak what the manifest lacks, append each result to it, yield the failures."""
    out_dir.mkdir(parents=True, exist_ok=True)
    manifest = out_dir / "manifest.jsonl"
    done = finished_ids(manifest)
    todo = [(request, str(out_dir)) for request in requests if request["id"] not in done]
    started = time.monotonic()
    with (
        ExitStack() as stack,
        manifest.open("a") as handle,
        tqdm(total=len(requests), initial=len(requests) - len(todo), unit="clip", smoothing=0.05) as bar,
    ):
        if workers:
            pool = stack.enter_context(multiprocessing.get_context("spawn").Pool(workers))
            rows = pool.imap_unordered(speak_one, todo)
        else:
            rows = map(speak_one, todo)
        for row in rows:
            if "error" in row:
                yield row
            else:
                # One write per line: several jobs may append to the same manifest.
                handle.write(json.dumps(row, ensure_ascii=False) + "\n")
                handle.flush()
            bar.update()
            if max_seconds is not None and time.monotonic() - started > max_seconds:
                break  # leaving the pool's context ends its processes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("requests", type=Path, help="JSONL of {text, voice[, id, speed, pitch, ...]}")
    parser.add_argument("out_dir", type=Path)
    parser.add_argument("--workers", type=int, default=2, help="processes; 0 speaks in this one")
    parser.add_argument("--max-seconds", type=float, help="stop (resumable) after so many seconds")
    args = parser.parse_args()
    failures = list(
        synthesize_all(read_requests(args.requests), args.out_dir, workers=args.workers, max_seconds=args.max_seconds)
    )
    for row in failures[:10]:
        print(f"failed {row['id']}: {row['error']}")
    print(f"{args.out_dir / 'manifest.jsonl'}: {len(finished_ids(args.out_dir / 'manifest.jsonl'))} clips")
    if failures:
        raise SystemExit(f"{len(failures)} clips failed")


if __name__ == "__main__":
    main()
