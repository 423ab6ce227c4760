"""Pseudo-labels of the packaged Whisper-base, and the cut of long recordings into sentences by voice activity.

Shapes: N samples at 16 kHz.
"""

from collections.abc import Iterator

import numpy as np
import torch

from wearllama.data.assets import fetch
from wearllama.data.text_checks import repeats_itself
from wearllama.data.voices import SAMPLE_RATE
from wearllama.data.whisper_teacher import load_teacher

LONGEST_S = 28.0
"""What Whisper hears at once, with some silence behind it."""


class Labeller:
    """Whisper-base on short clips: the encoder sees the clip and two seconds, not 30, which is four times faster.

    Without its usual silence Whisper now and then repeats itself: such labels are taken again with the 30 s.
    """

    def __init__(self, language: str, cache_dir: str | None, threads: int) -> None:
        import ctranslate2
        from tokenizers import Tokenizer

        torch.set_num_threads(threads)
        root = fetch("whisper_base", cache_dir)
        self.teacher = load_teacher(cache_dir=cache_dir)
        self.model = ctranslate2.models.Whisper(str(root), compute_type="int8", intra_threads=threads)
        self.tokenizer = Tokenizer.from_file(str(root / "tokenizer.json"))
        names = ("<|startoftranscript|>", f"<|{language}|>", "<|transcribe|>", "<|notimestamps|>")
        self.prompt = [self.tokenizer.token_to_id(name) for name in names]

    def __call__(self, audio_N: np.ndarray) -> tuple[str, float]:
        """(N,) at 16 kHz, at most 28 s -> text and mean log-probability a token."""
        text, score = self._transcribe(audio_N, (len(audio_N) + 2 * SAMPLE_RATE) // 640 * 640)
        if repeats_itself(text) or score < -0.5:
            text, score = self._transcribe(audio_N, 30 * SAMPLE_RATE)
        return text, score

    def _transcribe(self, audio_N: np.ndarray, samples: int) -> tuple[str, float]:
        import ctranslate2

        padded_BN = torch.zeros(1, samples)
        padded_BN[0, : len(audio_N)] = torch.from_numpy(audio_N)
        features = ctranslate2.StorageView.from_array(np.ascontiguousarray(self.teacher(padded_BN).numpy()))
        limit = len(self.prompt) + 16 + 8 * len(audio_N) // SAMPLE_RATE
        result = self.model.generate(features, [self.prompt], beam_size=2, max_length=limit, return_scores=True)[0]
        return self.tokenizer.decode(result.sequences_ids[0]).strip(), result.scores[0]


def speech_spans(audio_N: np.ndarray, *, max_seconds: float, join_s: float = 0.6) -> Iterator[tuple[int, int]]:
    """Start and end (samples) of the pieces of a recording in which somebody speaks.

    Neighbouring stretches of speech (Silero's VAD, as faster-whisper packs it) are joined over pauses of at most
    ``join_s`` while a piece stays within ``max_seconds``.
    """
    from faster_whisper.vad import VadOptions, get_speech_timestamps

    options = VadOptions(max_speech_duration_s=max_seconds, min_silence_duration_ms=200, speech_pad_ms=120)
    start = end = -1
    for stretch in get_speech_timestamps(audio_N, options):
        first, last = int(stretch["start"]), int(stretch["end"])
        if start >= 0 and first - end <= join_s * SAMPLE_RATE and last - start <= max_seconds * SAMPLE_RATE:
            end = last
            continue
        if start >= 0:
            yield start, end
        start, end = first, last
    if start >= 0:
        yield start, end
