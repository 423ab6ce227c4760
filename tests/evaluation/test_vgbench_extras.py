"""Side-talk's judge with its fallback, adaptations around any adapter, measurements as words."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from wearllama.data.manifest import Clip, Example
from wearllama.evaluation import judging, vgbench
from wearllama.evaluation.acoustics import describe, measure
from wearllama.evaluation.adaptations import TEXTS, AdaptedAdapter
from wearllama.evaluation.chat import ChatConfig, Reply
from wearllama.evaluation.judging import Judges, JudgesConfig
from wearllama.evaluation.output import Output
from wearllama.evaluation.predictions import Prediction, prompt_hash_of

ITEM = {
    "segments": [{"part": "assistant", "text": "How tall is the tower?"}, {"part": "person", "text": "Pass the salt."}],
    "target_action": {"kind": "answer", "name": None}, "answers": ["330 metres"],
}  # fmt: skip


def side_talk_run(said: str) -> tuple[Example, Prediction]:
    """One side-talk item and what a model said to it."""
    turns = [{"role": "user", "content": "x"}]
    row = Example(id="a", task="side_talk", split="test", messages=turns, target="330 metres",
                  metadata={"item": {**ITEM, "scenario": "side_talk"}, "dialect": "vgbench"})  # fmt: skip
    prediction = Prediction(id="a", key="a", task="side_talk", model={"model": "m", "input": "audio"}, raw=said,
                            prompt_hash=prompt_hash_of(row), generation={}, action={})  # fmt: skip
    return row, prediction


class Says:
    """A text model that always says the same."""

    identity = {"model": "says", "weights": "none"}  # noqa: RUF012
    generation = {"temperature": 0.0}  # noqa: RUF012

    def __init__(self, words: str) -> None:
        self.words, self.asked = words, 0

    def complete(self, conversations: Any, on_reply: Any) -> list[Reply]:
        self.asked += len(conversations)
        replies = [Reply(text=self.words) for _ in conversations]
        for index, reply in enumerate(replies):
            on_reply(index, reply)
        return replies

    def first_token_seconds(self, conversation: Any) -> float | None:
        return None


@pytest.mark.parametrize(("words", "label", "by", "right"), [
    ('{"reason": "height", "label": "assistant-directed"}', "assistant-directed", "judge: 1 of 1 answers; rule: 0", 1),
    ('{"reason": "two", "label": "Both"}', "both", "judge: 1 of 1 answers; rule: 0", 0),
    ("I cannot tell whether it is both or neither", "assistant-directed", "judge: 0 of 1 answers; rule: 1", 1),
])  # fmt: skip
def test_judge_labels_and_the_rule_stands_in(
    words: str, label: str, by: str, right: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row, prediction = side_talk_run("It is 330 metres.")
    outcomes = vgbench.score([row], [prediction])
    assert vgbench.summarise(outcomes)["side_talk_labels_by"] == "rule"
    model = Says(words)
    monkeypatch.setattr(judging, "open_chat", lambda config: model)
    config = JudgesConfig(side_talk=ChatConfig(model="openai:says"))
    for _ in range(2):  # the second time from the log
        found = vgbench.summarise(Judges(config, tmp_path).apply("vgbench", [row], [prediction], outcomes))
        assert found["side_talk_labels_by"] == by and found["side_talk_labels"][label] == 1
        assert found["rates"]["side_talk"].hits == right and model.asked == 1


def test_silence_is_labelled_without_a_judge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row, prediction = side_talk_run("[Mute]")
    model = Says("both")
    monkeypatch.setattr(judging, "open_chat", lambda config: model)
    judges = Judges(JudgesConfig(side_talk=ChatConfig(model="openai:says")), tmp_path)
    found = judges.apply("vgbench", [row], [prediction], vgbench.score([row], [prediction]))
    assert found[0].note == "neither" and model.asked == 0


class Parrot:
    """An adapter that notes what it was asked and says a number."""

    identity = {"model": "parrot", "weights": "none", "input": "audio"}  # noqa: RUF012
    generation = {"decoding": "greedy"}  # noqa: RUF012
    max_audio_seconds = None
    input = "audio"

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []

    def hear(self, example: Example, clip: Clip) -> Clip:
        return clip

    def waveforms(self, clip: Clip) -> Any:
        return clip.audio_MN[0], clip.beam_N

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


def test_controls_and_failures_of_notes() -> None:
    example, clip = heard()
    deaf, reads = Parrot(), Parrot()
    deaf.input, reads.input = "silence", "transcript"
    AdaptedAdapter(deaf, "measured").generate([example], [clip])
    assert deaf.asked[-1][0].endswith("Measured: no speech.")  # the tool hears what the model hears
    AdaptedAdapter(reads, "self_report").generate([example, example], [clip, None])
    assert [text for text, _ in reads.asked] == ["Act or [Mute]."] * 2

    class Broken(Parrot):
        def generate(self, examples: Any, clips: Any) -> list[str]:
            said = super().generate(examples, clips)
            return [Output("", error="gone", transient=True) if "Do not act" in e.messages[0]["content"] and at == 0
                    else text for at, (e, text) in enumerate(zip(examples, said, strict=True))]  # fmt: skip

    first, second = AdaptedAdapter(Broken(), "self_report").generate([example, example], [clip, clip])
    assert getattr(first, "transient", False) and second == "thought 3"
