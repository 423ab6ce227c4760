"""Conditions between file and model: other keys, other folders, the right sound, and nothing mixed."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from wearllama.audio.array import load_array
from wearllama.audio.beamforming import apply_beam
from wearllama.audio.io import write_audio
from wearllama.data.manifest import Clip, Example, load_audio
from wearllama.evaluation.adapters import CheckpointAdapter
from wearllama.evaluation.commands import RunCommand, run_benchmark, run_folder
from wearllama.evaluation.conditions import (
    ConditionedAdapter,
    ConditionSettings,
    condition_folder,
    condition_key,
    mono_under,
    under_condition,
)
from wearllama.evaluation.harness import HarnessConfig, keys_of
from wearllama.evaluation.mono import AudioLimit, Heard, MonoAdapter
from wearllama.evaluation.output import Output
from wearllama.evaluation.report import read_run
from wearllama.evaluation.vgbench import VGBenchConfig, load_vgbench
from wearllama.evaluation.wearvox import WearVoxConfig, load_wearvox
from wearllama.simulation.build import BankConfig, build_bank
from wearllama.simulation.conditions import Condition, parse_conditions
from wearllama.simulation.mixing import MixtureRecipe, Segment
from wearllama.simulation.noise import NoiseBank
from wearllama.simulation.scene_file import SceneFile, write_scenes
from wearllama.simulation.scenes import SceneConfig


@pytest.fixture(scope="module")
def model(ckpt: Path) -> CheckpointAdapter:
    return CheckpointAdapter(ckpt, max_new_tokens=3, device="cpu")


@pytest.fixture
def examples(wearvox_data: Path) -> list[Example]:
    return load_wearvox(wearvox_data, WearVoxConfig())


def under(model: CheckpointAdapter, name: str, root: Path, **settings: object) -> ConditionedAdapter:
    (condition,) = parse_conditions(name)
    return ConditionedAdapter(model, condition, ConditionSettings(**settings), root)


def test_what_is_heard_is_changed_and_repeats(
    model: CheckpointAdapter, examples: list[Example], wearvox_data: Path
) -> None:
    adapter = under(model, "snr:0", wearvox_data)
    clip = load_audio(examples[0], wearvox_data)
    first, again = adapter.hear(examples[0], clip), adapter.hear(examples[0], clip)
    assert torch.equal(first.audio_MN, again.audio_MN) and torch.equal(first.beam_N, again.beam_N)
    added_MN = first.audio_MN - clip.audio_MN
    ratio = clip.audio_MN[0].square().mean() / added_MN[0].square().mean()
    assert 10 * float(torch.log10(ratio)) == pytest.approx(0.0, abs=0.5)
    torch.testing.assert_close(
        first.beam_N - clip.beam_N, apply_beam(added_MN, model.processor.beam), atol=1e-5, rtol=0
    )
    assert model.hear(examples[0], clip) is clip
    other = adapter.hear(replace(examples[0], id="another"), clip)
    assert not torch.equal(other.audio_MN, first.audio_MN)
    assert adapter.hear(examples[0], None) is None


def test_keys_differ_by_condition_and_by_what_it_draws_from(
    model: CheckpointAdapter, examples: list[Example], wearvox_data: Path, tmp_path: Path
) -> None:
    write_audio(tmp_path / "music.wav", 0.1 * torch.randn(1, 8000))
    adapters = [
        model,
        under(model, "snr:0", wearvox_data),
        under(model, "snr:5", wearvox_data),
        under(model, "wind:0", wearvox_data),
        under(model, "snr:0", wearvox_data, seed=1),
        under(model, "snr:0", wearvox_data, noise=[str(tmp_path)]),
        under(model, "snr:0", wearvox_data).with_input("silence"),
    ]
    keys = [tuple(keys_of(examples, adapter, wearvox_data)) for adapter in adapters]
    assert len(set(keys)) == len(adapters)
    assert keys[1] == tuple(keys_of(examples, under(model, "snr:0", wearvox_data), wearvox_data))
    assert "condition" not in model.identity and isinstance(adapters[-1], ConditionedAdapter)


def test_a_run_over_conditions_mixes_nothing(
    ckpt: Path, examples: list[Example], wearvox_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    harness = HarnessConfig(progress=False, ttft_items=1, batch_size=4)
    command = RunCommand(
        ckpt=str(ckpt), out=str(tmp_path), max_new_tokens=3, harness=harness, device="cpu",
        condition=("clean", "tempo:2", "dead_microphone:0"), controls=("majority",), clips=2,
    )  # fmt: skip
    pages = run_benchmark("wearvox", command, examples, root=wearvox_data, channels=5)
    main = run_folder(tmp_path, "wearvox", CheckpointAdapter(ckpt))
    folders = [main, main / "conditions" / "tempo_2", main / "conditions" / "dead_microphone_0"]
    assert [page.parent for page in pages] == folders
    keys: list[set[str]] = []
    for folder in folders:
        rows = [json.loads(line) for line in (folder / "predictions-00000.jsonl").read_text().splitlines()]
        assert len(rows) == 2 * len(examples)  # the model and the majority class
        keys.append({row["key"] for row in rows if row["model"]["model"] != "majority class"})
    assert not keys[0] & keys[1] and not keys[0] & keys[2] and not keys[1] & keys[2]
    results, _ = read_run(folders[1])
    assert results["systems"][0]["identity"]["condition"] == "tempo:2"
    table = capsys.readouterr().out.split("Under evaluation conditions")[1]
    assert all(name in table for name in ("clean", "tempo:2", "dead_microphone:0"))
    assert "tempo:2" in (main / "conditions" / "conditions.md").read_text()
    before = (folders[1] / "predictions-00000.jsonl").read_bytes()
    run_benchmark("wearvox", replace(command, condition="tempo:2"), examples, root=wearvox_data, channels=5)
    assert (folders[1] / "predictions-00000.jsonl").read_bytes() == before


def test_slow_recordings_meet_the_models_limit_before_anything_is_predicted(
    ckpt: Path, examples: list[Example], wearvox_data: Path, tmp_path: Path
) -> None:
    (slow,) = parse_conditions("tempo:0.5")
    longer = [replace(example, metadata={**example.metadata, "seconds": 20.0}) for example in examples]
    assert [example.seconds for example in under_condition(longer, slow)] == [40.0] * len(examples)
    command = RunCommand(ckpt=str(ckpt), out=str(tmp_path), device="cpu", condition="tempo:0.5", controls=())
    with pytest.raises(ValueError, match="exceed the model's"):
        run_benchmark("wearvox", command, longer, root=wearvox_data, channels=5)


def test_mono_benchmarks_and_pairs(model: CheckpointAdapter, make_vgbench, tmp_path: Path) -> None:
    path = make_vgbench(channels=1)
    examples = load_vgbench(path, VGBenchConfig(prompts="compact", audio_channels=1))
    pair = [example for example in examples if example.metadata["item"].get("pair_id") == "switch-0"]
    assert len({condition_key(example) for example in pair}) == 1
    adapter = under(model, "gaussian_noise:10", tmp_path)
    clips = [load_audio(example, path.parent) for example in pair if example.audio]
    heard = [adapter.hear(example, clip) for example, clip in zip(pair, clips, strict=False)]
    noises = [(after.audio_MN - before.audio_MN)[0] for after, before in zip(heard, clips, strict=True)]
    assert heard[0].beam_N is None and heard[0].audio_MN.shape[0] == 1
    # The same noise for both members of the pair, scaled to each one's level.
    assert float(torch.corrcoef(torch.stack(noises))[0, 1]) == pytest.approx(1.0, abs=1e-4)
    outputs = adapter.generate([pair[0]], [clips[0]])
    assert isinstance(outputs[0], str)


def test_scenes_are_rendered_again(model: CheckpointAdapter, examples: list[Example], tmp_path: Path) -> None:
    scene = SceneConfig(wearer_poses=1, partners=1, bystanders=2, noises=1)
    config = BankConfig(train_rooms=1, eval_rooms=2, taps=1600, scene=scene)
    bank = build_bank(config, load_array("glasses5"), tmp_path / "bank", progress=False)
    write_audio(tmp_path / "a.wav", 0.1 * torch.randn(1, 8000))
    recipe = MixtureRecipe(
        segments=(Segment(file="a.wav", role="wearer"),), snr_db=20.0, split="eval", noise_type="Pink"
    )
    folder = tmp_path / "benchmark"
    folder.mkdir()
    example = examples[0]
    fields = dict(bank=bank, noise=NoiseBank(), audio_root=tmp_path)
    write_scenes(folder, {example.id: (recipe, 11)}, **fields)
    rooms = {room: bank.entries[bank.select(room=room)[0]].rt60_s for room in bank.rooms("eval")}
    for rt60 in rooms.values():
        mixture = SceneFile(folder / "scenes.json").render(example.id, Condition(kind="rt60", value=rt60), 3)
        assert abs(np.log(mixture.metadata["rt60_s"] / rt60)) <= np.log(1.3)
        assert mixture.metadata["seed"] == 11
    adapter = under(model, "scene_snr:0", folder)
    recorded = SceneFile(folder / "scenes.json").render(example.id)
    heard = adapter.hear(example, Clip(recorded.audio_MN, None))
    assert heard.audio_MN.shape == recorded.audio_MN.shape
    noise_db = 10 * np.log10(float((heard.audio_MN - recorded.audio_MN)[0].square().mean()))
    assert noise_db > 10 * np.log10(float(recorded.audio_MN[0].square().mean())) - 3
    write_scenes(folder, {example.id: (replace(recipe, snr_db=30.0), 11)}, **fields)
    assert under(model, "scene_snr:0", folder).identity != adapter.identity
    with pytest.raises(ValueError, match="no scene for 'x'"):
        adapter.hear(replace(example, id="x"), Clip(recorded.audio_MN, None))


def test_what_is_missing_is_said_before_the_run(
    ckpt: Path, examples: list[Example], wearvox_data: Path, tmp_path: Path
) -> None:
    command = RunCommand(ckpt=str(ckpt), out=str(tmp_path), device="cpu", condition=("clean", "rt60:0.4"))
    with pytest.raises(ValueError, match=r"no .*scenes\.json"):
        run_benchmark("wearvox", command, examples, root=wearvox_data, channels=5)
    assert not list(tmp_path.rglob("predictions-*"))
    with pytest.raises(ValueError, match=r"dead_microphone:4: the recordings have 4 channels, 0\.\.3"):
        broken = replace(command, condition="dead_microphone")
        run_benchmark("wearvox", broken, examples, root=wearvox_data, channels=4)
    with pytest.raises(ValueError, match="'snow' is unknown"):
        run_benchmark("wearvox", replace(command, condition="snow"), examples, root=wearvox_data, channels=5)


def test_folders() -> None:
    assert condition_folder(Path("a"), None) == Path("a")
    assert condition_folder(Path("a"), Condition(kind="snr", value=-5.0)) == Path("a/conditions/snr_-5")


class Listener(MonoAdapter):
    """Notes what it hears."""

    def __init__(self) -> None:
        super().__init__({"model": "listener", "weights": "none"}, {}, limit=AudioLimit())
        self.heard: list[torch.Tensor] = []

    def answer(self, items: Sequence[Heard]) -> list[Output]:
        self.heard += [item.audio_N for item in items if item.audio_N is not None]
        return [Output("[Mute]", {}) for _ in items]


def test_single_channel_models_hear_conditions_too(
    model: CheckpointAdapter, examples: list[Example], wearvox_data: Path
) -> None:
    """The beam that they get is that of a checkpoint under the same condition, and their key says which one it is."""
    listener = Listener()
    (condition,) = parse_conditions("snr:0")
    under_it = mono_under(listener, condition, ConditionSettings(), wearvox_data, model.processor.array)
    clip = load_audio(examples[0], wearvox_data)
    wanted = under(model, "snr:0", wearvox_data).hear(examples[0], clip)
    under_it.generate(examples[:1], [clip])
    assert wanted is not None and torch.equal(listener.heard[0], wanted.beam_N)
    assert under_it.identity["condition"] == "snr:0" and "condition" not in listener.identity
    listener.generate(examples[:1], [clip])
    assert torch.equal(listener.heard[1], clip.beam_N)
    assert under_it.with_input("silence").identity["condition"] == "snr:0"
    assert under_it.hear(examples[0], None) is None
