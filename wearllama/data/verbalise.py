"""Questions as they are said: mathematics, numbers, units, symbols and matrices in a text turned into words.

Speech synthesis stumbles over written mathematics; what a listener needs is what a teacher would say.  Text that is no
mathematics stays as it is.  English only.
"""

# ruff: noqa: RUF001 (Greek letters, typographic signs)
import re

from wearllama.data.math_words import FUNCTIONS, GREEK, RELATIONS, MathError, say_math
from wearllama.data.number_words import cardinal, number, ordinal, year
from wearllama.data.read_aloud import MONEY, say_money
from wearllama.data.unit_words import UNITS, power_of_unit

_LATEX = {
    r"\cdot": "*", r"\times": "*", r"\div": "/", r"\pm": "±", r"\leq": "≤", r"\le": "≤", r"\geq": "≥", r"\ge": "≥",
    r"\neq": "≠", r"\ne": "≠", r"\approx": "≈", r"\infty": "∞", r"\in": "∈", r"\to": "→", r"\rightarrow": "→",
    r"\cup": "∪", r"\cap": "∩", r"\subset": "⊂", r"\equiv": "≡", r"\sqrt": "√", r"\left": "", r"\right": "",
    r"\ldots": "...", r"\dots": "...", r"\,": " ", r"\;": " ", r"\%": "%", r"\circ": "°",
    **{rf"\{name}": name for name in FUNCTIONS if name.isalpha()},
    **{rf"\{name}": symbol for symbol, name in GREEK.items() if symbol.islower()},
}  # fmt: skip
_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺ⁿ", "0123456789-+n")
_SUBSCRIPTS = str.maketrans("₀₁₂₃₄₅₆₇₈₉", "0123456789")
_SYMBOLS = {
    **{sign: f" {words} " for sign, words in RELATIONS.items() if sign not in ("|", ":")},
    **{symbol: f" {name} " for symbol, name in GREEK.items()},
    "×": " times ", "÷": " divided by ", "∞": " infinity ", "√": " the square root of ", "±": " plus or minus ",
    "%": " percent ", "^": " to the power of ", "&": " and ", "*": " times ", "+": " plus ", "°": " degrees ",
    "∀": " for all ", "∃": " there is ", "∨": " or ", "∧": " and ", "⊃": " implies ", "¬": " not ", "∴": " therefore ",
    "∑": " the sum of ", "∫": " the integral of ", "~": " approximately ", "−": " minus ",
}  # fmt: skip
_ROMAN = {"II": "two", "III": "three", "IV": "four", "VI": "six", "VII": "seven", "VIII": "eight", "IX": "nine"}
_FUNCTION = "|".join(sorted((name for name in FUNCTIONS if name.isalpha()), key=len, reverse=True))
_OPERATOR = r"[-+±*/^_=≠<>≤≥≈∈→⊂∪∩≡∝!%]"
_BARE = r"(?:sin|cos|tan|ln|log|det) (?=\d|[b-zα-ωA-HJ-Z](?![A-Za-z]))"
"""A function before its argument without brackets: "sin 2x", "det A"; not an article or a pronoun."""
_ATOM = (
    rf"(?:\d+(?:,\d{{3}})+(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+|d/d[a-z]|(?<![A-Za-z]){_BARE}|(?:{_FUNCTION})(?![A-Za-z])"
    rf"|(?<![A-Za-z])(?:[A-Za-z]['′]*(?![A-Za-z])|[A-Za-z]{{2}}['′]*(?=[(^]))|[α-ωΑ-Ω∞√∛])"
)
_SPACE = rf"(?<=,) | (?={_OPERATOR})|(?<={_OPERATOR}) "
_SPAN = re.compile(rf"(?:{_ATOM}|[(\[{{|]|{_OPERATOR})(?:{_ATOM}|[()\[\]{{}}|,]|{_OPERATOR}|°|{_SPACE})*")
_HAS_MATH = re.compile(rf"\d|{_OPERATOR}|[α-ωΑ-Ω∞√∛]|(?:{_FUNCTION})\b|[A-Za-z]['′]?\(|\|[A-Za-z]\|")
_UNIT_NAMES = "|".join(sorted(map(re.escape, UNITS), key=len, reverse=True))
_MEASURE = re.compile(
    rf"(?P<minus>(?<![\w)])[-−])?(?P<number>\d[\d,]*(?:\.\d+)?|\.\d+)\s?(?P<unit>{_UNIT_NAMES})"
    rf"(?:\^?(?P<power>[23]))?(?:/(?P<per>{_UNIT_NAMES})(?:\^?(?P<per_power>[23]))?)?(?![\w^/(])"
)
_MATRIX = re.compile(r"\[\s*(\[[^\[\]]*\](?:\s*,\s*\[[^\[\]]*\])*)\s*\]")
_LATEX_MATRIX = re.compile(r"\\begin\{(?:p|b|v)?matrix\}(.*?)\\end\{(?:p|b|v)?matrix\}", re.DOTALL)
_YEAR = re.compile(
    r"(?i:\b(in|by|since|from|until|before|after|year|of|during|around)) (1[1-9]\d\d|20\d\d)(?![\d,.]\d|\w)"
)


def verbalise(text: str) -> str:
    """The text as it is said."""
    said = _prepare(text)
    said = _MATRIX.sub(lambda m: _matrix([row.strip("[] ").split(",") for row in m.group(1).split("],")]), said)
    said = re.sub(r"\bdet\s?(?:\((the [\w-]+ by [^()]+)\)|(?=the [\w-]+ by ))", r"the determinant of \1", said)
    said = re.sub(r"(\d+)\s?[x×]\s?(\d+)(?=\s+(?:matri|grid|table|square|identity))",
                  lambda m: f"{number(m.group(1))} by {number(m.group(2))}", said)  # fmt: skip
    said = re.sub(r"(?<=\d)\s*[x×]\s*(?=\d)", "*", said)
    said = MONEY.sub(say_money, said)
    # A hyphen to a word is no minus: a 44-year-old, glucose-6-phosphate.
    said = re.sub(r"(?<=\d)-(?=[A-Za-z]{2})|(?<=[A-Za-z]{3})-(?=\d)", " ", said)
    said = _YEAR.sub(lambda m: f"{m.group(1)} {year(int(m.group(2)))}", said)
    said = re.sub(r"\b(1[1-9]\d\d|20\d\d)s\b", lambda m: _plural(year(int(m.group(1)))), said)
    said = re.sub(r"\b(1[1-9]\d\d|20\d\d)\s?[-–]\s?(1[1-9]\d\d|20\d\d)\b",
                  lambda m: f"{year(int(m.group(1)))} to {year(int(m.group(2)))}", said)  # fmt: skip
    said = re.sub(r"\b(\d{1,4})(?:st|nd|rd|th)\b", lambda m: ordinal(int(m.group(1))), said)
    said = _MEASURE.sub(_measure, said)
    said = re.sub(r"_{2,}", " blank ", said)
    said = re.sub(r"\{([^{}:|]+?)\s*[:|]\s*([^{}]+)\}", r"the set of \1 such that \2", said)
    said = re.sub(r"\s*\| (?=[A-Z][a-z])", ". ", said)
    if re.search(r"\bII\b", said):
        said = re.sub(r"\bI\b(?=\s+(?:only|and|or)\b|[.,])", "one", said)
    said = re.sub(rf"\b({'|'.join(sorted(_ROMAN, key=len, reverse=True))})\b", lambda m: _ROMAN[m.group()], said)
    said = _SPAN.sub(_span, said)
    return _tidy(_symbols(said))


def _prepare(text: str) -> str:
    """LaTeX, superscripts and typographic variants as the plain signs that the rules know."""
    said = _LATEX_MATRIX.sub(
        lambda m: _matrix([row.split("&") for row in m.group(1).split(r"\\") if row.strip()]), text
    )
    said = said.replace("−", "-").replace("·", "*").replace("⋅", "*").replace("÷", "/")
    said = re.sub(r"<=", "≤", re.sub(r">=", "≥", re.sub(r"!=", "≠", re.sub(r"(?:->|-&gt;)", "→", said))))
    said = re.sub(r"(?<=\d)[eE]([+-]?\d+)\b", r"*10^(\1)", said)
    said = re.sub(r"\$([^$]*[\\^_{}=][^$]*|\d*[A-Za-z]{1,3})\$", r"\1", said)
    said = re.sub(r"\\[\[\]()]", " ", said)
    said = re.sub(r"\^\{?\\prime\}?|’(?=\()", "'", said)
    for _ in range(3):  # fractions in fractions
        said = re.sub(r"([\^_])\{([^{}]*)\}", r"\1(\2)", said)
        said = re.sub(r"\\d?frac\{([^{}]*)\}\{([^{}]*)\}", r"(\1)/(\2)", said)
        said = re.sub(r"\\sqrt\[3\]\{([^{}]*)\}", r"∛(\1)", said)
        said = re.sub(r"\\sqrt\{([^{}]*)\}", r"√(\1)", said)
    said = re.sub(r"\(([a-z])([a-z])\)(?=\^)", r"(\1*\2)", said)
    said = re.sub(r"\\(?:text|mathrm|mathbb|mathbf)\{([^{}]*)\}", r"\1", said)
    for command in sorted(_LATEX, key=len, reverse=True):
        said = re.sub(re.escape(command) + (r"(?![A-Za-z])" if command[-1].isalpha() else ""), _LATEX[command], said)
    said = re.sub(r"[⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺ⁿ]+", lambda m: f"^({m.group().translate(_SUPERSCRIPTS)})", said)
    return re.sub(r"[₀₁₂₃₄₅₆₇₈₉]+", lambda m: f"_{m.group().translate(_SUBSCRIPTS)}", said)


def _span(match: re.Match[str]) -> str:
    """A candidate in words where it is an expression; otherwise its parts, as far as they are."""
    text = match.group()
    trailing = re.search(r"[\s,|!]*$", text)
    assert trailing is not None
    core = text[: trailing.start()]
    if "!" in trailing.group() and re.search(r"[\w)]$", core):
        core, tail = core + "!", trailing.group().replace("!", "", 1)
    elif core.count("|") % 2 and trailing.group().startswith("|"):
        core, tail = f"{core}|", trailing.group()[1:]
    else:
        tail = trailing.group()
    if not _HAS_MATH.search(core) or re.fullmatch(r"[A-Za-z]", core):
        return text
    said = _say_longest(core) + tail
    # An expression may touch a word ("1Wb").
    before = " " if said[0].isalpha() and re.search(r"[A-Za-z)]$", match.string[: match.start()]) else ""
    after = " " if said[-1].isalpha() and re.match(r"[A-Za-z]", match.string[match.end() :]) else ""
    return before + said + after


def _say_longest(text: str) -> str:
    for stop in range(len(text), 0, -1):
        piece = text[:stop]
        if not _HAS_MATH.search(piece):
            break
        try:
            words = say_math(piece)
        except MathError:
            continue
        rest = text[stop:]
        return f"{words} {_say_longest(rest)}" if rest.strip() else words + rest
    rest = _say_longest(text[1:]) if len(text) > 1 else ""
    return f"{text[:1]} {rest}" if text[:1] == ")" and rest[:1].isalpha() else text[:1] + rest


def _symbols(text: str) -> str:
    said = re.sub(r"\)\s?\^(two|three)\b", lambda m: f") {'squared' if m.group(1) == 'two' else 'cubed'} ", text)
    said = re.sub(r"\d+(?:,\d{3})*(?:\.\d+)?", lambda m: f" {number(m.group())} ", said)
    said = re.sub(r"(?<=\s)-(?=\w)", "minus ", said)
    said = re.sub(r"(?<=[\w)])(?:\s+/\s*|/\s+|(?<=\))/(?=\())(?=[\w(])", " over ", said)
    said = re.sub(r"(?<=\w) - (?=\w)", " minus ", said) if re.search(r"\bequals\b", said) else said
    for sign, words in _SYMBOLS.items():
        said = said.replace(sign, words)
    return re.sub(r"[{}\\_$]", " ", said)


def _tidy(text: str) -> str:
    said = re.sub(r"\s+", " ", text)
    return re.sub(r"\s+([,.;:?!)])", r"\1", re.sub(r"\(\s+", "(", said)).strip()


def _matrix(rows: list[list[str]]) -> str:
    """Rows by number and entries joined by "and": numbers said in a row would be heard as one."""
    said = [" and ".join(_tidy(_SPAN.sub(_span, entry.strip())) for entry in row) for row in rows]
    told = [f"the {ordinal(number)} row {row}" for number, row in enumerate(said, start=1)]
    return f"the {cardinal(len(rows))} by {cardinal(len(rows[0]))} matrix with {', '.join(told)}"


def _measure(match: re.Match[str]) -> str:
    def group(name: str) -> str:
        return match.group(name) or ""

    if len(group("unit")) == 1 and not group("per") and _is_variable(match):
        return match.group()
    one = group("number") == "1"
    words = f"{'minus ' if group('minus') else ''}{number(group('number'))} {_unit(group('unit'), group('power'), one)}"
    return f"{words} per {_unit(group('per'), group('per_power'), True)}" if group("per") else words


def _is_variable(match: re.Match[str]) -> bool:
    """Whether a one-letter unit is none: glued to its number as in algebra, or an article ("Step 2 A ball")."""
    glued = match.group()[-1 - len(match.group("power") or "") - 1 :][:1].isdigit()
    after = match.string[match.end() :]
    return glued or (match.group("unit") == "A" and re.match(r"\s+[a-z]", after) is not None)


def _unit(symbol: str, power: str, one: bool) -> str:
    return power_of_unit(UNITS[symbol], power, one=one)


def _plural(words: str) -> str:
    return f"{words[:-1]}ies" if words.endswith("y") else f"{words}s"
