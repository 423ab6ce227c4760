"""One set of tables of several runs of a benchmark: a checkpoint beside a cascade, a server and what was published.

Run as: python tools/table.py runs/eval/wearvox/sft-1a2b3c4d runs/eval/wearvox/whisper-smollm2-5e6f7a8b
        python tools/table.py RUN RUN RUN --all --out docs/results/models.md
        python tools/table.py RUN/audio-direct-0 RUN/text-direct-0     # VoxEval: models by condition

Of each run its model; its controls stay in its own report. --all: every table, not the headline alone.
"""

import argparse
import sys
from pathlib import Path

from wearllama.atomic import write_text
from wearllama.evaluation.merged import merge_runs
from wearllama.evaluation.report import read_run
from wearllama.evaluation.tables import tables_of
from wearllama.evaluation.voxeval.tables import condition_table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, help="run folders")
    parser.add_argument("--all", action="store_true", help="every table")
    parser.add_argument("--out", type=Path, help="Markdown file")
    args = parser.parse_args()
    try:
        voxeval = "conditions" in read_run(args.runs[0])[0]
        tables = [condition_table(args.runs)] if voxeval else tables_of(merge_runs(args.runs))
    except ValueError as error:
        sys.exit(f"error: {error}")
    chosen = tables if args.all else tables[:1]
    for table in chosen:
        print(f"\n{table.text()}")
    if args.out:
        write_text(args.out, "\n\n".join(table.markdown() for table in chosen) + "\n")


if __name__ == "__main__":
    main()
