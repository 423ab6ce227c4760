# ruff: noqa: RUF001  (phonetic symbols are meant)
"""Voices: names, splits, lengths.  Pico is always here (a wheel); the other engines where they are."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import soundfile

from wearllama.data import voices
from wearllama.data.assets import cache_root, is_complete, load_registry
from wearllama.data.voices import (
    EVAL_VOICES,
    SAMPLE_RATE,
    TRAIN_VOICES,
    VOICES,
    VoiceError,
    blended_from,
    synthesize,
    voices_of,
)

pytest.importorskip("py_nanotts")
needs_kokoro = pytest.mark.skipif(
    not is_complete(cache_root() / "kokoro", load_registry()["kokoro"]), reason="Kokoro has not been fetched"
)
needs_flite = pytest.mark.skipif(shutil.which("flite") is None, reason="no flite here")


def test_splits_are_disjoint_and_as_designed():
    assert not set(TRAIN_VOICES) & set(EVAL_VOICES)
    assert set(TRAIN_VOICES) | set(EVAL_VOICES) == set(VOICES)
    held_out = [VOICES[name] for name in EVAL_VOICES]
    assert sorted(v.gender for v in held_out) == ["f", "f", "m", "m"]
    assert {v.accent for v in held_out} == {"us", "gb"} and {v.engine for v in held_out} == {"kokoro"}
    assert len(voices_of("kokoro")) == 24


def test_pico_speaks_at_16_khz_trimmed_with_known_peak():
    audio_N = synthesize("Set an alarm for seven.", "pico/en-US")
    assert audio_N.dtype == np.float32 and audio_N.ndim == 1
    assert 0.8 < len(audio_N) / SAMPLE_RATE < 2.5
    assert np.abs(audio_N).max() == pytest.approx(voices.PEAK, rel=1e-4)
    head_N = audio_N[: SAMPLE_RATE // 25]
    assert np.sqrt(np.mean(head_N**2)) < 0.02


def test_speed_shortens_and_pitch_keeps_the_length():
    slow, fast = (synthesize("What is the weather in Paris?", "pico/en-GB", speed=s) for s in (0.85, 1.2))
    assert len(fast) / len(slow) == pytest.approx(0.85 / 1.2, rel=0.08)


def test_blends_name_their_voices_and_unknown_ones_are_refused():
    assert blended_from("kokoro/af_sky+am_liam") == ("kokoro/af_sky", "kokoro/am_liam")
    assert blended_from("espeak/en-gb+f1") == ("espeak/en-gb+f1",)
    blend = voices.get_voice("kokoro/bm_lewis+af_sky")
    assert (blend.engine, blend.accent, blend.voice) == ("kokoro", "gb", "bm_lewis+af_sky")
    for wrong in ("kokoro/af_sky+nobody", "kokoro/nobody+af_sky", "kokoro/af_sky+"):
        with pytest.raises(VoiceError, match="no voice"):
            voices.get_voice(wrong)


@needs_kokoro
def test_a_blend_is_another_speaker_than_either_of_its_voices():
    said = {v: synthesize("Call Anna.", f"kokoro/{v}") for v in ("af_sky", "am_onyx", "af_sky+am_onyx")}
    low, high = sorted(_centroid(said[voice]) for voice in ("af_sky", "am_onyx"))
    assert all(not np.array_equal(said["af_sky+am_onyx"], said[v]) for v in ("af_sky", "am_onyx"))
    assert 0.8 * low < _centroid(said["af_sky+am_onyx"]) < 1.2 * high


@needs_flite
def test_flite_pitch_moves_formants_not_the_length():
    plain, high = (synthesize("What is the weather in Paris?", "flite/slt", pitch=p) for p in (1.0, 1.2))
    assert len(high) == pytest.approx(len(plain), rel=0.05)
    assert _centroid(high) > 1.05 * _centroid(plain)


def _centroid(audio_N: np.ndarray) -> float:
    power_K = np.abs(np.fft.rfft(audio_N)) ** 2
    return float((power_K * np.arange(len(power_K))).sum() / power_K.sum() / len(audio_N))


def test_resampling_keeps_a_tone_where_it_was():
    tone_N = np.sin(2 * np.pi * 1000 * np.arange(24000) / 24000)
    out_N = voices.resample(tone_N, 24000)
    assert len(out_N) == SAMPLE_RATE
    assert np.argmax(np.abs(np.fft.rfft(out_N))) == 1000


def test_trim_leaves_50_ms():
    audio_N = np.zeros(SAMPLE_RATE, np.float32)
    audio_N[6400:8000] = 0.5
    assert len(voices.trim_silence(audio_N)) == 1600 + 2 * 800


@pytest.mark.parametrize(
    ("text", "voice", "speed", "message"),
    [
        ("hello", "kokoro/am_nobody", 1.0, "no voice 'kokoro/am_nobody'; known: kokoro/af_alloy"),
        ("hello", "nobody", 1.0, "known: espeak, flite, kokoro, pico"),
        ("  ", "pico/en-US", 1.0, "empty"),
        ("hello", "pico/en-US", 3.0, "speed 3.0"),
    ],
)
def test_bad_requests(text, voice, speed, message):
    with pytest.raises(VoiceError, match=message):
        synthesize(text, voice, speed=speed)


def test_cached_clip_is_made_once(tmp_path, monkeypatch):
    first = voices.synthesize_cached("Hello there.", "pico/en-US", cache_dir=tmp_path)
    monkeypatch.setattr(voices, "synthesize", lambda *a, **k: pytest.fail("spoke again"))
    assert voices.synthesize_cached("Hello there.", "pico/en-US", cache_dir=tmp_path) == first
    assert soundfile.info(first).samplerate == SAMPLE_RATE


@needs_kokoro
@pytest.mark.slow
def test_kokoro_speaks():
    audio_N = synthesize("Call my brother.", "kokoro/af_heart")
    assert 0.6 < len(audio_N) / SAMPLE_RATE < 2.5


@pytest.mark.skipif(not pytest.importorskip("phonemizer"), reason="no phonemizer")
def test_kokoro_phonemes():
    pytest.importorskip("espeakng_loader")
    from wearllama.data.tts_kokoro import phonemize

    assert phonemize("Send $30 to Maria!", "en-us").startswith("sˈɛnd θˈɜː")
    assert "dˈɑːlɚz" in phonemize("Send $30 to Maria!", "en-us")
    assert phonemize("car", "en-gb") != phonemize("car", "en-us")


@pytest.fixture
def tool(load_script: Callable[[str, str], ModuleType]) -> ModuleType:
    return load_script("tools", "synthesize")


def test_batch_tool_resumes_and_drops_a_torn_last_line(tool: ModuleType, tmp_path: Path, monkeypatch):
    out = tmp_path / "out"
    requests = tmp_path / "requests.jsonl"
    rows = [{"text": f"Number {n}.", "voice": "pico/en-US", "kind": "test"} for n in range(3)]
    requests.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert list(tool.synthesize_all(tool.read_requests(requests), out, workers=0)) == []
    manifest = out / "manifest.jsonl"
    lines = manifest.read_text().splitlines()
    assert len(lines) == 3
    row = json.loads(lines[0])
    assert row["kind"] == "test" and (out / row["file"]).is_file()
    manifest.write_text("\n".join(lines[:2]) + "\n" + lines[2][:20])
    spoken = []
    monkeypatch.setattr(tool, "synthesize", lambda text, *a, **k: spoken.append(text) or synthesize(text, *a, **k))
    list(tool.synthesize_all(tool.read_requests(requests), out, workers=0))
    assert spoken == ["Number 2."]
    assert manifest.read_text().splitlines() == lines


def test_batch_tool_reports_a_failure_and_goes_on(tool: ModuleType, tmp_path: Path):
    requests = [{"id": str(n), "text": text, "voice": "pico/en-US", "speed": 1.0, "pitch": 1.0}
                for n, text in enumerate(["  ", "Hello."])]  # fmt: skip
    (failure,) = tool.synthesize_all(requests, tmp_path, workers=0)
    assert failure["id"] == "0" and "empty" in failure["error"]
    assert tool.finished_ids(tmp_path / "manifest.jsonl") == {"1"}


def test_batch_tool_names_the_bad_line(tool: ModuleType, tmp_path: Path):
    requests = tmp_path / "requests.jsonl"
    requests.write_text('{"text": "a", "voice": "pico/en-US"}\n{"text": "b", "voice": "pico/xx"}\n')
    with pytest.raises(ValueError, match=r"requests\.jsonl, line 2: .*no voice 'pico/xx'"):
        tool.read_requests(requests)
