"""Numbers, years and money in English words, for synthesis: 2351 -> "two thousand three hundred and fifty-one"."""

import re

_ONES = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)  # fmt: skip
_TENS = ("", "ten", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_SCALES = ((10**12, "trillion"), (10**9, "billion"), (10**6, "million"), (1000, "thousand"), (100, "hundred"))
_ORDINALS = {
    "one": "first", "two": "second", "three": "third", "five": "fifth", "eight": "eighth", "nine": "ninth",
    "twelve": "twelfth",
}  # fmt: skip
MOST_DIGITS = 15
"""Of a number that has a name."""
CURRENCIES = {"$": ("dollar", "cent", "cents"), "€": ("euro", "cent", "cents"), "£": ("pound", "penny", "pence")}


def cardinal(value: int) -> str:
    """A whole number below 10^15; ValueError beyond."""
    if value < 0:
        return f"minus {cardinal(-value)}"
    if value >= 10**15:
        raise ValueError(f"{value} is too large to be said")
    for scale, name in _SCALES:
        if value >= scale:
            rest = value % scale
            joint = " and " if 0 < rest < 100 else " "
            return f"{cardinal(value // scale)} {name}" + (joint + cardinal(rest) if rest else "")
    if value >= 20:
        return _TENS[value // 10] + (f"-{_ONES[value % 10]}" if value % 10 else "")
    return _ONES[value]


def ordinal(value: int) -> str:
    """first, twenty-second, hundredth."""
    words = cardinal(value)
    head, mark, last = re.match(r"(.*?)(^|[ -])([a-z]+)$", words).groups()  # type: ignore[union-attr]
    regular = f"{last[:-1]}ieth" if last.endswith("y") else f"{last}th"
    return head + mark + _ORDINALS.get(last, regular)


def number(text: str) -> str:
    """Digits as written (``3.14``, ``2,351``, ``.5``) in words; digits after the point one by one."""
    whole, _, places = text.replace(",", "").partition(".")
    words = amount(whole or "0")
    return f"{words} point {digits(places)}" if places and len(whole) <= MOST_DIGITS else words


def digits(text: str) -> str:
    """Digit by digit."""
    return " ".join(_ONES[int(digit)] for digit in text)


def amount(text: str) -> str:
    """A whole number in words; digit by digit where it has more than 15 of them."""
    return cardinal(int(text)) if len(text) <= MOST_DIGITS else digits(text)


def year(value: int) -> str:
    """1066 -> "ten sixty-six", 1905 -> "nineteen oh five", 2008 -> "two thousand and eight", 2024 -> "twenty ..."."""
    century, rest = divmod(value, 100)
    if (century % 10 == 0 and rest < 10) or not 1000 <= value < 2100:
        return cardinal(value)
    if rest == 0:
        return f"{cardinal(century)} hundred"
    return f"{cardinal(century)} {'oh ' if rest < 10 else ''}{cardinal(rest)}"


def money(sign: str, whole: str, places: str = "", scale: str = "") -> str:
    """$4.50 -> "four dollars and fifty cents", £0.01 -> "one penny", $2.5 million -> "two point five million dollars".

    Args:
        sign: one of `CURRENCIES`.
        whole: digits before the point, commas among them.
        places: digits after it.
        scale: thousand, million, billion or nothing.
    """
    unit, part, parts = CURRENCIES[sign]
    whole = whole.replace(",", "").lstrip("0") or "0"
    if scale or len(places) > 2:
        return f"{number(f'{whole}.{places}')} {f'{scale} ' if scale else ''}{unit}s"
    cents = int(places.ljust(2, "0"))
    told = [f"{amount(whole)} {unit}{'' if whole == '1' else 's'}"] if whole != "0" or not cents else []
    if cents:
        told.append(f"{cardinal(cents)} {part if cents == 1 else parts}")
    return " and ".join(told)


def fraction(numerator: int, denominator: int) -> str:
    """1/2 -> "one half", 4/3 -> "four thirds", 5/9 -> "five over nine": ninths and eighths are hard to hear."""
    if not 0 < numerator < 20 or denominator not in (2, 3, 4, 5, 10, 100, 1000):
        return f"{cardinal(numerator)} over {cardinal(denominator)}"
    name = {2: "half", 4: "quarter"}.get(denominator) or ordinal(denominator)
    several = {"half": "halves"}.get(name, f"{name}s")
    return f"{cardinal(numerator)} {name if numerator == 1 else several}"
