"""A checkpoint as a folder that is ready to be pushed: weights, processor, code, and whatever else is given."""

import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from wearllama.atomic import write_json, write_text
from wearllama.audio.timebase import SAMPLE_RATE
from wearllama.modeling.hub_code import AUTO_MAP, ENTRY, flat_sources
from wearllama.modeling.modeling_wearllama import WearLlamaForConditionalGeneration
from wearllama.modeling.processing import WearLlamaProcessor

CONFIGS = ("config.json", "processor_config.json")
TRIAL_TOKENS = 24


def export_folder(
    model: WearLlamaForConditionalGeneration,
    processor: WearLlamaProcessor,
    out_dir: str | Path,
    *,
    texts: Mapping[str, str],
    max_shard_size: str = "5GB",
    overwrite: bool = False,
    check: bool = True,
) -> Path:
    """Write the folder, whole or not at all; returns it.

    Args:
        model: as it shall be saved: dtype, LoRA merged or not.
        processor: the model's.
        out_dir: new or empty; one that an earlier export wrote is replaced with ``overwrite``.
        texts: further files, name -> content (README.md, LICENSE).
        max_shard_size: largest safetensors file, as transformers has it (``200MB``).
        check: load the folder in a process without wearllama and compare what it says about a second of noise.

    Raises:
        ValueError: ``out_dir`` is in the way, or the folder says something else than the model.
    """
    out = Path(out_dir)
    _refuse_in_the_way(out, overwrite)
    out.parent.mkdir(parents=True, exist_ok=True)
    temporary = out.with_name(f".{out.name}.{secrets.token_hex(8)}.tmp")
    try:
        model.save_pretrained(temporary, max_shard_size=max_shard_size)
        processor.save_pretrained(temporary)
        for name in CONFIGS:
            settings = json.loads((temporary / name).read_text(encoding="utf-8"))
            write_json(temporary / name, settings | {"auto_map": AUTO_MAP}, indent=2)
        for name, text in {**flat_sources(), **texts}.items():
            write_text(temporary / name, text)
        if check:
            _check(temporary, model, processor)
        if out.exists():
            retired = temporary.with_suffix(".old")
            os.replace(out, retired)
            os.replace(temporary, out)
            shutil.rmtree(retired)
        else:
            os.replace(temporary, out)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return out


def _refuse_in_the_way(out: Path, overwrite: bool) -> None:
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    if not (out / f"{ENTRY}.py").is_file():
        raise ValueError(f"out_dir={out} is there and is no exported checkpoint; give a new folder")
    if not overwrite:
        raise ValueError(f"out_dir={out} holds an exported checkpoint already; overwrite=true replaces it")


# ---- the check ----------------------------------------------------------------------------------------------------

_BARE = """
import json, sys
sys.modules["wearllama"] = None  # importing it is now an error, installed or not
import numpy as np, torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoProcessor
folder, request = sys.argv[1], json.load(open(sys.argv[2]))
settings = dict(trust_remote_code=True)
config = AutoConfig.from_pretrained(folder, **settings)
model = AutoModelForCausalLM.from_pretrained(folder, dtype="auto", **settings).eval()
processor = AutoProcessor.from_pretrained(folder, **settings)
clips = [None if name is None else np.load(name) for name in request["clips"]]
batch = processor(request["messages"], clips)
with torch.inference_mode():
    ids = model.generate(**batch, max_new_tokens=request["max_new_tokens"], do_sample=False)
rows = ids[:, batch["input_ids"].shape[1]:]
print(json.dumps({"model_type": config.model_type, "ids": rows.tolist(), "texts": processor.batch_decode(rows)}))
"""


def generate_in_bare_process(
    folder: str | Path,
    messages: Sequence[list[dict[str, Any]]],
    clips: Sequence[np.ndarray | None],
    max_new_tokens: int = TRIAL_TOKENS,
) -> dict[str, Any]:
    """Greedy replies of a folder's model in a process of its own that has no wearllama.

    Returns:
        ``model_type``, ``ids`` and ``texts`` of the replies.

    Raises:
        ValueError: the folder does not load there; the message ends in what the process said.
    """
    with tempfile.TemporaryDirectory() as scratch:
        names = [None if clip is None else f"{scratch}/{number}.npy" for number, clip in enumerate(clips)]
        for name, clip in zip(names, clips, strict=True):
            if name is not None and clip is not None:
                np.save(name, clip)
        request = {"messages": list(messages), "clips": names, "max_new_tokens": max_new_tokens}
        write_json(f"{scratch}/request.json", request)
        # -I leaves PYTHONPATH and the working folder out; the code's copies go to a cache of their own.
        command = [sys.executable, "-I", "-c", _BARE, str(Path(folder).resolve()), f"{scratch}/request.json"]
        environment = os.environ | {"HF_HOME": scratch, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
        environment.pop("HF_MODULES_CACHE", None)
        done = subprocess.run(command, cwd=scratch, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise ValueError(f"{folder} does not load without wearllama: {done.stderr.strip()[-2000:]}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


def _check(folder: Path, model: WearLlamaForConditionalGeneration, processor: WearLlamaProcessor) -> None:
    noise_MN = np.random.default_rng(0).standard_normal((processor.array.num_mics, SAMPLE_RATE)) * 0.05
    clips = [noise_MN.astype(np.float32), None]
    heard = [{"role": "user", "content": [{"type": "audio"}]}]
    messages: list[list[dict[str, Any]]] = [heard, [{"role": "user", "content": "hello"}]]
    batch = processor(messages, clips).to(model.device)
    ids = model.eval().generate(**batch, max_new_tokens=TRIAL_TOKENS, do_sample=False)
    wanted = ids[:, batch["input_ids"].shape[1] :].tolist()
    found = generate_in_bare_process(folder, messages, clips)["ids"]
    if found != wanted:
        raise ValueError(f"{folder}: without wearllama the model says {found}, with it {wanted}")
