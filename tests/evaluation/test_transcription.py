"""Word error rates: rows that ask for words, the counts, their intervals, and the launcher's way to a page."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from wearllama.data.manifest import Example, read_manifest, write_manifest
from wearllama.data.transcription_rows import ask_for_words
from wearllama.evaluation import transcription
from wearllama.evaluation.commands import RunCommand, run_benchmark
from wearllama.evaluation.harness import HarnessConfig
from wearllama.evaluation.intervals import error_rate_of, relative_reduction
from wearllama.evaluation.predictions import Prediction
from wearllama.evaluation.report import read_run
from wearllama.evaluation.table import cell
from wearllama.evaluation.wearvox import WearVoxConfig, load_wearvox


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
    outcomes = transcription.score(asked, said(asked, ["set an alarm for seven", "call and", "[Mute]", "no"], ("d",)))
    assert [(o.values["errors"], o.values["words"]) for o in outcomes] == [(0, 5), (1, 2), (3, 3), (1, 1)]
    found = transcription.summarise(outcomes)
    assert cell(found["rates"]["wer"].to_dict()).startswith("45.5 % [") and found["rates"]["exact"].hits == 1
    assert found["by_noise_type"]["wind"].errors == 0 and found["by_noise_type"]["not recorded"].total == 6
    assert found["actions"]["asr"]["mute"] == 1


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


def test_the_tool_writes_training_rows(load_script, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_manifest(tmp_path / "rows.jsonl", [heard("a", "Stop"), heard("b", None)])
    tool = load_script("tools", "make_asr")
    tool.main.__wrapped__(tool.MakeAsr(manifest=str(tmp_path / "rows.jsonl"), out=str(tmp_path / "asr.jsonl")))
    (row,) = read_manifest(tmp_path / "asr.jsonl")
    assert row.target == "Stop" and "1 rows of transcription, of 2 rows" in capsys.readouterr().out
