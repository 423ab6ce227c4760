"""The whole benchmark: the paper's counts and rules, protocols that hold out what they say, a lock that notices."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from wearllama.data.demo_scenes import GAP_S, Scene, Spoken
from wearllama.data.demo_speakers import Line, Speaker
from wearllama.data.textgen import Utterance
from wearllama.data.vgbench_full import PROTOCOLS, BuiltItem, VgBenchPlan, describe_balance, factorised, plan_items
from wearllama.data.vgbench_lock import check_lock, lock_of
from wearllama.data.vgbench_mono import FarRoom, levelled, render_mono
from wearllama.data.vgbench_recorded import place_recordings


@pytest.fixture(scope="module")
def items() -> list[BuiltItem]:
    return plan_items(VgBenchPlan())


def test_counts_and_balance_are_the_papers(items: list[BuiltItem]) -> None:
    balance = describe_balance(items)
    assert balance["items"] == {"speaker_switch": 400, "self_talk": 223, "side_talk": 395}
    assert set(balance["pairs_by_tool"].values()) == {40} and len(balance["pairs_by_tool"]) == 10
    assert len(balance["side_talk_cells"]) == 8 and set(balance["side_talk_cells"].values()) <= {49, 50}
    assert balance["held_out"]["items"] == {"speaker_switch": 240, "self_talk": 45, "side_talk": 79}
    assert len({built.item.scene.id for built in items}) == len(items)
    assert [b.item.scene for b in plan_items(VgBenchPlan())] == [b.item.scene for b in items]


def test_words_of_no_two_cases_are_the_same(items: list[BuiltItem]) -> None:
    words = [b.item.scene.words for b in items if b.item.fields.get("condition", "switch") == "switch"]
    assert len(set(words)) == len(words) == 400 + 223 + 395


def test_protocols_share_nothing_of_what_they_hold_out(items: list[BuiltItem]) -> None:
    def used(protocol: str, split: str, what: Any) -> set[str]:
        chosen = [b.item for b in items if b.splits[protocol] == split]  # type: ignore[index]
        return {name for item in chosen for name in what(item) if name}

    kinds: dict[str, Any] = {
        "items": lambda item: [item.seed_id],
        "voices": lambda item: [line.speaker.voice for line in item.scene.lines],
        "templates": lambda item: [line.utterance.template_id for line in item.scene.lines],
        "tools": lambda item: [item.fields.get("tool"), item.fields.get("person_tool")],
    }
    assert set(kinds) == set(PROTOCOLS)
    for protocol, what in kinds.items():
        train, held_out = used(protocol, "train", what), used(protocol, "eval", what)
        if protocol == "tools":  # a held-out item may name a known tool beside the held-out one
            assert not train & {"delete_files", "book_ride"} and {"delete_files", "book_ride"} <= held_out
        else:
            assert train and held_out and not train & held_out, protocol


def test_factors_are_crossed_on_the_held_out_pairs(items: list[BuiltItem]) -> None:
    rows = factorised(items)
    assert len(rows) == 80 * 8
    names = [row.item.fields["condition"] for row in rows]
    assert set(names.count(name) for name in set(names)) == {80} and len(set(names)) == 8
    for row in rows:
        source, distance, gap = row.item.fields["condition"].split("-")
        context, trigger = row.item.scene.spoken
        assert (trigger.line.speaker == context.line.speaker) == (source == "A")
        assert (trigger.role == "wearer") == (distance == "near") and trigger.gap_s * 1000 == float(gap)
        assert row.item.scene.action is not None
        assert (row.item.scene.action.kind == "tool") == (source == "A" and distance == "near")


def clip(root: Path, voice: str, seconds: float, text: str = "x") -> Line:
    line = Line(utterance=Utterance(text=text, kind="command", split="train", template_id="t", tool="set_alarm"),
                speaker=Speaker(voice=voice))  # fmt: skip
    path = root / line.file
    path.parent.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(len(voice))
    soundfile.write(path, 0.1 * rng.standard_normal(round(16_000 * seconds)), 16_000, format="FLAC")
    return line


def test_mono_rendering_follows_the_rules(tmp_path: Path) -> None:
    context, trigger = clip(tmp_path, "a/one", 0.5, "context"), clip(tmp_path, "b/other", 0.4, "trigger")
    spoken = (Spoken(line=context, part="context"), Spoken(line=trigger, role="bystander", gap_s=GAP_S, part="trigger"))
    scene = Scene(id="s", task="speaker_switch", dialect="vgbench", action=None, spoken=spoken)
    response = np.zeros(1600, dtype=np.float32)
    response[[0, 1599]] = 1.0, 0.5
    audio_N, notes = render_mono(scene, FarRoom(response, {}), tmp_path)
    assert len(audio_N) == 8000 + 9600 + 6400 + 1599
    assert not audio_N[8000:17_600].any() and abs(float(audio_N[8000 - 1])) < 1e-6  # the boundary, and the fade to it
    assert [note["distance"] for note in notes] == ["near", "far"] and notes[1]["start_s"] == 1.1
    for start, end in ((0, 8000), (17_600, len(audio_N))):
        level = 20 * np.log10(np.sqrt(np.mean(audio_N[start:end] ** 2)))
        assert abs(level + 26.0) < 0.2
    ramp_N, _ = levelled(np.ones(4000, dtype=np.float32))
    assert ramp_N[0] == 0.0 and ramp_N[79] == ramp_N[80] == ramp_N[2000] and 0 < ramp_N[40] < ramp_N[79]
    with pytest.raises(ValueError, match="silent"):
        levelled(np.zeros(100, dtype=np.float32))


def test_recordings_of_speakers_take_the_voices_place(tmp_path: Path) -> None:
    line = Line(utterance=Utterance(text="Wake me at six.", kind="command", split="train", template_id="t"),
                speaker=Speaker(voice="recorded/ann"))  # fmt: skip
    folder = tmp_path / "read"
    folder.mkdir()
    soundfile.write(folder / "1.wav", 0.1 * np.random.default_rng(0).standard_normal(22_050), 44_100)
    (folder / "index.jsonl").write_text(json.dumps({"file": "1.wav", "speaker": "ann", "text": "wake me, at six"}))
    assert place_recordings(folder, [line], tmp_path / "out") == 1
    assert soundfile.info(tmp_path / "out" / line.file).samplerate == 16_000
    other = Line(utterance=line.utterance, speaker=Speaker(voice="recorded/bob"))
    with pytest.raises(ValueError, match="recorded/bob reading 'Wake me at six"):
        place_recordings(folder, [line, other], tmp_path / "out")


def test_lock_notices_a_changed_recording(tmp_path: Path) -> None:
    (tmp_path / "audio").mkdir()
    (tmp_path / "audio" / "a.wav").write_bytes(b"one")
    (tmp_path / "manifest.jsonl").write_text("{}\n")
    (tmp_path / "lock.json").write_text(json.dumps(lock_of(tmp_path)))
    assert check_lock(tmp_path) == 2
    (tmp_path / "audio" / "a.wav").write_bytes(b"two")
    with pytest.raises(ValueError, match="1 files differ"):
        check_lock(tmp_path)


def test_bad_plans_are_refused() -> None:
    with pytest.raises(ValueError, match="at least two"):
        VgBenchPlan(held_out_voices=("kokoro/af_sarah",))
    with pytest.raises(ValueError, match="fly"):
        VgBenchPlan(held_out_tools=("fly",))
