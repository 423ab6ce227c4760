"""A real LoRA run, merged and exported in shards: the same logits without LoRA and without the library, and a start."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from wearllama.modeling.encoder_io import load_encoder, weight_files
from wearllama.modeling.factory import load_checkpoint
from wearllama.modeling.hub_code import ENTRY
from wearllama.training.checkpoint import FINAL, weights_file
from wearllama_launch import compose_config

CHAT = [[{"role": "system", "content": "Answer."}, {"role": "user", "content": [{"type": "audio"}]}]]
LORA = "model.lora={r: 4, alpha: 64, target_modules: [q_proj, v_proj, down_proj]}"
BARE = """
import json, sys
sys.modules["wearllama"] = None  # importing it is an error, installed or not
import numpy as np, torch
from transformers import AutoModel, AutoProcessor
folder, clip, chat, out = sys.argv[1:]
model = AutoModel.from_pretrained(folder, trust_remote_code=True).eval()
processor = AutoProcessor.from_pretrained(folder, trust_remote_code=True)
with torch.inference_mode():
    logits = model(**processor(json.loads(chat), [np.load(clip)])).logits
np.save(out, logits.numpy())
"""


@pytest.fixture(scope="module")
def lora_run(recipe: ModuleType, manifest: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """recipes/sft.py experiment=tiny with LoRA, long enough for the adapters to matter."""
    run_dir = tmp_path_factory.mktemp("lora")
    start(recipe, manifest, run_dir, LORA, "train.learning_rate=0.02")
    return run_dir


def start(recipe: ModuleType, manifest: Path, run_dir: Path, *overrides: str) -> None:
    base = ["experiment=tiny", f"data.manifest={manifest}", f"run_dir={run_dir}", "train.use_cpu=true"]
    config, _ = compose_config("sft", recipe.SftCommand, [*base, *overrides])
    recipe.main.__wrapped__(config)


@pytest.fixture(scope="module")
def merged(
    lora_run: Path, load_script: Callable[[str, str], ModuleType], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """tools/export_hub.py merge_lora=true, in shards."""
    export_hub = load_script("tools", "export_hub")
    out = tmp_path_factory.mktemp("hub") / "merged"
    overrides = [f"ckpt={lora_run}", f"out_dir={out}", "merge_lora=true", "max_shard_size=200KB", "check=false"]
    config, _ = compose_config("export_hub", export_hub.ExportHub, [*overrides, "licence=apache-2.0"])
    export_hub.main.__wrapped__(config)
    return out


def clip_5N() -> np.ndarray:
    return (0.1 * np.random.default_rng(0).standard_normal((5, 9_000))).astype(np.float32)


def logits(folder: Path, *, without_lora: bool = False) -> torch.Tensor:
    model, processor = load_checkpoint(folder)
    if without_lora:
        for name, weight in model.named_parameters():
            if ".lora_B." in name:
                torch.nn.init.zeros_(weight)
    with torch.no_grad():
        found: torch.Tensor = model(**processor(CHAT, [clip_5N()])).logits
    return found


def test_merged_and_sharded_it_says_what_it_learnt(lora_run: Path, merged: Path) -> None:
    wanted = logits(lora_run / FINAL)
    assert (logits(lora_run / FINAL, without_lora=True) - wanted).abs().max() > 0.01  # so that merging matters
    assert len(weight_files(weights_file(merged))) > 2
    torch.testing.assert_close(logits(merged), wanted, atol=1e-4, rtol=0)
    names = json.loads((merged / "model.safetensors.index.json").read_text())["weight_map"]
    assert not [name for name in names if "lora" in name or "base_layer" in name]
    assert json.loads((merged / "config.json").read_text())["lora"] is None


def test_it_loads_by_automodel_where_the_library_is_not(lora_run: Path, merged: Path, tmp_path: Path) -> None:
    assert (merged / f"{ENTRY}.py").is_file()
    np.save(tmp_path / "clip.npy", clip_5N())
    command = [sys.executable, "-I", "-c", BARE, str(merged), "clip.npy", json.dumps(CHAT), "logits.npy"]
    settings: dict[str, Any] = {**os.environ, "HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    settings.pop("HF_MODULES_CACHE", None)
    done = subprocess.run(command, cwd=tmp_path, env=settings, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    found = torch.from_numpy(np.load(tmp_path / "logits.npy"))
    torch.testing.assert_close(found, logits(lora_run / FINAL), atol=1e-4, rtol=0)


def test_shards_are_a_start_and_an_encoder(recipe: ModuleType, manifest: Path, merged: Path, tmp_path: Path) -> None:
    start(recipe, manifest, tmp_path / "further", f"init={merged}", "train.steps=2", "train.learning_rate=1e-9")
    torch.testing.assert_close(logits(tmp_path / "further" / FINAL), logits(merged), atol=1e-3, rtol=0)
    sizes = "model.encoder_config={}"  # they come with the weights
    start(recipe, manifest, tmp_path / "heard", f"model.encoder={merged}", sizes, "model.freeze.encoder=true")
    trained = load_encoder(tmp_path / "heard" / FINAL).state_dict()
    assert all(torch.equal(trained[name], weight) for name, weight in load_encoder(merged).state_dict().items())


def test_the_fingerprint_follows_every_shard(recipe: ModuleType, manifest: Path, merged: Path) -> None:
    overrides = ["experiment=tiny", f"data.manifest={manifest}", f"init={merged}"]
    config, _ = compose_config("sft", recipe.SftCommand, overrides)
    assert set(map(str, weight_files(weights_file(merged)))) < set(recipe.data_files(config))
