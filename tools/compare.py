"""Compare two runs of a benchmark on the same items: paired bootstrap and McNemar's test.

Run as: python tools/compare.py runs/eval/wearvox/sc-1a2b3c4d runs/eval/wearvox/mc-5e6f7a8b
        python tools/compare.py RUN_A RUN_B --systems model "majority class" --tool-mark name --out compare.md
        python tools/compare.py RUN RUN --systems model "model, silence"
"""

import argparse
import sys
from pathlib import Path

from wearllama.atomic import write_text
from wearllama.evaluation.compare import compare
from wearllama.evaluation.items import read_items


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("first", type=Path, help="run folder or items.csv")
    parser.add_argument("second", type=Path)
    parser.add_argument("--systems", nargs=2, default=["model", "model"], help="which system of each run")
    parser.add_argument("--tool-mark", choices=["name", "loose", "strict"], default="strict")
    parser.add_argument("--out", type=Path, help="Markdown file")
    args = parser.parse_args()
    try:
        rows = []
        for path, system in zip((args.first, args.second), args.systems, strict=True):
            systems = read_items(path)
            if system not in systems:
                raise ValueError(f"{path}: no system {system!r}; it has {sorted(systems)}")
            rows.append(systems[system])
        names = (f"A ({args.systems[0]})", f"B ({args.systems[1]})")
        found = compare(rows[0], rows[1], names, mark=args.tool_mark)
    except ValueError as error:
        sys.exit(f"error: {error}")
    print(f"A: {args.first}\nB: {args.second}\nitems in A only: {found.only[0]}, in B only: {found.only[1]}")
    for table in found.tables:
        print(f"\n{table.text()}")
    if args.out:
        write_text(args.out, "\n\n".join(table.markdown() for table in found.tables))


if __name__ == "__main__":
    main()
