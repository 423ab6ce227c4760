"""Judge with its fallback, adaptations around any adapter, paired test of two runs, measurements as words."""

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from wearllama.data.actions import answer, mute
from wearllama.data.manifest import Clip, Example
from wearllama.evaluation.acoustics import describe, measure
from wearllama.evaluation.adaptations import TEXTS, AdaptedAdapter
from wearllama.evaluation.compare import model_outcomes, paired_table
from wearllama.evaluation.evaluate import BENCHMARKS
from wearllama.evaluation.predictions import Prediction, PredictionLog, prompt_hash_of
from wearllama.evaluation.side_judge import JudgeConfig, SideTalkJudge

ITEM = {
    "segments": [{"part": "assistant", "text": "How tall is the tower?"}, {"part": "person", "text": "Pass the salt."}],
    "target_action": {"kind": "answer", "name": None}, "answers": ["330 metres"],
}  # fmt: skip


def serve(reply: str) -> tuple[HTTPServer, list[dict[str, Any]]]:
    asked: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            data = json.dumps({"choices": [{"message": {"content": reply}}]}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *arguments: Any) -> None:
            """Quiet."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server, asked


@pytest.mark.parametrize(("reply", "wanted"), [
    ("Assistant-directed.", ("assistant-directed", "judge")),
    ("both", ("both", "judge")),
    ("I cannot tell whether it is both or neither", ("assistant-directed", "rule")),
])  # fmt: skip
def test_judge_labels_and_the_rule_stands_in(reply: str, wanted: tuple[str, str]) -> None:
    server, asked = serve(reply)
    judge = SideTalkJudge(JudgeConfig(base_url=f"http://127.0.0.1:{server.server_port}/v1"))
    assert judge(answer("It is 330 metres."), ITEM) == wanted
    assert judge(answer("It is 330 metres."), ITEM) == wanted and len(asked) == 1 and asked[0]["temperature"] == 0
    assert judge(mute(), ITEM) == ("neither", "rule") and len(asked) == 1
    server.shutdown()


def test_judge_that_is_away_is_named() -> None:
    with pytest.raises(ValueError, match="judge at http:"):
        SideTalkJudge(JudgeConfig(base_url="http://127.0.0.1:9/v1", timeout_s=2))(answer("Hm."), ITEM)
    assert SideTalkJudge(JudgeConfig())(answer("It is 330 metres."), ITEM) == ("assistant-directed", "rule")


class Parrot:
    """An adapter that notes what it was asked and says a number."""

    identity = {"model": "parrot", "weights": "none", "input": "audio"}  # noqa: RUF012
    generation = {"decoding": "greedy"}  # noqa: RUF012
    max_audio_seconds = None

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []

    class processor:
        class array:
            reference = 0

    def generate(self, examples: Any, clips: Any) -> list[str]:
        for example, clip in zip(examples, clips, strict=True):
            self.asked.append((example.messages[0]["content"], 0 if clip is None else clip.audio_MN.shape[1]))
        return [f"thought {len(self.asked)}"] * len(examples)


def heard() -> tuple[Example, Clip]:
    turns = [{"role": "system", "content": "Act or [Mute]."}, {"role": "user", "content": [{"type": "audio"}]}]
    example = Example(id="a", task="t", split="test", messages=turns, target="[Mute]", audio={"mc": "a.wav"})
    near, far = tone(120.0, 1.0, 0.2), tone(220.0, 1.0, 0.01)
    audio = np.concatenate((near, np.zeros(9600, dtype=np.float32), far))
    return example, Clip(torch.tensor(np.tile(audio, (5, 1))), torch.tensor(audio))


def tone(pitch: float, seconds: float, level: float) -> Any:
    time = np.arange(round(16_000 * seconds)) / 16_000
    return (level * sum(np.sin(2 * np.pi * pitch * k * time) / k for k in range(1, 8))).astype(np.float32)


def test_adaptations_enrich_the_prompt_and_have_an_identity_of_their_own() -> None:
    example, clip = heard()
    parrots = {name: Parrot() for name in ("self_report", "measured", "chunked")}
    adapted = {name: AdaptedAdapter(parrot, name, chunk_seconds=1.0) for name, parrot in parrots.items()}  # type: ignore[arg-type]
    for adapter in adapted.values():
        adapter.generate([example], [clip])
    last = {name: parrot.asked[-1][0] for name, parrot in parrots.items()}
    assert all(text.startswith("Act or [Mute].\n") for text in last.values())
    assert "thought 1" in last["self_report"] and parrots["self_report"].asked[0][0] == TEXTS["self_report_ask"]
    assert "utterance 2" in last["measured"] and "voice changed" in last["measured"]
    assert [samples for _, samples in parrots["chunked"].asked] == [16_000, 32_000, 41_600]
    assert "thought 1 thought 2" in last["chunked"]
    assert len({json.dumps(a.identity, sort_keys=True) for a in adapted.values()} | {json.dumps(Parrot.identity)}) == 4
    with pytest.raises(ValueError, match="wanted one of"):
        AdaptedAdapter(Parrot(), "magic")  # type: ignore[arg-type]


def test_measurements_find_utterances_levels_and_pitch() -> None:
    _, clip = heard()
    first, second = measure(clip.audio_MN[0].numpy(), clip.audio_MN[0].numpy())
    assert abs(first.start_s) < 0.05 and abs(second.start_s - 1.6) < 0.05
    assert 23 < first.level_db - second.level_db < 29 and first.beam_db == pytest.approx(0.0)
    assert first.pitch_hz == pytest.approx(120, rel=0.03) and second.pitch_hz == pytest.approx(220, rel=0.03)
    assert describe(measure(np.zeros(16_000, dtype=np.float32), None)) == "Measured: no speech."


def test_two_runs_are_compared_item_by_item(tmp_path: Path) -> None:
    rows = []
    for number in range(6):
        item = {"scenario": "self_talk", "target_action": {"kind": "mute", "name": None}}
        turns = [{"role": "user", "content": f"hm {number}"}]
        rows.append(Example(id=f"i{number}", task="self_talk", split="test", messages=turns, target="[Mute]",
                            metadata={"item": item, "dialect": "vgbench"}))  # fmt: skip
    for name, said in (("one", ["[Mute]"] * 6), ("two", ["[Mute]"] + ["Yes."] * 5)):
        PredictionLog(tmp_path / name).append([
            Prediction(id=row.id, key=row.id, task=row.task, model={"model": name, "input": "audio"}, raw=raw,
                       prompt_hash=prompt_hash_of(row), generation={}, action={})
            for row, raw in zip(rows, said, strict=True)
        ])  # fmt: skip
    table = paired_table(BENCHMARKS["vgbench"], rows, tmp_path / "one", tmp_path / "two")
    assert table.rows[0][3:5] == ("5", "0") and float(table.rows[0][5]) == pytest.approx(0.062)
    with pytest.raises(ValueError, match="1 of 7 items have no prediction"):
        extra = Example(id="new", task="self_talk", split="test", messages=[{"role": "user", "content": "x"}],
                        target="[Mute]", metadata={"item": {}})  # fmt: skip
        model_outcomes(BENCHMARKS["vgbench"], [*rows, extra], tmp_path / "one")
