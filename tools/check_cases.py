"""Run a folder of file and action cases against what they expect; print a table.

Run as:  python tools/check_cases.py CASES

CASES holds ``audio/expected.json`` ({file: {"want": words}}) beside its files, and ``actions.jsonl`` ({dialect, text,
kind, calls}).  An audio case's words are read like this: "error ..." must raise, "reads ..." must not; "(5, 16000)" is
the shape; "warning" must warn; every other number must stand in the message.  Exit status 1 if any case differs.
"""

import argparse
import json
import re
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tqdm import tqdm

from wearllama.audio.frontend import LogMel
from wearllama.audio.io import AudioError, read_audio
from wearllama.audio.timebase import num_embeddings
from wearllama.data.actions import parse_action

MICS = 5
OTHER_MICS = {"easycom4": 4, "aria7": 7}


class Outcome(NamedTuple):
    """One case: what was wanted and what came."""

    case: str
    wanted: str
    found: str
    matches: bool


def check_audio(folder: Path) -> Iterator[Outcome]:
    """Each file of ``folder/expected.json``, read for a five-microphone array."""
    for name, expected in json.loads((folder / "expected.json").read_text()).items():
        found, matches = _read_as(folder / name, expected["want"])
        yield Outcome(name, expected["want"], found.replace(f"{folder}/", ""), matches)


def check_actions(path: Path) -> Iterator[Outcome]:
    """Each line of ``actions.jsonl``, through the one parser."""
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        case = json.loads(line)
        action = parse_action(case["text"], case["dialect"])
        calls = [{"name": call.name, "arguments": call.arguments} for call in action.calls]
        wanted_calls = [
            {"name": call["name"], "arguments": call.get("arguments", call.get("parameters", call.get("params", {})))}
            for call in case.get("calls") or []
        ]
        matches = action.kind == case["kind"] and (action.kind != "tool" or calls == wanted_calls)
        wanted = f"{case['kind']} {wanted_calls or ''} {case.get('why', '')}".strip()
        yield Outcome(f"{path.name}:{number}", wanted, f"{action.kind} {calls or ''}".strip(), matches)


def _read_as(path: Path, want: str) -> tuple[str, bool]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            audio_CN = read_audio(path, channels=MICS)
        except AudioError as error:
            others = [mics for name, mics in OTHER_MICS.items() if f"reads for {name}" in want]
            readable = all(read_audio(path, channels=mics).shape[0] == mics for mics in others)
            return str(error), want.startswith("error") and readable and _numbers(want) <= _numbers(str(error))
    embeddings = num_embeddings(audio_CN.shape[1], 1)
    found = f"{tuple(audio_CN.shape)} {audio_CN.dtype}, {embeddings} embedding(s) a channel"
    found += "".join(f"; warning: {warning.message}" for warning in caught)
    return found, _reading_matches(found, want, embeddings, len(LogMel()(audio_CN)[0]))


def _reading_matches(found: str, want: str, embeddings: int, mel_frames: int) -> bool:
    if "one padded frame" in want:
        return embeddings == mel_frames == 1
    if "one embedding" in want:
        return embeddings == 1
    shape = re.search(r"\(\d+, \d+\)", want)
    warned = "warning" in found
    words = [word for word in ("silent", "clipped", "float32") if word in want]
    return (
        want.startswith("reads")
        and (shape is None or shape[0] in found)
        and warned == ("warning" in want)
        and all(word in found for word in words)
        and (not warned or _numbers(want) <= _numbers(found))
    )


def _numbers(text: str) -> set[str]:
    return set(re.findall(r"\d+", text))


def main() -> int:
    """Check every case under the folder given; 1 if any differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", type=Path, help="folder with audio/expected.json and actions.jsonl")
    cases: Path = parser.parse_args().cases
    parts = [(check_audio, cases / "audio"), (check_actions, cases / "actions.jsonl")]
    missing = [str(path) for _, path in parts if not path.exists()]
    if missing:
        parser.error(f"no cases at {', '.join(missing)}")
    outcomes = [outcome for check, path in parts for outcome in tqdm(check(path), desc=path.name, unit="case")]
    for outcome in outcomes:
        print(f"{'ok  ' if outcome.matches else 'DIFF'} {outcome.case:24} wanted {outcome.wanted[:70]!r}")
        print(f"{'':29} found  {outcome.found[:150]!r}")
    wrong = sum(not outcome.matches for outcome in outcomes)
    print(f"{len(outcomes)} cases, {wrong} differ")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
