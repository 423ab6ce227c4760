"""Measure one part of the project against its alternatives; the last line printed is one JSON object with the ratios.

Run as: python tools/benchmark.py encoder
        python tools/benchmark.py mixing
        python tools/benchmark.py mixing fast=1
        python tools/benchmark.py batching fast=1
        python tools/benchmark.py mixing --help
        python tools/benchmark.py ttft
        python tools/benchmark.py evaluation fast=1
        python tools/benchmark.py rollout [scale=smollm2] [ckpt=runs/demo/sft] [fast=1]

The last line: {"benchmark": NAME, "ratios": {...}}.
"""

import importlib
import os
import sys
from pathlib import Path

# Before numpy and torch are imported: a benchmark measures one thread.
for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[name] = "1"

sys.path.append(str(Path(__file__).resolve().parents[1] / "recipes"))  # a scale is what recipes/sft.py trains
BENCHMARKS = ("batching", "encoder", "evaluation", "mixing", "rollout", "ttft")
"""Modules of benchmarks/; only the one that is asked for is imported."""

if __name__ == "__main__":
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    if wanted not in BENCHMARKS:
        print(f"error: no benchmark {wanted!r}; known: {', '.join(BENCHMARKS)}", file=sys.stderr)
        sys.exit(2)
    del sys.argv[1]
    importlib.import_module(f"benchmarks.{wanted}").main()
