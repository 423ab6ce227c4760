"""The smollm2 scale with its real weights: two LoRA steps, then two WearVox items, through the launchers."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import soundfile
import torch
from safetensors.torch import load_file

from wearllama.data.assets import cache_root
from wearllama.modeling.factory import load_checkpoint
from wearllama.training.checkpoint import completed_facts

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = [cache_root() / "smollm2", ROOT / "cache" / "smollm2"]
WEIGHTS = next((folder for folder in FOLDERS if (folder / "model.safetensors").is_file()), None)
SPEECH = sorted((ROOT / "tests" / "fixtures" / "speech").glob("*.flac"))
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        WEIGHTS is None,
        reason=f"no SmolLM2 weights in {' or '.join(map(str, FOLDERS))}; python tools/convert_smollm2.py makes them",
    ),
]


def launch(*command: str) -> None:
    settings = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *command], cwd=ROOT, capture_output=True, text=True, timeout=1500, env=settings
    )
    assert done.returncode == 0, done.stderr[-3000:]


def write_two_items(folder: Path) -> Path:
    """WearVox's layout with one tool call and one side-talk of real speech."""
    rows = []
    truths = [("tool_call", [{"name": "weather", "parameters": {"search_query": "weather"}}])]
    truths.append(("non-assistant-directed", "[Mute]"))
    for name in ("wav", "wav_mc"):
        (folder / name).mkdir(parents=True)
    for number, (task, truth) in enumerate(truths):
        speech_N, rate = soundfile.read(SPEECH[number], dtype="float32")
        assert rate == 16_000
        soundfile.write(folder / f"wav/{number}.wav", speech_N, rate)
        soundfile.write(folder / f"wav_mc/{number}.wav", speech_N[:, None].repeat(5, axis=1), rate)
        rows.append({
            "id": f"row-{number}", "task": task, "audio_query": f"wav/{number}.wav", "ground_truth": truth,
            "audio_query_mc": f"wav_mc/{number}.wav", "gt_transcript": "",
            "text_prompt": [{"role": "system", "content": "Wearer asks: answer or call. Else [Mute]. weather"}],
        })  # fmt: skip
    (folder / "data_public.json").write_text(json.dumps(rows))
    return folder


def test_two_lora_steps_and_two_items(tmp_path: Path, manifest: Path) -> None:
    assert WEIGHTS is not None
    run_dir = tmp_path / "smollm2"
    launch(
        "recipes/sft.py", "experiment=smollm2", f"model.decoder={WEIGHTS}", f"data.manifest={manifest}",
        "data.bank=null", "train.steps=2", "train.warmup_steps=1", "train.log_every=1", "train.workers=0",
        "train.report_to=none", "train.use_cpu=true", "train.threads=1", "batches.max_rows=2",
        "batches.audio_buckets=1", "batches.text_buckets=1", f"run_dir={run_dir}",
    )  # fmt: skip
    facts = completed_facts(run_dir / "final")
    assert facts is not None and facts["steps"] == 2
    history = json.loads((run_dir / "checkpoint-2" / "trainer_state.json").read_text())["log_history"]
    losses = [line["loss"] for line in history if "loss" in line]
    assert len(losses) == 2 and all(0.0 < loss < 10.0 for loss in losses)  # ln 49152 = 10.8: knowing nothing
    assert_only_the_adapters_learnt(run_dir / "final", WEIGHTS)

    data, out = write_two_items(tmp_path / "wearvox"), tmp_path / "eval"
    launch(
        "eval/wearvox.py", f"ckpt={run_dir}", f"data={data}", f"out={out}", "controls=[]", "device=cpu",
        "max_new_tokens=8", "harness.ttft_items=1", "clips=0",
    )  # fmt: skip
    lines = [json.loads(line) for path in out.glob("wearvox/*/predictions-*.jsonl") for line in path.open()]
    assert sorted(line["id"] for line in lines) == ["row-0", "row-1"]
    # After two steps a reply may be empty: that the items were run is what can be asked.
    assert all(not line["error"] and line["latency"]["ttft_s"] > 0 for line in lines)
    results = json.loads(next(out.glob("wearvox/*/results.json")).read_text())
    assert results["items"] == 2


def assert_only_the_adapters_learnt(final: Path, source: Path) -> None:
    """Every weight of SmolLM2 is in the checkpoint unchanged, and every LoRA layer has left its zero start."""
    model, _ = load_checkpoint(final)
    trained = {name.replace(".base_layer.", "."): value for name, value in model.decoder.state_dict().items()}
    for name, weight in load_file(source / "model.safetensors").items():
        assert torch.equal(trained[name], weight), name
    outer = [value for name, value in trained.items() if ".lora_B." in name]
    assert len(outer) == 4 * model.config.text_config.num_hidden_layers
    assert all(value.abs().max() > 0 for value in outer)
