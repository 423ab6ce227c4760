# ruff: noqa: RUF001  (phonetic symbols are meant)
"""Kokoro-82M (int8 ONNX) in English: text -> phonemes (eSpeak NG) -> tokens -> 24 kHz waveform."""

from __future__ import annotations

import json
import os
import re
from functools import lru_cache
from typing import Any

import numpy as np

from wearllama.data.assets import fetch
from wearllama.data.onnx_matmul import faster_model

SAMPLE_RATE = 24000
VOICES: tuple[str, ...] = (
    "af_alloy", "af_aoede", "af_bella", "af_heart", "af_jessica", "af_kore", "af_nicole", "af_nova", "af_river",
    "af_sarah", "af_sky", "am_adam", "am_echo", "am_eric", "am_fenrir", "am_liam", "am_michael", "am_onyx",
    "am_puck", "am_santa", "bf_alice", "bf_emma", "bf_isabella", "bf_lily", "bm_daniel", "bm_fable", "bm_george",
    "bm_lewis",
)  # fmt: skip
"""First letter: a = US, b = GB; second: f, m."""
_MAX_TOKENS = 500
_CURRENCY = re.compile(r"\$(\d+(?:\.\d+)?)")


def speak(
    text: str,
    voice: str,
    *,
    speed: float = 1.0,
    cache_dir: str | os.PathLike[str] | None = None,
    threads: int = 1,
) -> tuple[np.ndarray, int]:
    """Speak English text; returns ((N,) float32, 24000).  Long texts are cut at 500 phonemes' sentence ends.

    Voice ``one+other`` is a speaker who is none of them: the mean of their style vectors, the first one's accent.
    """
    root = str(cache_dir) if cache_dir else None
    session, vocabulary = _model(root, threads)
    style_PD = _style(root, voice)
    pieces = []
    for chunk in _chunks(phonemize(text, "en-us" if voice[0] == "a" else "en-gb")):
        tokens = [vocabulary[symbol] for symbol in chunk if symbol in vocabulary]
        feeds = {
            "tokens": np.array([[0, *tokens, 0]], dtype=np.int64),
            "style": style_PD[min(len(tokens), len(style_PD)) - 1][None],
            "speed": np.array([speed], dtype=np.float32),
        }
        pieces.append(np.asarray(session.run(None, feeds)[0], dtype=np.float32).ravel())
    return np.concatenate(pieces), SAMPLE_RATE


def phonemize(text: str, language: str) -> str:
    """English text -> the IPA that Kokoro was trained on (stress marks, punctuation kept)."""
    text = _CURRENCY.sub(r"\1 dollars", text).replace("’", "'").replace("“", '"').replace("”", '"')
    ipa = _phonemizer(language).phonemize([text], strip=True)[0]
    for found, wanted in (("ʲ", "j"), ("r", "ɹ"), ("x", "k"), ("ɬ", "l")):
        ipa = ipa.replace(found, wanted)
    if language == "en-us":
        ipa = re.sub(r"(?<=nˈaɪn)ti(?!ː)", "di", ipa)
    return ipa.strip()


def _chunks(ipa: str) -> list[str]:
    chunks, current = [], ""
    for piece in re.split(r"(?<=[.!?;:,])\s+", ipa):
        if current and len(current) + len(piece) > _MAX_TOKENS:
            chunks.append(current)
            current = ""
        current = f"{current} {piece}".strip()
    return [chunk[:_MAX_TOKENS] for chunk in [*chunks, current]]


@lru_cache(maxsize=2)
def _phonemizer(language: str) -> Any:
    import espeakng_loader
    from phonemizer.backend import EspeakBackend
    from phonemizer.backend.espeak.wrapper import EspeakWrapper

    EspeakWrapper.set_library(espeakng_loader.get_library_path())
    EspeakWrapper.set_data_path(espeakng_loader.get_data_path())
    return EspeakBackend(language, preserve_punctuation=True, with_stress=True)


@lru_cache(maxsize=2)
def _model(cache_dir: str | None, threads: int) -> tuple[Any, dict[str, int]]:
    import onnxruntime

    root = fetch("kokoro", cache_dir)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        faster_model(root / "kokoro-v1.0.int8.onnx"), sess_options=options, providers=["CPUExecutionProvider"]
    )
    return session, json.loads((root / "vocab.json").read_text())["vocab"]


@lru_cache(maxsize=64)
def _style(cache_dir: str | None, voice: str) -> np.ndarray:
    if "+" in voice:
        return np.mean([_style(cache_dir, part) for part in voice.split("+")], axis=0)
    data = np.fromfile(fetch("kokoro", cache_dir) / "voices" / f"{voice}.bin", dtype=np.float32)
    return data.reshape(-1, 256)
