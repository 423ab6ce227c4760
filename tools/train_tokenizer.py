"""Train the packaged tokenizer of the tiny and demo scales from the training wordings, their targets and our prompts.

Run as::

    python tools/train_tokenizer.py                       # rewrites wearllama/assets/tokenizer_demo
    python tools/train_tokenizer.py --vocab 2048 --out somewhere

Held-out wordings are not read.  A checkpoint carries its own tokenizer, so retraining this one breaks no old model.
"""

import argparse
import random
from collections.abc import Iterator
from pathlib import Path

from wearllama.data.actions import Call, answer, format_action, mute, tool
from wearllama.data.prompts import load_prompts
from wearllama.data.textgen import Utterance, generate, wearvox_tools
from wearllama.data.tools import CONSEQUENTIAL_TOOLS, WEARVOX_TOOLS
from wearllama.modeling.factory import PACKAGED_TOKENIZER
from wearllama.modeling.tokenizer import train_tokenizer


def training_texts(fills: int, seed: int = 0) -> Iterator[str]:
    """Sentences, targets in both dialects and compact prompts, about as often as training will show them."""
    prompts = load_prompts(style="compact")
    systems = [
        prompts.system("wearvox", WEARVOX_TOOLS),
        prompts.system("vgbench", CONSEQUENTIAL_TOOLS),
        prompts.system("asr"),
    ]
    for number, row in enumerate(generate("train", random.Random(seed), fills=fills)):
        yield row.text
        yield target(row)
        yield systems[number % len(systems)]


def target(row: Utterance) -> str:
    """What the assistant would reply to the sentence."""
    if row.kind == "command" and row.tool is not None:
        dialect = "wearvox" if row.tool in wearvox_tools() else "vgbench"
        return format_action(tool(Call(row.tool, row.arguments)), dialect)
    return format_action(answer(row.answers[0]) if row.answers else mute(), "wearvox")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=PACKAGED_TOKENIZER)
    parser.add_argument("--vocab", type=int, default=1024)
    parser.add_argument("--fills", type=int, default=4, help="times that each wording's slots are filled")
    arguments = parser.parse_args()
    texts = list(training_texts(arguments.fills))
    tokenizer = train_tokenizer(texts, arguments.vocab)
    tokenizer.save_pretrained(arguments.out)
    spent = sum(len(tokenizer.encode(text)) for text in texts)
    print(f"{arguments.out}: {len(tokenizer)} tokens, {sum(map(len, texts)) / spent:.2f} characters a token")


if __name__ == "__main__":
    main()
