"""Word error rates: rows that ask for words, the counts, their intervals, and the launcher's way to a page."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from wearllama.audio.array import load_array
from wearllama.data.manifest import Example, read_manifest, write_manifest
from wearllama.data.spoken_examples import SceneDefaults
from wearllama.data.transcription_rows import ask_for_words
from wearllama.evaluation import transcription
from wearllama.evaluation.commands import RunCommand, run_benchmark
from wearllama.evaluation.harness import HarnessConfig
from wearllama.evaluation.intervals import error_rate_of, relative_reduction
from wearllama.evaluation.predictions import Prediction
from wearllama.evaluation.recordings import read_examples
from wearllama.evaluation.report import read_run
from wearllama.evaluation.table import cell
from wearllama.evaluation.wearvox import WearVoxConfig, load_wearvox
from wearllama.simulation.bank_config import BankConfig
from wearllama.simulation.build import build_bank
from wearllama.simulation.scenes import SceneConfig


def heard(name: str, words: str | None, **metadata: Any) -> Example:
    turn = {"role": "user", "content": [{"type": "audio"}]}
    told = {**metadata, **({"transcript": words} if words else {})}
    return Example(
        id=name, task="tool_call", split="test", messages=[turn], target="[Mute]",
        audio={"mc": f"{name}.wav", "beam": None}, metadata=told,
    )  # fmt: skip


def said(examples: list[Example], texts: list[str], errors: tuple[str, ...] = ()) -> list[Prediction]:
    return [
        Prediction(id=e.id, key="", task=e.task, model={}, prompt_hash="", generation={}, raw=text, action={},
                   **({"error": "no sound"} if e.id in errors else {}))
        for e, text in zip(examples, texts, strict=True)
    ]  # fmt: skip


def test_rows_that_ask_for_words() -> None:
    text = Example(id="t", task="tool_call", split="test", messages=[{"role": "user", "content": "Hi"}], target="x")
    (row,) = ask_for_words([heard("a", "Set an alarm."), heard("b", None), text], style="compact")
    assert (row.task, row.target, row.metadata["asked_as"]) == ("asr", "Set an alarm.", "tool_call")
    assert row.messages[0] == {"role": "system", "content": "Transcribe."} and row.audio == {
        "mc": "a.wav",
        "beam": None,
    }
    with pytest.raises(ValueError, match="none of 1 rows has both sound and a transcript"):
        ask_for_words([heard("b", None)], style="full")


def test_errors_are_counted_after_normalisation() -> None:
    rows = [heard("a", "Set an alarm for 7!"), heard("b", "Call Ann"), heard("c", "Stop it now"), heard("d", "No")]
    rows[0].metadata["acoustics"] = {"noise_type": "wind"}
    asked = ask_for_words(rows, style="compact")
    outcomes = transcription.score(
        asked, said(asked, ["set an alarm for seven", "call and", "[Mute]", "no"], ("asr-d",))
    )
    assert [(o.values["errors"], o.values["words"]) for o in outcomes] == [(0, 5), (1, 2), (3, 3), (1, 1)]
    found = transcription.summarise(outcomes)
    assert cell(found["rates"]["wer"].to_dict()).startswith("45.5 % [") and found["rates"]["exact"].hits == 1
    assert found["by_noise_type"]["wind"].errors == 0 and found["by_noise_type"]["not recorded"].total == 6
    assert found["actions"]["asr"]["mute"] == 1


def test_dictation_is_a_call_whose_text_counts() -> None:
    rows = [heard(name, 'Call Ann, she said "stop".') for name in "abcde"]
    asked = ask_for_words(rows, style="compact", ask="note")
    assert (asked[0].id, asked[0].task) == ("dictation-a", "dictation")
    system = asked[0].messages[0]["content"]
    assert "create_note" in system and "web_search" in system and system.endswith("The wearer dictates a note.")
    call = '<|TOOL|>[{"name": "create_note", "parameters": {"text": "call ann she said"}}]</|TOOL|>'
    other = call.replace("create_note", "web_search")
    outcomes = transcription.score(asked, said(asked, [asked[0].target, call, other, "[Mute]", "Call Ann"]))
    assert [o.values["errors"] for o in outcomes] == [0, 1, 5, 5, 5]
    assert transcription.summarise(outcomes)["actions"] == {"dictation": {"tool": 3, "mute": 1, "answer": 1}}


def test_intervals_follow_the_recordings() -> None:
    rng = np.random.default_rng(1)
    first = {str(n): (int(rng.binomial(10, 0.3)), 10) for n in range(400)}
    second = {name: (int(rng.binomial(errors, 0.8)), words) for name, (errors, words) in first.items()}
    whole = error_rate_of(list(first.values()))
    assert whole.interval.low < 0.3 < whole.interval.high and whole.interval.high - whole.interval.low < 0.05
    lower = relative_reduction(first, second)
    assert lower.interval.low < 0.2 < lower.interval.high and lower.interval.low > 0.1 and lower.total == 400
    assert relative_reduction(first, first).value == 0 and error_rate_of([]).total == 0
    with pytest.raises(ValueError, match="the same recordings"):
        relative_reduction(first, {})


def test_a_run_ends_in_a_page(ckpt: Path, wearvox_data: Path, tmp_path: Path) -> None:
    asked = ask_for_words(load_wearvox(wearvox_data, WearVoxConfig()), style="compact")
    command = RunCommand(
        ckpt=str(ckpt), max_new_tokens=4, device="cpu", controls=("silence",), clips=1, out=str(tmp_path),
        harness=HarnessConfig(progress=False, ttft_items=0), pair=("c_x-c_0", "c_0-c_1"),
    )  # fmt: skip
    pages = run_benchmark("asr", command, asked, root=wearvox_data, channels=5)
    results, clips = read_run(pages[0].parent)
    assert results["benchmark"] == "asr" and len(results["systems"]) == 2 and len(clips) == 1
    assert results["systems"][0]["rates"]["wer"]["total"] > 0 and "word error rate" in pages[0].read_text()
    assert len(pages) == 2


@pytest.fixture
def speech(tmp_path: Path) -> Path:
    """A speech manifest of two clips with words and one without."""
    folder = tmp_path / "data" / "mine"
    folder.mkdir(parents=True)
    rows = []
    for name, words in (("a b", "Stop it."), ("c", None), ("d", "Go on")):
        soundfile.write(folder / f"{name}.flac", 0.1 * np.sin(np.arange(16_000) / 20), 16_000)
        rows.append({"id": name, "file": f"{name}.flac", "text": words, "voice": "v", "seconds": 1.0, "language": "en"})
    (folder / "manifest.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def test_the_tool_writes_rows_of_other_rows(load_script, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_manifest(tmp_path / "rows.jsonl", [heard("a", "Stop"), heard("b", None)])
    tool = load_script("tools", "make_asr")
    tool.main.__wrapped__(tool.MakeAsr(manifest=str(tmp_path / "rows.jsonl"), out=str(tmp_path / "asr.jsonl")))
    (row,) = read_manifest(tmp_path / "asr.jsonl")
    assert (row.id, row.target) == ("asr-a", "Stop") and "1 rows of transcription, of 2 rows" in capsys.readouterr().out
    with pytest.raises(ValueError, match="one of them"):
        tool.MakeAsr(out="x")


def test_the_tool_writes_rows_of_clips(load_script, speech: Path, tmp_path: Path) -> None:
    tool = load_script("tools", "make_asr")
    out = tmp_path / "data" / "asr.jsonl"
    tool.main.__wrapped__(tool.MakeAsr(speech=str(speech), out=str(out), style="compact"))
    rows = read_manifest(out)
    assert [row.target for row in rows] == ["Stop it.", "Go on"] and rows[0].audio is not None
    (segment,) = rows[0].audio["mixture"]["segments"]
    assert (segment["file"], segment["role"]) == ("mine/a b.flac", "wearer")
    (speech / "manifest.jsonl").write_text((speech / "manifest.jsonl").read_text().splitlines()[1] + "\n")
    with pytest.raises(ValueError, match=r"none of 1 clips has words; tools/pseudo_label\.py"):
        tool.main.__wrapped__(tool.MakeAsr(speech=str(speech), out=str(out)))


def test_own_clips_become_a_benchmark(load_script, speech: Path, tmp_path: Path, ckpt: Path) -> None:
    scene = SceneConfig(wearer_poses=1, partners=1, bystanders=1, noises=1)
    config = BankConfig(train_rooms=0, eval_rooms=1, taps=1600, scene=scene)
    bank = build_bank(config, load_array("glasses5"), tmp_path / "bank", progress=False).path
    tool, out = load_script("tools", "make_asr"), tmp_path / "test" / "manifest.jsonl"
    settings = tool.MakeAsr(
        speech=str(speech), out=str(out), split="test", bank=str(bank), scenes=SceneDefaults(rooms="eval")
    )
    tool.main.__wrapped__(settings)
    rows = read_manifest(out)
    assert rows[0].audio == {"mc": "wav_mc/asr-a-b.wav", "beam": None} and rows[0].split == "test"
    assert soundfile.info(tmp_path / "test" / rows[0].audio["mc"]).channels == 5
    asr = load_script("eval", "asr")
    quiet = HarnessConfig(progress=False, ttft_items=0)
    command = asr.AsrCommand(ckpt=str(ckpt), data=str(out), out=str(tmp_path / "eval"), max_new_tokens=4, device="cpu",
                             controls=(), clips=1, harness=quiet, limit=1)  # fmt: skip
    asr.main.__wrapped__(command)
    (page,) = (tmp_path / "eval").rglob("results.json")
    assert read_run(page.parent)[0]["items"] == 1
    write_manifest(tmp_path / "recipes.jsonl", [replace(rows[0], audio={"mixture": {"segments": []}})])
    with pytest.raises(ValueError, match=r"1 rows are recipes \(first asr-a b\)"):
        read_examples(tmp_path / "recipes.jsonl", 5)
