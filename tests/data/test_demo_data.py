"""The demo's data: plans that keep splits apart, scenes in both colours, both benchmarks read by their loaders."""

import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from wearllama.audio.array import load_array
from wearllama.audio.beamforming import Beam
from wearllama.audio.io import read_audio
from wearllama.data.actions import parse_action
from wearllama.data.demo_benchmarks import BenchmarkSizes, vgbench_items, wearvox_scenes
from wearllama.data.demo_layout import LEVEL_DBFS, PLACES, Studio, write_vgbench, write_wearvox
from wearllama.data.demo_scenes import TAIL_S, scene_recipe, scene_target, to_example
from wearllama.data.demo_speakers import Pool, ReadingConfig, train_lines, train_speakers
from wearllama.data.demo_splits import check_disjoint, split_record
from wearllama.data.demo_training import TrainPlanner, TrainRows
from wearllama.data.prompts import load_prompts
from wearllama.data.voices import EVAL_VOICES
from wearllama.evaluation.vgbench import VGBenchConfig, load_vgbench
from wearllama.evaluation.wearvox import WearVoxConfig, load_wearvox
from wearllama.simulation.bank import RirBank, RirEntry, write_bank
from wearllama.simulation.noise import NoiseBank
from wearllama.simulation.scene_file import SceneFile

ENGINES = ("pico", "flite", "kokoro")
READING = ReadingConfig(pico_speakers=3, flite_speakers=4, lines_per_speaker=60, kokoro_seconds=60.0)
FEW = BenchmarkSizes(tool_call=8, side_talk=10, closed_book=2, grounding=2, switch_pairs=4, self_talk=5, consecutive=4)


@pytest.fixture(scope="module")
def lines():
    return train_lines(READING, engines=ENGINES)


@pytest.fixture(scope="module")
def train(lines):
    rows = TrainRows(**{name: 25 for name in TrainRows.__dataclass_fields__})
    return TrainPlanner(Pool(lines, 0), chatter=["chatter/a.flac"], seed=0).scenes(rows)


@pytest.fixture(scope="module")
def held_out():
    return wearvox_scenes(BenchmarkSizes(), list(PLACES)) + [item.scene for item in vgbench_items(BenchmarkSizes())]


@pytest.fixture(scope="module")
def bank(tmp_path_factory):
    """Two rooms with a source of each role; decaying noise for responses."""
    rng = np.random.default_rng(0)
    entries, rirs = [], []
    for split in ("train", "eval"):
        for role, gain in (("wearer", 1.0), ("partner", 0.1), ("bystander", 0.06), ("noise", 0.1), ("diffuse", 0.1)):
            entries.append(
                RirEntry(
                    id=f"{split}_{role}", role=role, azimuth_deg=30.0, elevation_deg=0.0, distance_m=1.5, rt60_s=0.2,
                    drr_db=3.0, room=f"{split}_0", split=split, array="glasses5",
                )
            )  # fmt: skip
            rir_MK = rng.standard_normal((5, 800)) * np.exp(-np.arange(800) / 90.0) * 0.1 * gain
            rir_MK[:, :32] = 0.0
            rir_MK[:, 32] = gain
            rirs.append(rir_MK)
    folder = tmp_path_factory.mktemp("bank")
    write_bank(folder, entries, rirs, num_channels=5, num_taps=800, pre_samples=32)
    return RirBank.open(folder)


def test_voices_rooms_wordings_and_sentences_are_disjoint(train, held_out, bank):
    record = split_record(train, held_out, bank)
    check_disjoint(record)
    assert set(record["eval"]["voices"]) == set(EVAL_VOICES)
    assert not set(record["train"]["voices"]) & set(EVAL_VOICES)
    assert len([voice for voice in record["train"]["voices"] if voice.startswith("kokoro/")]) >= 8
    for kind in ("voices", "rooms", "wordings", "sentences"):
        leaked = {split: dict(kinds) for split, kinds in record.items()}
        leaked["train"][kind] = record["train"][kind] + record["eval"][kind][:1]
        with pytest.raises(ValueError, match=f"share 1 {kind}"):
            check_disjoint(leaked)


def test_training_reads_every_wording_and_keeps_to_the_budget():
    lines = train_lines(ReadingConfig(), engines=ENGINES)
    kokoro = sum(line.expected_seconds for line in lines if line.speaker.engine == "kokoro")
    assert 400 <= kokoro < 410
    used = {line.utterance.template_id for line in lines if line.utterance.kind == "command"}
    assert len(used) >= 550
    assert len({line.id for line in lines}) == len(lines)


def test_missing_engines_leave_speakers_out():
    speakers = train_speakers(READING, engines=("pico",))
    assert {speaker.engine for speaker in speakers} == {"pico"} and len(speakers) == 3


def test_commands_come_near_to_act_and_far_to_mute(train):
    """The same clips under both labels: words alone cannot tell a bystander's command."""
    labels = {"act": set(), "mute": set()}
    for scene in train:
        last = scene.spoken[-1] if scene.spoken else None
        if last and last.line.utterance.kind == "command" and scene.action and not scene.text_only:
            labels["mute" if scene.action.kind == "mute" else "act"].add((last.line.id, last.role == "wearer"))
            assert (scene.action.kind == "mute") == (last.role != "wearer"), scene
    near, far = {id for id, _ in labels["act"]}, {id for id, _ in labels["mute"]}
    assert len(near & far) >= 5


def test_training_targets_parse_as_what_they_are(train):
    for scene in train:
        if scene.action is not None:
            assert parse_action(scene_target(scene), scene.dialect).kind == scene.action.kind


def test_gaps_and_voices_of_switch_rows(lines):
    planner = TrainPlanner(Pool(lines, 0), chatter=[], seed=3)
    scenes = planner.scenes(TrainRows(**dict.fromkeys(TrainRows.__dataclass_fields__, 0) | {"switch": 200}))
    other = sum(s.spoken[0].line.speaker.voice != s.spoken[1].line.speaker.voice for s in scenes)
    assert 130 < other < 195
    assert {s.spoken[0].role for s in scenes} == {"wearer"} and "wearer" not in {s.spoken[1].role for s in scenes}
    assert 80 < sum(s.spoken[1].gap_s == 0.6 for s in scenes) < 160


def test_plans_are_the_same_every_time(lines):
    first, second = (TrainPlanner(Pool(train_lines(READING, engines=ENGINES), 1), chatter=[], seed=1) for _ in range(2))
    rows = TrainRows(**{name: 4 for name in TrainRows.__dataclass_fields__})
    assert first.scenes(rows) == second.scenes(rows)


def test_pool_runs_through_all_lines_before_any_comes_again(lines):
    slow = [line for line in lines if line.utterance.kind == "question" and line.speaker.engine != "kokoro"]
    drawn = [Pool(slow, 0).must("question").id] + [line.id for line in slow]
    pool = Pool(slow, 0)
    assert {pool.must("question").id for _ in slow} == set(drawn)


def test_recipe_follows_the_clips(train):
    scene = next(scene for scene in train if scene.id.startswith("same_speaker"))
    seconds = {line.file: 1.5 for line in scene.lines}
    recipe, total = scene_recipe(scene, seconds, split="train", level_dbfs=LEVEL_DBFS)
    first, second = recipe.segments
    assert second.start_s == pytest.approx(first.start_s + 1.5 + scene.spoken[1].gap_s, abs=1e-3)
    assert total == pytest.approx(second.start_s + 1.5 + TAIL_S, abs=1e-3)
    row = to_example(scene, seconds, load_prompts(style="compact"), level_dbfs=(-40.0, -18.0))
    assert row.metadata["seconds"] == total and row.audio["mixture"]["duration_s"] == total


def test_recipe_is_as_long_as_the_longest_talker(train):
    scene = next(scene for scene in train if scene.background is not None)
    seconds = {line.file: 1.0 for line in scene.lines} | {scene.background.file: 5.0}
    recipe, total = scene_recipe(scene, seconds, split="train", level_dbfs=LEVEL_DBFS)
    assert total >= recipe.sidetalk[0].start_s + 5.0


def test_benchmarks_are_balanced(held_out):
    ours = Counter(scene.task for scene in held_out)
    assert ours["tool_call"] == 60 and ours["non-assistant-directed"] == 60 and ours["closed_book"] == 40
    switch = [item for item in vgbench_items(BenchmarkSizes()) if item.scenario == "speaker_switch"]
    pairs = Counter(item.fields["tool"] for item in switch if item.fields["condition"] == "switch")
    assert set(pairs.values()) == {4} and len(pairs) == 10
    side = [item for item in vgbench_items(BenchmarkSizes()) if item.scenario == "side_talk"]
    assert Counter(item.fields["order"] for item in side) == {"assistant_first": 15, "person_first": 15}
    person = Counter(item.fields["content_types"]["person"] for item in side)
    assert abs(person["tool"] - person["conversation"]) <= 2


def test_both_layouts_are_written_and_read_by_their_loaders(tmp_path: Path, bank):
    wearvox, items = wearvox_scenes(FEW, ["Quiet Office", "Vacuum Cleaning"]), vgbench_items(FEW)
    rng = np.random.default_rng(0)
    seconds = {}
    for line in {line.id: line for s in wearvox + [i.scene for i in items] for line in s.lines}.values():
        path = tmp_path / line.file
        path.parent.mkdir(parents=True, exist_ok=True)
        samples = 8000 + random.Random(line.id).randrange(4000)
        soundfile.write(path, 0.1 * rng.standard_normal(samples), 16000)
        seconds[line.file] = samples / 16000
    array = load_array("glasses5")
    fir_MK = np.zeros((5, 9), np.float32)
    fir_MK[:, 4] = 0.2
    studio = Studio(
        root=tmp_path, seconds=seconds, bank=bank, noise=NoiseBank(), array=array,
        beam=Beam(fir_MK=fir_MK, delay_samples=4, array="glasses5"), prompts=load_prompts(style="compact"),
    )  # fmt: skip
    write_wearvox(wearvox, studio, tmp_path / "wearvox")
    write_vgbench(items, studio, tmp_path / "vgbench")
    heard = load_wearvox(tmp_path / "wearvox", WearVoxConfig())
    assert [row.target for row in heard] == [scene_target(scene) for scene in wearvox]
    conditions = load_vgbench(tmp_path / "vgbench" / "manifest.jsonl", VGBenchConfig())
    assert [row.target for row in conditions] == [scene_target(item.scene) for item in items]
    for folder, rows in (("wearvox", heard), ("vgbench", conditions)):
        scenes = SceneFile(tmp_path / folder / "scenes.json")
        for row in [row for row in rows if row.audio][:2]:
            recorded_MN = read_audio(tmp_path / folder / row.audio["mc"])
            assert torch.equal(scenes.render(row.id).audio_MN, recorded_MN)
    before = (tmp_path / "wearvox" / "wav_mc" / "a0003.wav").read_bytes()
    write_wearvox(wearvox[:1], studio, tmp_path / "again")
    assert (tmp_path / "again" / "wav_mc" / "a0003.wav").read_bytes() == before
