"""Verbalised mathematics there and back: our words, Kokoro's voice, Whisper-base's ears; are they still the words?

Run as: python tools/check_spoken_math.py                       # 300 expressions of ten kinds
        python tools/check_spoken_math.py --count 30 --seed 1 --out runs/spoken_math_1

What is recognised goes through the same rules (Whisper writes digits and signs), so that words are compared with words.
Trips are kept in OUT/trips.jsonl, which a stopped run goes on with; the table is also written to OUT/report.md.
"""

# ruff: noqa: RUF001 (mathematical signs)
import argparse
import random
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jiwer
from tqdm import tqdm
from whisper_normalizer.english import EnglishSpellingNormalizer

from wearllama.atomic import write_text
from wearllama.data.verbalise import verbalise
from wearllama.data.voices import synthesize
from wearllama.evaluation.append_log import append_lines, read_lines
from wearllama.evaluation.cascade import AsrConfig, open_recogniser
from wearllama.evaluation.intervals import Rate
from wearllama.evaluation.tables import Table
from wearllama.evaluation.voxeval.build import BuildConfig

Draw = random.Random
SPELLING = EnglishSpellingNormalizer()
SOUNDS_LIKE = {
    "sign": "sine", "cosign": "cosine", "pie": "pi", "ex": "x", "why": "y", "see": "c", "sea": "c", "be": "b",
    "bee": "b", "to": "two", "too": "two", "for": "four", "won": "one", "route": "root", "row": "rho", "sigh": "psi",
    "fee": "phi", "new": "nu", "mew": "mu", "moo": "mu", "some": "sum", "tea": "t", "en": "n",
}  # fmt: skip
"""Words that sound as another in some speaker's mouth: an ear alone cannot tell them apart."""


def _fraction(draw: Draw) -> str:
    a, b, c, d = (draw.randint(1, 12) for _ in range(4))
    return draw.choice(
        (
            f"{a}/{b + 1}",
            f"{a}/{b + 1} + {c}/{d + 1}",
            f"(x + {a})/(x - {b})",
            rf"\frac{{{a}}}{{x + {b}}}",
            f"{a * 11}/{b * 13}",
        )
    )


def _power(draw: Draw) -> str:
    a, b = draw.randint(2, 20), draw.randint(2, 12)
    return draw.choice(
        (f"x^2 + {a}x", f"{a}x^3", f"10^-{b}", f"{a} × 10^{b}", f"(x + {a})^2", f"e^(-{b}x)", f"2^{a}", "x² + y²")
    )


def _negative(draw: Draw) -> str:
    a, b = draw.randint(2, 99), draw.randint(2, 99)
    return draw.choice(
        (f"-{a}", f"-{a} + {b}", f"{a} - (-{b})", f"-{a}x", f"-{a}.{b % 10}", f"x = -{a}", f"-{a} - {b}")
    )


def _unit(draw: Draw) -> str:
    a, b = draw.randint(2, 90), draw.randint(1, 9)
    return draw.choice(
        (f"{a} km/h", f"{a}.{b} m/s^2", f"{a} kg", f"-{a} °C", f"{a} µF", f"{a} mL", f"{a}.{b} kJ/mol", f"{a} Ω",
         f"{a} Hz", f"{a} cm^2", f"{a} ms", f"{a} dB")
    )  # fmt: skip


def _greek(draw: Draw) -> str:
    a = draw.randint(2, 30)
    letter, other = draw.sample("αβγδθλμπρσφω", 2)
    return draw.choice(
        (f"{letter} + {other}", f"{a}{letter}", f"{letter}^2", f"sin({letter})", rf"$\lambda = {a}$", "2πr",
         f"{letter} = {a}", f"{letter}/{other}")
    )  # fmt: skip


def _matrix(draw: Draw) -> str:
    a, b, c, d = (draw.randint(-9, 20) for _ in range(4))
    latex = rf"\begin{{pmatrix}}{a} & {b} \\ {c} & {d}\end{{pmatrix}}"
    return draw.choice(
        (f"[[{a}, {b}], [{c}, {d}]]", latex, f"[[{a}, {b}, {c}]]", "a 2x2 matrix", f"det [[{a}, {b}], [{c}, {d}]]")
    )


def _root(draw: Draw) -> str:
    a, b = draw.randint(2, 100), draw.randint(2, 9)
    return draw.choice(
        (f"√{a}", f"√(x + {b})", rf"\sqrt{{{a}}}", rf"\sqrt[3]{{{a}}}", f"log_{b}({a})", f"ln({a})", f"cos({b}x)",
         f"tan(x)/{b}", f"{b}!", f"|x - {b}|")
    )  # fmt: skip


def _relation(draw: Draw) -> str:
    a, b, c = (draw.randint(2, 12) for _ in range(3))
    return draw.choice(
        (f"{a}x + {b} = {c}", f"x^2 - {a}x + {b} = 0", f"x ≥ {a}", f"|x| < {a}", f"x ≠ {b}", f"{a} ≤ x",
         f"y = {a}x - {b}", f"x ≈ {a}.{b % 10}")
    )  # fmt: skip


def _function(draw: Draw) -> str:
    a, b = draw.randint(2, 12), draw.randint(2, 12)
    return draw.choice(
        (f"f(x) = {a}x + {b}", f"f'(x) = {a}x", f"f(g({a}))", f"g(x) = x^{b}", f"f({a}) = {b}", f"p(x) = x^2 + {a}")
    )


def _number(draw: Draw) -> str:
    a, b = draw.randint(1000, 99999), draw.randint(1, 99)
    return draw.choice(
        (
            f"{a:,}",
            f"{b}.{a % 100:02d}",
            f"{b}%",
            f"${b}.50",
            f"{b} million",
            f"0.0{b % 9 + 1}",
            f"{a:,} + {b}",
            f"£{b}",
        )
    )


KINDS: dict[str, Callable[[Draw], str]] = {
    "fractions": _fraction, "powers": _power, "negative numbers": _negative, "units": _unit, "Greek letters": _greek,
    "matrices": _matrix, "roots and logarithms": _root, "equations": _relation, "functions": _function,
    "numbers and money": _number,
}  # fmt: skip


def expressions(count: int, seed: int) -> list[tuple[str, str]]:
    """(kind, expression), kinds in turn, none twice."""
    draw, found = Draw(seed), dict[str, str]()
    while len(found) < count:
        kind = list(KINDS)[len(found) % len(KINDS)]
        expression = next(e for _ in range(1000) if (e := KINDS[kind](draw)) not in found)
        found[expression] = kind
    return [(kind, expression) for expression, kind in found.items()]


def spoken_words(text: str, *, by_ear: bool = False) -> list[str]:
    """Words of a text after our rules, without case, punctuation and articles; ``by_ear`` joins what sounds alike."""
    text = re.sub(r"(\d+)-(\d+)ths?\b", r"\1/\2", text)  # Whisper's way to write a fraction
    words = re.sub(r"[^a-z']+", " ", SPELLING(verbalise(text).lower())).split()
    words = [word for word in words if word not in ("the", "and")]
    return [SOUNDS_LIKE.get(word, word) for word in words] if by_ear else words


def sentence(expression: str) -> str:
    """An expression as a question has it."""
    return f"What can be said about {expression}?"


def travel(todo: Sequence[tuple[str, str]], log: Path) -> None:
    """Speak and recognise what the log lacks; the voices take turns."""
    known = {row["said"] for row in read_lines(log)}
    voices = list(BuildConfig().voices.values())
    recognise = open_recogniser(AsrConfig(language="en", beam_size=5))
    for index, (kind, expression) in enumerate(tqdm(todo, desc="speak and listen", unit="expression")):
        said, voice = verbalise(sentence(expression)), voices[index % len(voices)]
        if said not in known:
            heard = recognise(synthesize(said, voice))
            append_lines(log, [{"kind": kind, "expression": expression, "voice": voice, "said": said, "heard": heard}])


def table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Rates of whole questions that came back, by kind."""
    lines = []
    for kind in (*KINDS, "all"):
        mine = [row for row in rows if kind in (row["kind"], "all")]
        pairs = [(spoken_words(row["said"]), spoken_words(row["heard"])) for row in mine]
        errors = jiwer.wer([" ".join(w) for w, _ in pairs], [" ".join(h) for _, h in pairs]) if pairs else 0.0
        lines.append((
            kind, str(Rate(sum(wanted == heard for wanted, heard in pairs), len(pairs))),
            str(Rate(sum(came_back(row) for row in mine), len(mine))), f"{100 * errors:.1f} %",
        ))  # fmt: skip
    note = "Whole questions; 95 % Wilson intervals. What sounds alike: sine and sign, pi and pie, two and to, ..."
    return Table(
        "Mathematics there and back", ("kind", "same words", "or what sounds alike", "word errors"), lines, note
    )


def came_back(row: Mapping[str, Any]) -> bool:
    """Whether an ear heard the intended words."""
    return spoken_words(row["said"], by_ear=True) == spoken_words(row["heard"], by_ear=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("runs/spoken_math"))
    args = parser.parse_args()
    todo = expressions(args.count, args.seed)
    log = args.out / "trips.jsonl"
    travel(todo, log)
    trips = {(row["expression"], row["said"]): row for row in read_lines(log)}
    rows = [trips[expression, verbalise(sentence(expression))] for _, expression in todo]
    found = table(rows)
    missed = [
        f"{row['expression']}\n    said  {row['said']}\n    heard {row['heard']}" for row in rows if not came_back(row)
    ]
    write_text(args.out / "report.md", found.markdown() + "\n")
    print("\n".join(missed), f"\n{found.text()}\n\n{log}, {args.out / 'report.md'}")


if __name__ == "__main__":
    main()
