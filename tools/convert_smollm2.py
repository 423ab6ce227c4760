"""SmolLM2-135M-Instruct: the packaged GGUF -> transformers safetensors, once (about half a minute, 538 MB in fp32).

Run as::

    python tools/convert_smollm2.py                        # -> <cache>/smollm2
    python tools/convert_smollm2.py --out models/smollm2 --dtype bfloat16

The result loads with `AutoModelForCausalLM.from_pretrained`; it is the decoder of experiment=smollm2.
"""

from __future__ import annotations

import argparse
import os
import shutil
from pathlib import Path

import torch

from wearllama.data.assets import cache_root, fetch

GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"


def convert(out: Path, *, cache_dir: str | None = None, dtype: torch.dtype = torch.float32) -> Path:
    """Write the dequantised model and its tokenizer to `out` (atomic; skipped when already there); returns `out`."""
    if (out / "model.safetensors").is_file() and (out / "tokenizer.json").is_file():
        return out
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    source = fetch("smollm2_gguf", cache_dir)
    # Left quantised, the model would refuse to be saved or trained.
    model = AutoModelForCausalLM.from_pretrained(
        source, gguf_file=GGUF, quantization_config=GgufConfig(dequantize=True), dtype=dtype
    )
    tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=GGUF)
    temporary = out.with_name(out.name + ".tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    model.save_pretrained(temporary)
    tokenizer.save_pretrained(temporary)
    shutil.rmtree(out, ignore_errors=True)
    os.replace(temporary, out)
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="default: <cache>/smollm2")
    parser.add_argument("--cache-dir")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    args = parser.parse_args()
    out = args.out or cache_root(args.cache_dir) / "smollm2"
    convert(out, cache_dir=args.cache_dir, dtype=getattr(torch, args.dtype))
    size = sum(path.stat().st_size for path in out.iterdir())
    print(f"{out}: {size / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
