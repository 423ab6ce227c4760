"""Rendered rows: the same samples on any number of workers, new ones every epoch, labels on target and end alone."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from wearllama.audio.array import load_array
from wearllama.audio.beamforming import apply_beam
from wearllama.audio.io import write_audio
from wearllama.audio.timebase import num_embeddings
from wearllama.data.augment import Augmentation
from wearllama.data.collate import Collator
from wearllama.data.dataset import ExampleDataset, Item, MixtureRenderer, example_seconds
from wearllama.data.manifest import Example, write_manifest
from wearllama.data.prompts import build_messages, load_prompts
from wearllama.data.sampling import BatchConfig, BucketBatchSampler, Draw, Lengths
from wearllama.data.tools import CONSEQUENTIAL_TOOLS, WEARVOX_TOOLS
from wearllama.modeling.factory import ModelConfig, build_processor
from wearllama.modeling.processing import WearLlamaProcessor
from wearllama.simulation.bank import RirBank, RirEntry, write_bank
from wearllama.simulation.mixing import MixtureRecipe, Segment
from wearllama.simulation.noise import NoiseBank
from wearllama.training.data import SftData, load_sets

PRE = 40
SYSTEM = load_prompts(style="compact").system("vgbench", CONSEQUENTIAL_TOOLS)
TARGETS = ["[Mute]", '{"name": "set_alarm", "params": {"time": "7"}}', "Paris."]


@pytest.fixture(scope="session")
def processor() -> WearLlamaProcessor:
    return build_processor(ModelConfig())


def write_room(path: Path, array: str) -> None:
    """A bank of one room with decaying noise for responses."""
    rng, mics = np.random.default_rng(0), load_array(array).num_mics
    entries, rirs = [], []
    for index, role in enumerate(["wearer", "bystander", "bystander", "noise"]):
        rir_MK = rng.normal(0.0, 0.05, (mics, 1200)) * np.exp(-np.arange(1200) / 200)
        rir_MK[:, :PRE] = 0.0
        rir_MK[:, PRE] = 1.0
        rirs.append(rir_MK.astype(np.float32))
        entries.append(
            RirEntry(
                id=f"r{index}",
                role=role,
                azimuth_deg=0.0,
                elevation_deg=0.0,
                distance_m=1.0,
                rt60_s=0.2,
                drr_db=0.0,
                room="room",
                split="train",
                array=array,
            )
        )
    write_bank(path, entries, rirs, num_channels=mics, num_taps=1200, pre_samples=PRE)


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Banks of two arrays, two sources, one recording of the array and one of four channels."""
    path = tmp_path_factory.mktemp("data")
    write_room(path / "bank", "glasses5")
    write_room(path / "four_bank", "easycom4")
    for name, seconds in (("a", 0.6), ("b", 0.9)):
        tone_N = torch.sin(torch.arange(int(seconds * 16000)) * (0.1 if name == "a" else 0.17)) * 0.3
        write_audio(path / f"{name}.wav", tone_N[None])
    write_audio(path / "mc.wav", torch.randn(5, 16000, generator=torch.Generator().manual_seed(0)) * 0.1)
    write_audio(path / "four.wav", torch.full((4, 1600), 0.1))
    return path


def _examples() -> list[Example]:
    heard = build_messages(system=SYSTEM)
    rows = []
    for index in range(8):
        recipe = MixtureRecipe(
            segments=[Segment(file="ab"[index % 2] + ".wav", role="wearer" if index % 3 else "bystander")],
            noise_type="Quiet Office",
        )
        rows.append(
            Example(
                id=f"mix-{index}",
                task="tool_call",
                split="train",
                messages=heard,
                audio={"mixture": recipe.to_dict()},
                target=TARGETS[index % 3],
                metadata={"seconds": 1.3},
            )
        )
    file = {"id": "file", "task": "asr", "split": "train", "messages": heard, "target": "hello"}
    rows.append(Example(**file, audio={"mc": "mc.wav"}))
    text = build_messages(system=SYSTEM, user="set an alarm")
    rows.append(Example(id="text", task="text", split="train", messages=text, target=TARGETS[1]))
    return rows


@pytest.fixture(scope="session")
def dataset(root: Path, processor: WearLlamaProcessor) -> ExampleDataset:
    renderer = MixtureRenderer(bank=RirBank.open(root / "bank"), noise=NoiseBank(), audio_root=root)
    return ExampleDataset(_examples(), root=root, array=processor.array, beam=processor.beam, renderer=renderer)


def _sampler(dataset: ExampleDataset) -> BucketBatchSampler:
    seconds = np.array([1.3 if example.audio else 0.0 for example in dataset.examples])
    count = len(dataset)
    lengths = Lengths(
        seconds=seconds,
        embeddings=(seconds * 25).astype(np.int64),
        tokens=np.full(count, 40),
        tasks=[example.task for example in dataset.examples],
    )
    return BucketBatchSampler(lengths, BatchConfig(max_rows=4, audio_buckets=2, text_buckets=1))


def _sounds(loader: DataLoader) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    return {item.example.id: item.audio for batch in loader for item in batch if item.audio}


def test_same_samples_with_and_without_workers(dataset: ExampleDataset) -> None:
    sampler = _sampler(dataset)
    inline = DataLoader(dataset, batch_sampler=sampler, collate_fn=list)
    spread = DataLoader(dataset, batch_sampler=sampler, collate_fn=list, num_workers=2, persistent_workers=True)
    rendered = []
    for epoch in range(2):
        sampler.set_epoch(epoch)
        alone, together = _sounds(inline), _sounds(spread)
        assert len(alone) == 9 and alone.keys() == together.keys()
        assert all(torch.equal(a, b) for key in alone for a, b in zip(alone[key], together[key], strict=True))
        rendered.append(alone)
    for key, (c0_N, _) in rendered[0].items():
        again_N = rendered[1][key][0]
        assert torch.equal(c0_N, again_N) == (key == "file"), "a mixture is rendered anew every epoch, a file is not"


def test_epoch_repeat_and_seed_make_other_mixtures(root: Path, dataset: ExampleDataset) -> None:
    def sound(data: ExampleDataset, key: int | Draw) -> torch.Tensor:
        audio = data[key].audio
        assert audio is not None
        return audio[0]

    other = ExampleDataset(
        dataset.examples, root=root, array=dataset.array, beam=dataset.beam, renderer=dataset.renderer, seed=1
    )
    first = sound(dataset, 0)
    variants = [sound(dataset, Draw(0, 1)), sound(dataset, Draw(0, 0, 1)), sound(other, 0)]
    assert all(first.shape != variant.shape or not torch.equal(first, variant) for variant in variants)
    assert torch.equal(first, sound(dataset, Draw(0, 0)))
    other.seed = 0
    other.set_epoch(1)
    assert torch.equal(sound(other, 0), variants[0])


def test_every_rendering_draws_one_of_the_arrays(root: Path, processor: WearLlamaProcessor) -> None:
    rows = _examples()[:4] + [row for row in _examples() if row.id == "file"]
    rows[1] = replace(rows[1], metadata={"seconds": 1.3, "seed_id": "pair"})
    rows[2] = replace(rows[2], audio=rows[1].audio, metadata={"seconds": 1.3, "seed_id": "pair"})
    write_manifest(root / "several.jsonl", rows)
    config = SftData(
        manifest=str(root / "several.jsonl"), bank=str(root / "bank"), other_banks=[str(root / "four_bank")]
    )
    several = load_sets(config, processor).train
    alone = load_sets(replace(config, other_banks=[]), processor).train
    (four,) = several.others
    assert four.array == load_array("easycom4")
    theirs = ExampleDataset(rows, root=root, array=four.array, beam=four.beam, renderer=four.renderer)

    def same(first: Item, second: Item) -> bool:
        return all(torch.equal(a, b) for a, b in zip(first.audio, second.audio, strict=True))  # type: ignore[arg-type]

    draws = [Draw(index, epoch) for index in range(4) for epoch in range(8)]
    own = [same(several[draw], alone[draw]) for draw in draws]
    assert own == [not same(several[draw], theirs[draw]) for draw in draws]
    assert 8 <= sum(own) <= 24, "each array about half of the time"
    assert all(same(several[Draw(1, epoch)], several[Draw(2, epoch)]) for epoch in range(8)), "a pair is heard alike"
    assert all(same(several[Draw(4, epoch)], alone[Draw(4, epoch)]) for epoch in range(8)), "files are of the own array"


def test_a_bank_of_another_array_is_refused(root: Path, processor: WearLlamaProcessor) -> None:
    write_manifest(root / "other.jsonl", _examples()[:2])
    other = SftData(manifest=str(root / "other.jsonl"), bank=str(root / "four_bank"))
    with pytest.raises(ValueError, match="four_bank is of array 'easycom4', wanted 'glasses5'"):
        load_sets(other, processor)
    with pytest.raises(ValueError, match=r"data.other_banks is \['x'\] with data.bank=None"):
        SftData(manifest="rows.jsonl", other_banks=["x"])


def test_files_give_aligned_channels(root: Path, dataset: ExampleDataset) -> None:
    c0_N, cx_N = dataset[8].audio  # type: ignore[misc]
    assert c0_N.shape == cx_N.shape == (16000,)
    heard = dataset.examples[8]
    write_audio(root / "beam.wav", cx_N[None], subtype="FLOAT")
    recorded = Example(**{**heard.to_dict(), "audio": {"mc": "mc.wav", "beam": "beam.wav"}})
    data = ExampleDataset([recorded], root=root, array=dataset.array, beam=dataset.beam)
    assert torch.equal(data[0].audio[1], cx_N)  # type: ignore[index]
    mix_MN = torch.stack([c0_N] * 5)
    assert apply_beam(mix_MN, dataset.beam).shape == c0_N.shape


def test_labels_cover_target_and_end_alone(dataset: ExampleDataset, processor: WearLlamaProcessor) -> None:
    items = [dataset[index] for index in (0, 1, 8, 9)]
    batch = Collator(processor)(items)
    sounds = [item.audio[0].shape[-1] for item in items if item.audio]
    placeholders = (batch["input_ids"] == processor.ids.audio).sum(dim=1).tolist()
    assert placeholders == [num_embeddings(samples, 2) for samples in sounds] + [0]
    assert batch["input_features"].shape[:2] == (3, 2)
    for row, item in enumerate(items):
        labels_S, ids_S = batch["labels"][row], batch["input_ids"][row]
        supervised = labels_S != -100
        wanted = processor.encode_target(item.example.target)
        assert wanted[-1] == processor.ids.eos and processor.ids.pad != processor.ids.eos
        assert labels_S[supervised].tolist() == wanted == ids_S[supervised].tolist()
        last = int(batch["attention_mask"][row].sum())
        assert supervised.nonzero().flatten().tolist() == list(range(last - len(wanted), last))


def test_augmentation_changes_what_training_hears_and_nothing_else(
    root: Path, dataset: ExampleDataset, processor: WearLlamaProcessor
) -> None:
    plain = [dataset[index] for index in (0, 9, 1)]
    augmented = ExampleDataset(
        dataset.examples, root=root, array=dataset.array, beam=dataset.beam, renderer=dataset.renderer,
        augment=Augmentation(warp=0.1, mask_spans=1), seed=dataset.seed,
    )  # fmt: skip
    seen = [augmented[index] for index in (0, 9, 1)]
    assert all(torch.equal(a.audio[0], b.audio[0]) for a, b in zip(plain, seen, strict=True) if a.audio and b.audio)
    one, other = Collator(processor)(plain), Collator(processor)(seen)
    assert all(torch.equal(one[name], other[name]) for name in one if name != "input_features")
    frames = int(one["feature_lengths"][1])
    assert not torch.equal(one["input_features"][1], other["input_features"][1])
    alone = Collator(processor)([augmented[1]])["input_features"][0]
    assert torch.equal(alone, other["input_features"][1, :, :frames])


def test_training_and_inference_prompts_are_one(dataset: ExampleDataset, processor: WearLlamaProcessor) -> None:
    items = [dataset[0], dataset[9]]
    training, inference = Collator(processor)(items), Collator(processor, targets=False)(items)
    assert "labels" not in inference
    for row, item in enumerate(items):
        prompt = inference["input_ids"][row][inference["attention_mask"][row].bool()]
        whole = training["input_ids"][row][training["attention_mask"][row].bool()]
        assert whole.tolist() == prompt.tolist() + processor.encode_target(item.example.target)


def test_mute_is_one_token_and_prompts_are_short(processor: WearLlamaProcessor) -> None:
    assert len(processor.encode_target("[Mute]")) == 2
    prompts = load_prompts(style="compact")
    for kind, tools in (("wearvox", WEARVOX_TOOLS), ("vgbench", CONSEQUENTIAL_TOOLS)):
        prompt = processor.tokenizer.encode(prompts.system(kind, tools), add_special_tokens=False)
        assert len(prompt) <= 36, (kind, len(prompt))


def test_errors_name_the_example(root: Path, dataset: ExampleDataset, processor: WearLlamaProcessor) -> None:
    heard = build_messages(system=SYSTEM)
    file = {"task": "asr", "split": "train", "messages": heard, "target": "x"}
    rows = [
        Example(id="four", audio={"mc": "four.wav"}, **file),
        Example(id="gone", audio={"mc": "gone.wav"}, **file),
        Example(id="odd", audio={"mixture": {"segmets": []}}, **file),
        Example(id="late", audio={"mixture": {"segments": [{"file": "gone.wav", "role": "wearer"}]}}, **file),
    ]
    data = ExampleDataset(rows, root=root, array=load_array("glasses5"), beam=dataset.beam, renderer=dataset.renderer)
    for index, message in enumerate(
        ["found 4 channels, wanted 5", "gone.wav", r"unknown fields \['segmets'\]", "gone"]
    ):
        with pytest.raises(ValueError, match=f"example '{rows[index].id}': .*{message}"):
            data[index]
    with pytest.raises(ValueError, match=r"mixture without metadata\.seconds"):
        example_seconds(rows[2], root)
    assert example_seconds(dataset.examples[8], root) == 1.0
    too_long = torch.zeros(31 * 16000)
    items = [dataset[9], Item(rows[0], (too_long, too_long))]
    with pytest.raises(ValueError, match=r"example 'four': audio of 31.00 s"):
        Collator(processor)(items)
    with pytest.raises(ValueError, match="at least one item"):
        Collator(processor)([])
