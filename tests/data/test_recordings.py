"""G.722 decoding, the labels' repetition guard, transcripts of read speech."""

from pathlib import Path

import numpy as np
import pytest
import soundfile

from wearllama.data.recordings import SAMPLE_RATE, decode_g722_tree, read_g722

av = pytest.importorskip("av")


@pytest.fixture
def tool(load_script):
    return load_script("tools", "label_speech")


def _write_g722(path: Path, seconds: float = 0.5, hz: float = 1000.0) -> np.ndarray:
    tone_N = 0.4 * np.sin(2 * np.pi * hz * np.arange(int(seconds * SAMPLE_RATE)) / SAMPLE_RATE)
    with av.open(str(path), "w", format="g722") as container:
        stream = container.add_stream("g722", rate=SAMPLE_RATE, layout="mono")
        for start in range(0, len(tone_N), 320):
            frame = av.AudioFrame.from_ndarray(
                (tone_N[None, start : start + 320] * 32767).astype(np.int16), format="s16", layout="mono"
            )
            frame.sample_rate, frame.pts = SAMPLE_RATE, start
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return tone_N


def test_g722_comes_back_at_16_khz(tmp_path):
    tone_N = _write_g722(tmp_path / "tone.g722")
    audio_N = read_g722(tmp_path / "tone.g722")
    assert audio_N.dtype == np.float32 and abs(len(audio_N) - len(tone_N)) <= 320
    peak_hz = np.argmax(np.abs(np.fft.rfft(audio_N))) * SAMPLE_RATE / len(audio_N)
    assert peak_hz == pytest.approx(1000, abs=5)
    assert np.std(audio_N) == pytest.approx(0.4 / np.sqrt(2), rel=0.05)


def test_tree_becomes_flac(tmp_path):
    (tmp_path / "digits").mkdir()
    _write_g722(tmp_path / "digits" / "1.g722", 0.2)
    assert decode_g722_tree(tmp_path) == 1
    assert [p.name for p in tmp_path.rglob("*.*")] == ["1.flac"]
    assert soundfile.info(tmp_path / "digits" / "1.flac").samplerate == SAMPLE_RATE


def test_empty_file_is_named(tmp_path):
    (tmp_path / "none.g722").write_bytes(b"")
    with pytest.raises(ValueError, match=r"none\.g722"):
        read_g722(tmp_path / "none.g722")


@pytest.mark.parametrize(
    ("text", "looping"),
    [
        ("Agent logged off. Agent logged off. Agent", True),
        ("Please enter your password, followed by the pound key.", False),
        ("That that is, is.", False),
        ("no no no", False),
    ],
)
def test_loops_are_noticed(tool, text, looping):
    assert tool.repeats_itself(text) is looping


def test_read_speech_takes_its_own_transcript(tool, tmp_path, monkeypatch):
    folder = tmp_path / "asset" / "librivox"
    folder.mkdir(parents=True)
    soundfile.write(folder / "austen-0880.wav", np.full(SAMPLE_RATE, 0.1), SAMPLE_RATE)
    (folder / "transcription").write_text("<s> he was not ill disposed </s> (austen-0880)\n")
    monkeypatch.setattr(tool, "fetch", lambda name, cache: tmp_path / "asset")
    for _ in range(2):
        tool.librivox(tmp_path / "out", None)
    (line,) = (tmp_path / "out" / "manifest.jsonl").read_text().splitlines()
    assert '"text": "he was not ill disposed"' in line and '"seconds": 1.0' in line
