"""How far two judges, or a judge and people, agree: kappa, Pearson's correlation, raw agreement.

Run as: python tools/agreement.py runs/eval/wearvox/A/judgements-qa.jsonl people.csv
        python tools/agreement.py A/judgements-translation.jsonl B/judgements-translation.jsonl

A CSV file has the columns id and score (for translations the id is ROW#TURN).
"""

import argparse
import sys

from wearllama.evaluation.agreement import agree, read_scores


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("first")
    parser.add_argument("second")
    args = parser.parse_args()
    try:
        found = agree(read_scores(args.first), read_scores(args.second))
    except ValueError as error:
        sys.exit(f"error: {error}")
    print(f"items scored by both   {found.items} (only first: {found.only_first}, only second: {found.only_second})")
    print(f"equal scores           {100 * found.raw:.1f} %")
    print(f"Cohen's kappa          {found.kappa:.3f}")
    print(f"Pearson's correlation  {found.pearson:.3f}")


if __name__ == "__main__":
    main()
