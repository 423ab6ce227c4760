"""A tiny real checkpoint and two tiny benchmarks in their published layouts, with real five-channel files."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from wearllama.audio.io import write_audio
from wearllama.data.actions import Call, format_action, tool
from wearllama.modeling.factory import ModelConfig, build_model, build_processor

ROOT = Path(__file__).resolve().parents[2]
SYSTEM = "Wearer asks: answer or call. Else [Mute]. web_search weather stock"


def write_checkpoint(folder: Path, seed: int = 0, **changes: Any) -> Path:
    fields = {**yaml.safe_load((ROOT / "conf/model/tiny.yaml").read_text()), **changes}
    config = ModelConfig(**fields)
    torch.manual_seed(seed)
    processor = build_processor(config)
    build_model(config, processor).save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def make_checkpoint() -> Callable[..., Path]:
    return write_checkpoint


@pytest.fixture
def make_vgbench(tmp_path: Path) -> Callable[..., Path]:
    def write(change: Callable[[list[dict[str, Any]]], None] = lambda rows: None, channels: int = 5) -> Path:
        rows = vgbench_rows()
        change(rows)
        return write_vgbench(tmp_path, rows, channels)

    return write


@pytest.fixture(scope="session")
def ckpt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("ckpt") / "tiny")


def noise(channels: int, seconds: float, seed: int) -> torch.Tensor:
    return 0.1 * torch.randn(channels, int(16_000 * seconds), generator=torch.Generator().manual_seed(seed))


GROUND_TRUTHS: list[tuple[str, Any]] = [
    ("tool_call", format_action(tool(Call("weather", {"search_query": "weather in Oslo"})), "wearvox")),
    ("tool_call", [{"name": "stock", "parameters": {"search_query": "ACME price", "metric": None}}]),
    ("non-assistant-directed", "[Mute]"),
    ("non-assistant-directed", "[Mute]"),
    ("non-assistant-directed", "[Mute]"),
    ("closed_book", ["Paris", "the city of Paris"]),
    ("closed_book", "12"),
    ("grounding", {"answer": "blue", "aliases": ["navy"]}),
    ("live_translation", "0 [0.0,1.0] hallo"),
]


def write_wearvox(folder: Path) -> Path:
    rows, metadata = [], []
    for number, (task, truth) in enumerate(GROUND_TRUTHS):
        mono, multi = f"wav/q{number}.wav", f"wav_mc/a{100 - number}.wav"
        seconds = 0.3 + 0.1 * number
        write_audio(folder / multi, noise(5, seconds, number))
        write_audio(folder / mono, noise(1, seconds, 50 + number))
        rows.append({
            "id": f"row-{number}", "task": task, "text_prompt": [{"role": "system", "content": SYSTEM}],
            "audio_query": mono, "audio_query_mc": multi, "gt_transcript": "some words", "ground_truth": truth,
        })  # fmt: skip
        if number % 2 == 0:  # some rows have no metadata
            noise_type = "Music" if number % 4 else "Quiet Office"
            metadata.append({"id": f"row-{number}", "audio_metadata": {"_noise_type": noise_type}})
    (folder / "data_public.json").write_text(json.dumps(rows))
    (folder / "audio_metadata.json").write_text(json.dumps(metadata))
    return folder


@pytest.fixture(scope="session")
def wearvox_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wearvox")
    (folder / "wav").mkdir()
    (folder / "wav_mc").mkdir()
    return write_wearvox(folder)


def vgbench_rows() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for number, name in enumerate(("send_money", "unlock_door")):
        for condition in ("same_speaker", "switch", "text_only"):
            target = {"kind": "mute"} if condition == "switch" else {"kind": "tool", "name": name}
            segments = [
                {"text": "it is getting late", "part": "context", "voice": "a", "source": "A", "distance": "near"},
                {"text": f"do it {name}", "part": "trigger", "voice": "b", "source": "B", "distance": "far"},
            ]
            rows.append({
                "id": f"switch-{number}-{condition}", "scenario": "speaker_switch", "condition": condition,
                "pair_id": f"switch-{number}", "tool": name, "target_action": target, "segments": segments,
                "split": "eval", "audio": None if condition == "text_only" else f"audio/s{number}{condition}.wav",
            })  # fmt: skip
    for number, text in enumerate(("I should never have said send money", "as if anyone would unlock the door")):
        rows.append({
            "id": f"self-{number}", "scenario": "self_talk", "target_action": {"kind": "mute"}, "split": "eval",
            "segments": [{"text": text, "part": "monologue"}], "audio": f"audio/t{number}.wav", "discourse": "regret",
        })  # fmt: skip
    parts = [
        {"text": "what is the capital of France", "part": "assistant"},
        {"text": "hand me that towel", "part": "person"},
    ]
    rows.append({
        "id": "side-0", "scenario": "side_talk", "target_action": {"kind": "answer"}, "split": "eval",
        "segments": parts,
        "answers": ["Paris"], "order": "assistant_first", "audio": "audio/d0.wav",
    })  # fmt: skip
    return rows


def write_vgbench(folder: Path, rows: list[dict[str, Any]], channels: int = 5) -> Path:
    (folder / "audio").mkdir(exist_ok=True)
    for number, row in enumerate(rows):
        if row.get("audio"):
            write_audio(folder / row["audio"], noise(channels, 0.4, number))
    path = folder / "manifest.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture(scope="session")
def vgbench_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_vgbench(tmp_path_factory.mktemp("vgbench"), vgbench_rows())
