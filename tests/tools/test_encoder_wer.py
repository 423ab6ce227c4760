"""tools/encoder_wer.py: the packaged encoder's own words by channel, the oracle, and encoders that cannot be asked."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from wearllama.audio.io import read_audio, write_audio
from wearllama.data.manifest import Example, write_manifest
from wearllama.evaluation import encoder_words
from wearllama.evaluation.encoder_words import HEARD, ORACLE, Heard, StoredRecogniser
from wearllama.modeling.encoder_io import PACKAGED, stored_head

SPEECH = Path(__file__).resolve().parents[1] / "fixtures" / "speech"
TRANSCRIPTS: dict[str, str] = json.loads((SPEECH / "transcripts.json").read_text())
QUIET = 1e-3
"""What c_1 hears of the clip: too little for words."""


@pytest.fixture(scope="module")
def tool(load_script: Any) -> Any:
    return load_script("tools", "encoder_wer")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three rows of clear speech for all microphones but c_1, one of them with a beam that heard nothing."""
    folder, rows = tmp_path_factory.mktemp("spoken"), []
    for number, name in enumerate(sorted(TRANSCRIPTS)[:3]):
        clip_N = torch.nn.functional.pad(read_audio(SPEECH / name)[0] * 0.1, (1600, 4800))
        levels_M1 = torch.tensor([1.0, QUIET, 1.0, 1.0, 1.0])[:, None]
        write_audio(folder / f"{number}.wav", clip_N * levels_M1)
        silent = number == 2
        write_audio(folder / f"beam{number}.wav", clip_N[None] * (0.0 if silent else 1.0))
        rows.append(spoken(f"row-{number}", {"mc": f"{number}.wav", "beam": f"beam{number}.wav"}, TRANSCRIPTS[name]))
    write_manifest(folder / "rows.jsonl", [*rows, spoken("wordless", {"mc": "0.wav", "beam": None}, None)])
    return folder / "rows.jsonl"


def spoken(name: str, audio: dict[str, str | None], words: str | None) -> Example:
    turn = {"role": "user", "content": [{"type": "audio"}]}
    return Example(id=name, task="asr", split="test", messages=[turn], target="x", audio=audio,
                   metadata={"transcript": words})  # fmt: skip


@pytest.mark.filterwarnings("ignore::wearllama.audio.io.AudioWarning")
def test_rates_by_channel(tool: Any, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tool.main.__wrapped__(tool.EncoderWer(data=str(data), out=str(tmp_path), device="cpu"))
    found = json.loads((tmp_path / "results.json").read_text())
    assert (found["recordings"], found["recordings_without_transcript"]) == (3, 1)
    systems = found["systems"]
    assert list(systems) == ["c_x", "c_0", "c_x-c_0", "c_0-c_1", "c_x-c_1", ORACLE]
    errors = {name: {row: pair[0] for row, pair in s["errors_and_words"].items()} for name, s in systems.items()}
    assert systems["c_0"]["wer"]["rate"] < 0.35  # as in tests/modeling/test_packaged_encoder.py
    assert errors["c_x"]["row-0"] == errors["c_0"]["row-0"] and found["words"]["row-0"]["c_x"]
    assert found["words"]["row-2"]["c_x"] == "" and errors["c_x"]["row-2"] > errors["c_0"]["row-2"]
    assert errors[ORACLE] == {row: min(errors["c_x"][row], errors["c_0"][row]) for row in errors["c_x"]}
    assert systems["c_0"]["fewer_errors_than_c_x"]["mean"] > 0.3
    printed = capsys.readouterr().out
    assert "fewer errors than c_x" in printed and ORACLE in printed


def test_the_designed_beam_stands_in_for_recorded_ones(tool: Any, data: Path, tmp_path: Path) -> None:
    tool.main.__wrapped__(tool.EncoderWer(data=str(data), out=str(tmp_path), device="cpu", beam="design"))
    assert json.loads((tmp_path / "results.json").read_text())["words"]["row-2"]["c_x"] != ""


def test_counts_become_rates() -> None:
    def heard(beam: int, microphone: int) -> Heard:
        counts = {"c_x": (beam, 4), "c_0": (microphone, 4), ORACLE: (min(beam, microphone), 4)}
        return Heard(dict.fromkeys(counts, ""), counts)

    systems = encoder_words.results({"a": heard(2, 0), "b": heard(2, 3)})
    assert systems[ORACLE]["wer"]["errors"] == 2 and systems[ORACLE]["fewer_errors_than_c_x"]["mean"] == 0.5
    assert systems["c_0"]["errors_and_words"] == {"a": [0, 4], "b": [3, 4]}
    faultless = encoder_words.results({"a": heard(0, 1)})
    assert faultless["c_0"]["fewer_errors_than_c_x"] is None
    assert encoder_words.table_of(faultless).rows[1][2] == "-"


def test_averaging_one_channel_with_itself_changes_nothing() -> None:
    recogniser = StoredRecogniser("packaged", device="cpu")
    clip_N = read_audio(SPEECH / sorted(TRANSCRIPTS)[0])[0] * 0.1
    both_CLV = recogniser.distributions(torch.stack([clip_N, clip_N]))
    assert torch.allclose(both_CLV.sum(-1), torch.ones(both_CLV.shape[:2]), atol=1e-4)
    assert recogniser.words(both_CLV.mean(0)) == recogniser.words(both_CLV[0]) != ""
    assert all(len(names) <= 2 for names in HEARD)


def test_what_cannot_be_asked_is_refused(tool: Any, data: Path, tmp_path: Path) -> None:
    bare = {name: value for name, value in load_file(PACKAGED / "encoder.safetensors").items() if "head" not in name}
    save_file(bare, tmp_path / "encoder.safetensors")
    with pytest.raises(ValueError, match=r"has no piece_head\.weight with its bias"):
        stored_head(tmp_path / "encoder.safetensors")
    write_manifest(tmp_path / "rows.jsonl", [spoken("wordless", {"mc": "0.wav", "beam": None}, None)])
    with pytest.raises(ValueError, match="none of 1 rows has both sound and a transcript"):
        tool.main.__wrapped__(tool.EncoderWer(data=str(tmp_path / "rows.jsonl")))
    with pytest.raises(ValueError, match="limit is 0"):
        tool.EncoderWer(limit=0)
