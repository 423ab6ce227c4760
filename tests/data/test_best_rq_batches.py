"""Batches of BEST-RQ: files checked and cut, one batch for one number, views that share masks and targets."""

import pickle
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from torch.utils.data import DataLoader

from wearllama.audio.array import load_array
from wearllama.audio.io import AudioError, read_audio
from wearllama.data.audio_folder import AudioClip, find_clips, load_clips, read_clip, save_clips
from wearllama.data.best_rq_batches import BestRqBatches, ClipConfig, FolderSource
from wearllama.modeling.best_rq import IGNORED, BestRqConfig
from wearllama.training.pretraining import only_item

CONFIG = BestRqConfig(codebooks=2, codes=16)


def write(path: Path, seconds: float, *, channels: int = 1, rate: int = 16000, seed: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    audio = 0.1 * np.random.default_rng(seed).standard_normal((round(rate * seconds), channels))
    soundfile.write(path, audio, rate)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(9):
        suffix = "flac" if number % 2 else "wav"
        write(tmp_path / f"{number % 3}" / f"clip{number}.{suffix}", 0.6 + 0.2 * number, seed=number)
    return tmp_path


def source(folder: Path, **changes: object) -> FolderSource:
    config = ClipConfig(batch_seconds=6.0, buckets=2, **changes)
    return FolderSource(folder, find_clips(folder, channels=1), config=config, channels="mono", array=None, seed=3)


def test_files_are_found_below_and_wrong_ones_named(folder: Path) -> None:
    clips = find_clips(folder, channels=1)
    assert len(clips) == 9 and clips[0].file == "0/clip0.wav"
    write(folder / "short.wav", 0.2)
    with pytest.warns(UserWarning, match="1 files shorter than 0.5 s"):
        assert find_clips(folder, channels=1) == clips
    (folder / "other.mp3").write_bytes(b"x")
    (folder / "short.wav").unlink()
    with pytest.warns(UserWarning, match=r"1 files of other formats are left out, first .*other\.mp3"):
        find_clips(folder, channels=1)
    write(folder / "stereo.wav", 1.0, channels=2)
    with pytest.raises(AudioError, match=r"stereo\.wav: found 2 channels, wanted 1"):
        find_clips(folder, channels=1)


def test_another_rate_is_an_error_unless_asked_for(tmp_path: Path) -> None:
    write(tmp_path / "old.wav", 2.0, rate=11025)
    with pytest.raises(AudioError, match=r"old\.wav: found 11025 Hz, wanted 16000 Hz .*resample=true"):
        find_clips(tmp_path, channels=1)
    (clip,) = find_clips(tmp_path, channels=1, resample=True)
    assert read_clip(tmp_path, clip, channels=1).shape == (1, clip.samples) == (1, 32000)


def test_a_folder_without_audio(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no \.wav or \.flac file"):
        find_clips(tmp_path, channels=1)


def test_a_part_of_a_file_is_that_part(tmp_path: Path) -> None:
    path = write(tmp_path / "long.flac", 3.0)
    whole, clip = read_audio(path), AudioClip("long.flac", 48000, 16000)
    part = read_clip(tmp_path, clip, channels=1, start=7000, samples=16000)
    assert torch.equal(part, whole[:, 7000:23000])
    with pytest.raises(AudioError, match="wanted 10 frames from frame 47995, found 48000"):
        read_audio(path, start=47995, frames=10)


def test_the_runs_list_of_clips_is_kept(folder: Path, tmp_path: Path) -> None:
    clips = find_clips(folder, channels=1)
    save_clips(tmp_path / "clips.json", clips)
    assert load_clips(tmp_path / "clips.json") == clips
    (tmp_path / "clips.json").write_text("{}")
    with pytest.raises(ValueError, match="not a run's list of clips"):
        load_clips(tmp_path / "clips.json")


def test_every_clip_once_an_epoch_in_another_order(folder: Path) -> None:
    drawn = source(folder)
    count = drawn.batches_per_epoch
    epochs = [[tuple(batch) for batch in drawn._deal(epoch)] for epoch in (0, 1)]
    for batches in epochs:
        assert len(batches) == count and sorted(row for batch in batches for row in batch) == list(range(9))
        for batch in batches:
            assert max(drawn.clips[row].seconds for row in batch) * len(batch) <= 6.0
    assert epochs[0] != epochs[1]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_number_is_a_batch_whatever_the_workers(folder: Path, workers: int) -> None:
    batches = BestRqBatches(source(folder), CONFIG, num_batches=8, seed=5)
    alone = [pickle.loads(pickle.dumps(batches))[number] for number in (6, 1)]
    loaded = list(DataLoader(batches, batch_size=1, num_workers=workers, collate_fn=only_item))
    for one, number in zip(alone, (6, 1), strict=True):
        for name, tensor in one.items():
            assert torch.equal(tensor, loaded[number][name]), name


def test_loss_frames_are_wholly_masked_and_whole(folder: Path) -> None:
    batches = BestRqBatches(source(folder), CONFIG, num_batches=6, seed=5)
    losses = 0
    for number in range(len(batches)):
        batch = batches[number]
        for row, frames in enumerate(batch["mel_lengths_B"].tolist()):
            chosen = (batch["labels"][row] != IGNORED).nonzero()[:, 0].tolist()
            losses += len(chosen)
            assert all(8 * frame + 8 <= frames for frame in chosen)
            for frame in chosen:  # noise of deviation .1 and mean 0, whatever was there before
                seen = batch["seen_feats_BTF"][row, 8 * frame : 8 * frame + 8]
                assert 0.05 < float(seen.std()) < 0.15 and abs(float(seen.mean())) < 0.03
    assert losses > 50


def test_long_clips_are_cropped_elsewhere_in_each_epoch(tmp_path: Path) -> None:
    write(tmp_path / "long.wav", 5.0)
    batches = BestRqBatches(source(tmp_path, crop_frames=100), CONFIG, num_batches=3, seed=0)
    assert batches[0]["mel_lengths_B"].tolist() == [100]
    assert not torch.equal(batches[0]["power_CTF"], batches[1]["power_CTF"])


def test_the_level_moves_what_is_seen_not_the_targets(folder: Path) -> None:
    still = BestRqBatches(source(folder, gain_db=(0.0, 0.0)), CONFIG, num_batches=2, seed=5)[1]
    moved = BestRqBatches(source(folder, gain_db=(-20.0, -20.0)), CONFIG, num_batches=2, seed=5)[1]
    assert torch.equal(still["power_CTF"], moved["power_CTF"]) and torch.equal(still["labels"], moved["labels"])
    seen = (still["labels"] == IGNORED).repeat_interleave(8, 1)[:, : still["seen_feats_BTF"].shape[1]]
    assert float((still["seen_feats_BTF"] - moved["seen_feats_BTF"])[seen].median()) > 0.5


@pytest.mark.parametrize("target_view", [0, 1])
def test_both_views_of_an_array_recording_share_masks_and_targets(tmp_path: Path, target_view: int) -> None:
    array = load_array("glasses5")
    for number in range(3):
        write(tmp_path / f"{number}.wav", 1.5, channels=array.num_mics, seed=number)
    clips = find_clips(tmp_path, channels=array.num_mics)
    config = ClipConfig(batch_seconds=20.0, buckets=1)
    both = FolderSource(tmp_path, clips, config=config, channels="mc", array=array, seed=1)
    batch = BestRqBatches(both, CONFIG, num_batches=1, seed=1, target_view=target_view)[0]
    assert batch["seen_feats_BTF"].shape[0] == 6 and batch["power_CTF"].shape[0] == 3
    assert torch.equal(batch["labels"][:3], batch["labels"][3:])
    first, second = batch["seen_feats_BTF"].chunk(2)
    assert not torch.allclose(first, second)
    alone = "c0" if target_view == 0 else "cx"
    one = FolderSource(tmp_path, clips, config=config, channels=alone, array=array, seed=1)
    expected = BestRqBatches(one, CONFIG, num_batches=1, seed=1)[0]
    torch.testing.assert_close(batch["power_CTF"], expected["power_CTF"])


def test_what_does_not_go_together_is_named(folder: Path) -> None:
    clips = find_clips(folder, channels=1)
    with pytest.raises(ValueError, match=r"channels=mc with array=None"):
        FolderSource(folder, clips, config=ClipConfig(), channels="mc", array=None, seed=0)
    with pytest.raises(ValueError, match=r"clip8\.wav gives 1 x 2\.2 s, wanted at most clips\.batch_seconds = 1\.0"):
        FolderSource(folder, clips, config=ClipConfig(batch_seconds=1.0), channels="mono", array=None, seed=0)
    with pytest.raises(ValueError, match=r"clips\.gain_db"):
        ClipConfig(gain_db=(3.0, -3.0))
