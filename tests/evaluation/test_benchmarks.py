"""Loaders of the published layouts, their scores, and the launchers' path from checkpoint to page."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from wearllama.audio.io import AudioError
from wearllama.data.manifest import Example
from wearllama.evaluation import vgbench, wearvox_scores
from wearllama.evaluation.commands import RunCommand, run_benchmark
from wearllama.evaluation.demo_table import demo_table
from wearllama.evaluation.harness import HarnessConfig
from wearllama.evaluation.predictions import Prediction
from wearllama.evaluation.report import read_run
from wearllama.evaluation.vgbench import VGBenchConfig, load_vgbench
from wearllama.evaluation.wearvox import WearVoxConfig, load_wearvox


def said(examples: list[Example], texts: list[str]) -> list[Prediction]:
    return [
        Prediction(id=e.id, key="", task=e.task, model={}, prompt_hash="", generation={}, raw=text, action={})
        for e, text in zip(examples, texts, strict=True)
    ]


# --- WearVox ---------------------------------------------------------------------------------------------------------


def test_wearvox_rows(wearvox_data: Path) -> None:
    examples = load_wearvox(wearvox_data, WearVoxConfig())
    assert [e.task for e in examples].count("tool_call") == 2 and len(examples) == 9  # none dropped
    assert examples[0].audio == {"mc": "wav_mc/a100.wav", "beam": "wav/q0.wav"}  # paired by row
    assert examples[0].seconds == pytest.approx(0.3)
    assert examples[0].messages[-1]["content"] == [{"type": "audio"}]
    assert examples[0].metadata["acoustics"] == {"_noise_type": "Quiet Office"}
    assert examples[1].metadata["acoustics"] == {}
    assert load_wearvox(wearvox_data, WearVoxConfig(beam="design"))[0].audio["beam"] is None
    assert len(load_wearvox(wearvox_data, WearVoxConfig(limit=1))) == 5


def test_perfect_and_constant_outputs(wearvox_data: Path) -> None:
    examples = load_wearvox(wearvox_data, WearVoxConfig())
    best = wearvox_scores.score(examples, said(examples, [e.target for e in examples]))
    rates = wearvox_scores.summarise(best)["rates"]
    assert all(rate.hits == rate.total > 0 for rate in rates.values())
    mute = wearvox_scores.summarise(wearvox_scores.score(examples, said(examples, ["[Mute]"] * 9)))
    assert str(mute["rates"]["micro_average/name"]).endswith("(3/8)")
    assert mute["rates"]["non-assistant-directed/correct"].value == 1.0
    assert {name: rate.total for name, rate in mute["by_noise_type"].items()} == {
        "Music": 2, "Quiet Office": 2, "not recorded": 4,
    }  # fmt: skip
    assert mute["actions"]["tool_call"] == {"mute": 2}


def copied(source: Path, target: Path, change: Callable[[list[dict[str, Any]]], None]) -> Path:
    shutil.copytree(source, target, dirs_exist_ok=True)
    path = target / "data_public.json"
    rows = json.loads(path.read_text())
    change(rows)
    path.write_text(json.dumps(rows))
    return target


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows: rows[1].pop("audio_query_mc"), r"row 1 \(id 'row-1'\): missing \['audio_query_mc'\]"),
        (lambda rows: rows[1].update(task="juggling"), r"unknown tasks \['juggling'\]"),
        (lambda rows: rows[1].update(ground_truth="play"), r"row 1 \(id 'row-1'\): ground truth 'play'"),
        (lambda rows: rows[2].update(ground_truth="hello"), r"row 2 .*wanted \[Mute\]"),
        (lambda rows: rows[0].update(audio_query_mc="wav/q0.wav"), "q0.wav: found 1 channels, wanted 5.*wearvox.chan"),
        (lambda rows: rows[0].update(audio_query="wav_mc/a100.wav"), "a100.wav: found 5 channels, wanted 1"),
        (lambda rows: rows[0].update(audio_query_mc="wav_mc/none.wav"), "none.wav"),
        (lambda rows: rows.clear(), "no row of the tasks"),
    ],
)
def test_bad_wearvox(wearvox_data: Path, tmp_path: Path, change: Callable[[Any], None], message: str) -> None:
    folder = copied(wearvox_data, tmp_path, change)
    with pytest.raises(ValueError, match=message):
        load_wearvox(folder, WearVoxConfig())


def test_wearvox_needs_its_files(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no .*data_public\.json"):
        load_wearvox(tmp_path, WearVoxConfig())
    (tmp_path / "data_public.json").write_text("{")
    with pytest.raises(ValueError, match="no JSON"):
        load_wearvox(tmp_path, WearVoxConfig())
    with pytest.raises(ValueError, match="unknown"):
        WearVoxConfig(tasks=("juggling",))


# --- VGBench ---------------------------------------------------------------------------------------------------------


def test_vgbench_rows_and_scores(vgbench_data: Path) -> None:
    examples = load_vgbench(vgbench_data, VGBenchConfig())
    assert len(examples) == 9 and {e.dialect for e in examples} == {"vgbench"}
    text = next(e for e in examples if e.task == "speaker_switch/text_only")
    assert text.audio is None and text.messages[-1]["content"] == "it is getting late do it send_money"
    systems = {e.messages[0]["content"] for e in examples}
    assert len(systems) == 1  # nothing but the sound tells the conditions apart
    best = vgbench.summarise(vgbench.score(examples, said(examples, [e.target for e in examples])))
    assert all(rate.value == 1.0 for rate in best["rates"].values())
    assert best["rates"]["speaker_switch/all_three"].total == 2
    assert best["side_talk_labels"]["assistant-directed"] == 1 and best["side_talk_labels_by"] == "rule"


def test_always_mute_shows_as_such(vgbench_data: Path) -> None:
    examples = load_vgbench(vgbench_data, VGBenchConfig())
    rates = vgbench.summarise(vgbench.score(examples, said(examples, ["[Mute]"] * 9)))["rates"]
    found = {name: rate.value for name, rate in rates.items()}
    assert found == {
        "speaker_switch/same_speaker": 0.0, "speaker_switch/switch": 1.0, "speaker_switch/text_only": 0.0,
        "speaker_switch/all_three": 0.0, "self_talk": 1.0, "side_talk": 0.0,
    }  # fmt: skip


def test_mono_recordings_by_a_named_setting(make_vgbench: Callable[..., Path]) -> None:
    path = make_vgbench(channels=1)
    with pytest.raises(AudioError, match=r"found 1 channels, wanted 5 \(setting vgbench.audio_channels\)"):
        load_vgbench(path, VGBenchConfig())
    assert len(load_vgbench(path, VGBenchConfig(audio_channels=1))) == 9


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows: rows[3].pop("split"), r"line 4: missing \['split'\]"),
        (lambda rows: rows[3].update(scenario="x"), "line 4: scenario is 'x'"),
        (lambda rows: rows[1].update(target_action={"kind": "tool", "name": "send_money"}), "line 2.*wanted mute"),
        (lambda rows: rows[0].update(target_action={"kind": "tool", "name": "x"}), "line 1.*wanted the row's tool"),
        (lambda rows: rows[1].update(id=rows[0]["id"]), "line 2: id 'switch-0-same_speaker' stands on line 1"),
        (lambda rows: rows.pop(1), "pair 'switch-0' has the conditions"),
        (lambda rows: rows[1]["segments"][1].update(text="other"), "pair 'switch-0' differ in their words"),
        (lambda rows: rows[8]["segments"].pop(), "line 9: segments of side_talk"),
        (lambda rows: rows[2].update(audio="audio/s0switch.wav"), r"line 3 .*condition 'text_only'"),
        (lambda rows: [row.update(split="train") for row in rows], "no row of"),
    ],
)
def test_bad_vgbench(make_vgbench: Callable[..., Path], change: Callable[[Any], None], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load_vgbench(make_vgbench(change), VGBenchConfig())


def test_a_bad_line_is_named(vgbench_data: Path, tmp_path: Path) -> None:
    path = tmp_path / "manifest.jsonl"
    path.write_text(vgbench_data.read_text() + "{torn\n")
    with pytest.raises(ValueError, match="line 10"):
        load_vgbench(path, VGBenchConfig())


# --- from a checkpoint to a page -------------------------------------------------------------------------------------


def test_both_benchmarks_to_one_table(ckpt: Path, wearvox_data: Path, vgbench_data: Path, tmp_path: Path) -> None:
    harness = HarnessConfig(progress=False, ttft_items=1, batch_size=4)
    command = RunCommand(ckpt=str(ckpt), out=str(tmp_path), max_new_tokens=3, harness=harness, device="cpu")
    loaded = {
        "wearvox": (load_wearvox(wearvox_data, WearVoxConfig()), wearvox_data),
        "vgbench": (load_vgbench(vgbench_data, VGBenchConfig(prompts="compact")), vgbench_data.parent),
    }
    runs = {}
    for name, (examples, root) in loaded.items():
        (page,) = run_benchmark(name, command, examples, root=root, channels=5)
        text = page.read_text()
        assert set(re.findall(r"https?://[\w.]+", text)) <= {"http://www.w3.org"}  # names of SVG, nothing fetched
        assert text.count("<audio") == 2 * min(10, sum(e.audio is not None for e in examples))
        assert "(published)" in text and "<svg" in text
        results, clips = read_run(page.parent)
        assert [system["label"] for system in results["systems"]] == ["model", "model, silence", "majority class"]
        assert results["systems"][0]["ttft_ms"]["all"]["p50"] > 0 and clips
        lines = sum(len(p.read_text().splitlines()) for p in page.parent.glob("predictions-*.jsonl"))
        assert lines == 3 * len(examples)
        run_benchmark(name, command, examples, root=root, channels=5)  # complete: scored again, nothing predicted
        assert lines == sum(len(p.read_text().splitlines()) for p in page.parent.glob("predictions-*.jsonl"))
        runs[name] = results
    table = demo_table(runs["wearvox"], runs["vgbench"])
    majority = {row[0]: row[4] for row in table.rows}
    assert majority["side-talk [Mute]"].startswith("100.0 %") and majority["tool name"].startswith("0.0 %")
    assert all(row[3] in ("met", "missed") for row in table.rows if row[1] != "-")
    both = demo_table(runs["wearvox"], runs["vgbench"], runs["vgbench"])
    after = {row[0]: (row[2], row[-1]) for row in both.rows}
    assert both.header[-1] == "after GRPO" and after["tool name"][1] == "-"
    assert after["self-talk: mute"][0] == after["self-talk: mute"][1] != "-"
