"""Expressions in words: a small parser over tokens, and how each part is said.

``4/(2+8)`` -> "four divided by the sum of two and eight", ``x^2 - 1`` -> "x squared minus one",
``f'(x) = 3/4`` -> "f prime of x equals three quarters".
"""

# ruff: noqa: RUF001 (Greek letters)
import re
from typing import NamedTuple

from wearllama.data.number_words import fraction, number

GREEK = {
    "α": "alpha", "β": "beta", "γ": "gamma", "δ": "delta", "ε": "epsilon", "ζ": "zeta", "η": "eta", "θ": "theta",
    "κ": "kappa", "λ": "lambda", "μ": "mu", "ν": "nu", "ξ": "xi", "π": "pi", "ρ": "rho", "σ": "sigma", "τ": "tau",
    "φ": "phi", "χ": "chi", "ψ": "psi", "ω": "omega", "Γ": "gamma", "Δ": "delta", "Θ": "theta", "Λ": "lambda",
    "Π": "pi", "Σ": "sigma", "Φ": "phi", "Ψ": "psi", "Ω": "omega",
}  # fmt: skip
FUNCTIONS = {
    "sin": "the sine of", "cos": "the cosine of", "tan": "the tangent of", "ln": "the natural logarithm of",
    "log": "the logarithm of", "exp": "e to the power of", "det": "the determinant of", "sqrt": "the square root of",
    "√": "the square root of", "∛": "the cube root of", "max": "the maximum of", "min": "the minimum of",
    "gcd": "the greatest common divisor of",
    "lcm": "the least common multiple of", "arcsin": "the arc sine of", "arccos": "the arc cosine of",
    "arctan": "the arc tangent of", "lim": "the limit of", "dim": "the dimension of",
}  # fmt: skip
RELATIONS = {
    "=": "equals", "≠": "is not equal to", "<": "is less than", ">": "is greater than",
    "≤": "is less than or equal to", "≥": "is greater than or equal to", "≈": "is approximately", "∈": "in",
    "→": "goes to", "⊂": "is a subset of", "∪": "union", "∩": "intersected with", "≡": "is congruent to",
    "∝": "is proportional to", "|": "divides", ":": "to",
}  # fmt: skip
_SUMS = {"+": "plus", "-": "minus", "±": "plus or minus"}
_RUNS_ON = frozenset({"atom", "number", "term", "power"})
"""What a factor can follow without "times"; behind a function or a long exponent it would seem part of it."""
_TAKES_ARGUMENTS = frozenset("fghpquvFGHPTSLRφψ")
_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+)"
    rf"|(?P<function>{'|'.join(sorted(FUNCTIONS, key=len, reverse=True))})(?![A-Za-z])"
    r"|(?P<derivative>d/d[a-z])|(?P<letter>[A-Za-zα-ωΑ-Ω∞])(?P<primes>['′]*)"
    r"|(?P<sign>\*\*|[-+±*/^_()\[\]{},!%°=≠<>≤≥≈∈→⊂∪∩≡∝|:]))"
)


class Token(NamedTuple):
    kind: str
    text: str


class Spoken(NamedTuple):
    """Words of a part, what it is (``atom``, ``term``, ``sum``, ``difference``, ``product``, ...), its members."""

    words: str
    kind: str = "atom"
    parts: tuple[str, ...] = ()


class MathError(ValueError):
    """What was given is no expression."""


def say_math(text: str) -> str:
    """An expression in words; :class:`MathError` where it is none."""
    parser = _Parser(_tokens(text))
    words = parser.relation().words
    while parser.accept(","):
        words += f", {parser.relation().words}"
    if parser.left:
        raise MathError(f"{text!r}: {parser.left[0].text!r} is out of place")
    return words


def _tokens(text: str) -> list[Token]:
    tokens, at = [], 0
    while at < len(text.rstrip()):
        match = _TOKEN.match(text, at)
        if match is None:
            raise MathError(f"{text!r}: cannot read {text[at]!r}")
        kind = match.lastgroup if match.lastgroup != "primes" else "letter"
        assert kind is not None
        tokens.append(Token(kind, match.group(kind) + (match.group("primes") or "")))
        at = match.end()
    return [Token("sign", "^") if token.text == "**" else token for token in tokens]


class _Parser:
    def __init__(self, tokens: list[Token]) -> None:
        self.left = tokens

    def peek(self, *signs: str) -> bool:
        return bool(self.left) and self.left[0].kind == "sign" and self.left[0].text in signs

    def accept(self, *signs: str) -> str:
        return self.left.pop(0).text if self.peek(*signs) else ""

    def need(self, sign: str) -> None:
        if not self.accept(sign):
            raise MathError(f"{sign!r} is missing")

    def relation(self, closing: str = "") -> Spoken:
        first = self.sum()
        words, kind, parts = first
        while (self.left and not self.peek(closing) and self.peek(*RELATIONS)) or self.peek("<", ">"):
            sign = self.accept(*RELATIONS)
            words, kind, parts = f"{words} {RELATIONS[sign]} {self.sum().words}", "relation", ()
        return Spoken(words, kind, parts)

    def sum(self) -> Spoken:
        sign = self.accept(*_SUMS)
        first = self.term()
        parts, kinds = [f"{_SUMS[sign]} {first.words}" if sign else first.words], []
        words = parts[0]
        while op := self.accept(*_SUMS):
            term = self.term().words
            words += f" {_SUMS[op]} {term}"
            parts.append(term)
            kinds.append(op)
        if not kinds:
            return Spoken(words, "negative") if sign else first
        kind = {"+": "sum", "-": "difference"}.get("".join(kinds), "several")
        return Spoken(words, kind, tuple(parts))

    def term(self) -> Spoken:
        found = self.factor()
        while self.left:
            if self.accept("*"):
                found = _multiply(found, self.factor(), " times ")
            elif self.accept("/"):
                found = _divide(found, self.factor())
            elif self.left[0].kind in ("letter", "number", "function", "derivative") or self.peek("(", "["):
                right = self.factor()
                apart = found.kind not in _RUNS_ON or right.words.startswith("the ")
                found = _multiply(found, right, " times " if apart else " ")
            else:
                break
        return found

    def factor(self) -> Spoken:
        base = self.base()
        while self.left:
            if self.accept("^"):
                base = _raise(base, self.exponent())
            elif self.accept("_"):
                base = Spoken(f"{base.words} sub {self.exponent().words}", base.kind)
            elif self.accept("!"):
                simple = base.kind in ("atom", "number")
                base = Spoken(f"{base.words} factorial" if simple else f"the factorial of {base.words}", "applied")
            elif self.accept("%"):
                base = Spoken(f"{base.words} percent")
            elif self.accept("°"):
                base = Spoken(f"{base.words} degrees")
            else:
                break
        return base

    def exponent(self) -> Spoken:
        """A signed atom, its own power included, or a group."""
        sign = self.accept(*_SUMS)
        inner = self.base()
        if self.accept("^"):
            inner = _raise(inner, self.exponent())
        return Spoken(f"{_SUMS[sign]} {inner.words}", "negative") if sign else inner

    def base(self) -> Spoken:
        if not self.left:
            raise MathError("an operand is missing")
        if opened := self.accept("(", "[", "{"):
            return self.group(opened)
        if self.accept("|"):
            inner = _group(self.relation("|"))
            self.need("|")
            return Spoken(f"the absolute value of {inner.words}", "applied")
        kind, text = self.left.pop(0)
        if kind == "number":
            return Spoken(number(text), "number", (text,))
        if kind == "derivative":
            applied = f" of {self.factor().words}" if self.left and not self.peek(*RELATIONS, ")") else ""
            return Spoken(f"d by d {text[-1]}{applied}", "applied")
        if kind == "function":
            sub = f" base {self.exponent().words}" if text == "log" and self.accept("_") else ""
            power = f" {_power(self.exponent())}" if self.accept("^") else ""
            name = FUNCTIONS[text].replace(" of", f"{sub}{power} of") if sub or power else FUNCTIONS[text]
            return Spoken(f"{name} {self.argument(text).words}", "applied")
        if kind == "letter":
            return self.letter(text)
        raise MathError(f"{text!r} is out of place")

    def argument(self, function: str) -> Spoken:
        """What a function is of: a factor, or a whole term as in ``sin 2x``."""
        if self.peek("(", "[", "{"):
            return self.base()
        found = self.factor()
        while function.isalpha() and self.left and self.left[0].kind == "letter":
            found = _multiply(found, self.factor(), " ")
        return found

    def letter(self, text: str) -> Spoken:
        name = text.rstrip("'′")
        words = GREEK.get(name, "infinity" if name == "∞" else name)
        words += {0: "", 1: " prime", 2: " double prime"}.get(len(text) - len(name), " triple prime")
        applied = self.peek("(") and (name in _TAKES_ARGUMENTS or len(text) > len(name))
        if applied:
            self.accept("(")
            arguments = [_group(self.relation()).words]
            while self.accept(","):
                arguments.append(_group(self.relation()).words)
            self.need(")")
            return Spoken(f"{words} of {' and '.join(arguments)}", "applied")
        return Spoken(words)

    def group(self, opened: str) -> Spoken:
        """What stands behind an opening bracket; half-open intervals may close with the other one."""
        closing = {"(": ")", "[": "]", "{": "}"}[opened]
        inner = self.relation()
        if self.peek(","):
            members = [inner.words]
            while self.accept(","):
                members.append(self.relation().words)
            if not self.accept(")", "]", closing):
                raise MathError(f"{closing!r} is missing")
            if opened == "{":
                return Spoken(f"the set of {', '.join(members)}", "group")
            if opened == "[" and len(members) == 2:
                return Spoken(f"the interval from {members[0]} to {members[1]}", "group")
            return Spoken(", ".join(members), "group")
        self.need(closing)
        return _group(inner)


def _group(inner: Spoken) -> Spoken:
    """What brackets hold, in words that say where it ends, since brackets are not heard."""
    if inner.kind in ("sum", "difference", "product"):
        return Spoken(f"the {inner.kind} of {inner.parts[0]} and {inner.parts[1]}", "group")
    if inner.kind in ("several", "relation"):
        return Spoken(f"the quantity {inner.words}", "group")
    if inner.kind == "ratio":
        return Spoken(f"the fraction {inner.words}", "group")
    return inner


def _multiply(left: Spoken, right: Spoken, joint: str) -> Spoken:
    words = f"{left.words}{', all' if left.kind == 'group' else ''}{joint}{right.words}"
    if joint == " ":
        return Spoken(words, "term")
    return Spoken(words, "product", (left.words, right.words)) if left.kind != "product" else Spoken(words, "several")


def _divide(above: Spoken, below: Spoken) -> Spoken:
    if above.kind == below.kind == "number" and all(p.isdigit() for p in (*above.parts, *below.parts)):
        words = fraction(int(above.parts[0]), int(below.parts[0]))
        return Spoken(words, "ratio" if " over " in words else "term")
    joint = " divided by " if "group" in (above.kind, below.kind) else " over "
    return Spoken(f"{above.words}{', all' if above.kind == 'group' else ''}{joint}{below.words}", "ratio")


def _raise(base: Spoken, exponent: Spoken) -> Spoken:
    """``x^2``: x squared; of anything longer: the square of ..."""
    power = _power(exponent)
    if base.kind in ("atom", "number"):
        return Spoken(f"{base.words} {power}", "power" if power in ("squared", "cubed") else "long power")
    named = {"squared": "the square of", "cubed": "the cube of", "inverse": "the inverse of"}
    if power in named:
        return Spoken(f"{named[power]} {base.words}", "applied")
    if base.kind == "group":
        return Spoken(f"{base.words}, all {power}", "long power")
    return Spoken(f"the power of base {base.words} and exponent {exponent.words}", "applied")


def _power(exponent: Spoken) -> str:
    named = {"two": "squared", "three": "cubed", "minus one": "inverse"}
    return named.get(exponent.words, f"to the power of {exponent.words}")
