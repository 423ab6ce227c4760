"""Recordings without words -> clips with Whisper's: cut by voice activity, labelled, unsure and repeated ones left out.

Takes a corpus in any layout of tools/import_speech.py; where it has transcripts they are kept beside the labels and the
word error rate of what was kept is printed. A killed run goes on where it stopped.

Run as: python tools/pseudo_label.py source.layout=folder source.root=recordings out_dir=speech/labelled
        python tools/pseudo_label.py source.layout=table source.root=speech_en/manifest.jsonl out_dir=en limit=300
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jiwer
import numpy as np
import torch

from wearllama.audio.io import write_audio
from wearllama.audio.timebase import SAMPLE_RATE
from wearllama.data.corpora import Recording
from wearllama.data.corpus_job import CorpusJob, for_each_recording
from wearllama.data.labeller import LONGEST_S, Labeller, speech_spans
from wearllama.data.speech_rows import MANIFEST, SpeechManifest, read_mono, read_rows, safe_name
from wearllama.data.text_checks import repeats_itself, word_normaliser
from wearllama_launch import launch


@dataclass(kw_only=True)
class PseudoLabel(CorpusJob):
    max_seconds: float = 15.0
    """Longer recordings are cut by voice activity."""
    min_seconds: float = 0.4
    min_logprob: float = -0.8
    """Mean log-probability a token below which a label is not believed."""
    per_text: int = 3
    """Clips of one voice that may say the same words."""
    threads: int = 1
    cache_dir: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1.0 <= self.max_seconds <= LONGEST_S:
            raise ValueError(f"max_seconds is {self.max_seconds}, wanted 1 to {LONGEST_S}")


@launch("pseudo_label", PseudoLabel)
def main(config: PseudoLabel) -> None:
    out_dir = Path(config.out_dir)
    verdicts = SpeechManifest(out_dir / "labels.jsonl")  # of every piece, kept or not: nothing is labelled twice
    label = Labeller(config.source.language, config.cache_dir, config.threads)
    name = config.source_name

    def judge(recording: Recording) -> None:
        for piece in label_recording(recording, config, label, out_dir, verdicts.ids):
            verdicts.append(piece | {"source": name, "voice": f"{name}/{recording.speaker}"})

    for_each_recording(config, judge)
    write_kept(out_dir, config)


def label_recording(
    recording: Recording, config: PseudoLabel, label: Labeller, out_dir: Path, known: set[str]
) -> Iterator[dict[str, Any]]:
    """The pieces of a recording that are not known yet, each with its label; files are written before lines."""
    if recording.id in known or f"{recording.id}-end" in known:
        return
    audio_N = read_mono(recording.path, config.source.several_channels).numpy()
    whole = len(audio_N) <= config.max_seconds * SAMPLE_RATE
    spans = [(0, len(audio_N))] if whole else list(speech_spans(audio_N, max_seconds=config.max_seconds))
    for index, (start, end) in enumerate(spans):
        row_id = recording.id if whole else f"{recording.id}-{index:04d}"
        if row_id not in known:
            yield label_piece(row_id, audio_N[start:end], recording, recording.text if whole else None, label, out_dir)
    if not whole:
        yield {"id": f"{recording.id}-end", "text": "", "logprob": 0.0, "seconds": 0.0}


def label_piece(
    row_id: str, piece_N: np.ndarray, recording: Recording, text: str | None, label: Labeller, out_dir: Path
) -> dict[str, Any]:
    """Label one piece and write its clip."""
    guess, logprob = ("", 0.0)
    if len(piece_N) > 0.2 * SAMPLE_RATE and np.abs(piece_N).max() >= 0.01:
        guess, logprob = label(piece_N)
    relative = Path("wav") / safe_name(recording.speaker) / f"{safe_name(row_id)}.flac"
    write_audio(out_dir / relative, torch.from_numpy(piece_N)[None].clamp(-1, 1))
    row = {"id": row_id, "file": str(relative), "text": guess, "logprob": round(logprob, 3),
           "seconds": round(len(piece_N) / SAMPLE_RATE, 3), "language": recording.language}  # fmt: skip
    return row | ({"transcript": text} if text is not None else {})


def why_not(row: dict[str, Any], config: PseudoLabel) -> str | None:
    """Why a label is left out; None where it is kept."""
    if not any(letter.isalnum() for letter in row["text"]):
        return "no words"
    if row["seconds"] < config.min_seconds:
        return "too short"
    if row["logprob"] < config.min_logprob:
        return "unsure"
    if repeats_itself(row["text"]):
        return "repeats itself"
    return None


def write_kept(out_dir: Path, config: PseudoLabel) -> None:
    """manifest.jsonl of what is kept, from the verdicts; counts of what is not, and the word error rate."""
    rows = [row for row in read_rows(out_dir / "labels.jsonl") if "file" in row]
    (out_dir / MANIFEST).unlink(missing_ok=True)
    manifest, dropped, said = SpeechManifest(out_dir / MANIFEST), Counter[str](), Counter[tuple[str, str]]()
    normalise = word_normaliser(config.source.language)
    kept = []
    for row in rows:
        reason = why_not(row, config)
        if reason is None:
            key = (row["voice"], normalise(row["text"]))
            said[key] += 1
            reason = "said before" if said[key] > config.per_text else None
        if reason is not None:
            dropped[reason] += 1
            continue
        manifest.append(row)
        kept.append(row)
    hours = sum(row["seconds"] for row in kept) / 3600
    print(f"{manifest.path}: {len(kept)} of {len(rows)} clips, {hours:.2f} hours; left out: {dict(dropped)}")
    for what, chosen in (("all", rows), ("kept", kept)):
        pairs = [(normalise(row["transcript"]), normalise(row["text"])) for row in chosen if row.get("transcript")]
        pairs = [(wanted, heard) for wanted, heard in pairs if wanted]
        if pairs:
            rate = jiwer.wer([wanted for wanted, _ in pairs], [heard for _, heard in pairs])
            print(f"word error rate of {what} labels against {len(pairs)} transcripts: {rate:.1%}")


if __name__ == "__main__":
    main()
