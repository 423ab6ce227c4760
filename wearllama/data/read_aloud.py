"""Written English as a voice should say it: numbers, money, times, units and symbols in words.

A speech synthesiser that meets "$4.50" or "7:30 pm" guesses; here the words are decided, so that clip and transcript
agree. What stays written is what is said as it stands.
"""

import re

from wearllama.data.number_words import CURRENCIES, amount, cardinal, digits, money, ordinal, year
from wearllama.data.unit_words import UNITS, unit

_UNITS = {
    **{symbol: UNITS[symbol] for symbol in ("km", "cm", "mm", "kg", "mg", "ml", "lb", "ft", "min", "°C", "°F")},
    "km/h": "kilometer per hour", "mph": "mile per hour", "lbs": "pound", "oz": "ounce", "hrs": "hour", "hr": "hour",
    "mins": "minute", "secs": "second", "sec": "second", "GB": "gigabyte", "MB": "megabyte", "°": "degree",
}  # fmt: skip
"""What everyday texts write; a lone letter is rather a name there than a unit."""
MONEY = re.compile(rf"([{''.join(CURRENCIES)}])\s?(\d[\d,]*)(?:\.(\d+))?(?:\s?(million|billion|thousand)\b)?")
_WORDS = {"e.g.": "for example", "i.e.": "that is", "etc.": "and so on", "vs.": "versus", "Mr.": "Mister",
          "Mrs.": "Missis", "Dr.": "Doctor", "St.": "Saint"}  # fmt: skip
_SYMBOLS = {
    "&": " and ",
    "+": " plus ",
    "=": " equals ",
    "@": " at ",
    "#": " number ",
    "*": " ",
    "_": " ",
    "~": " about ",
}


def read_aloud(text: str) -> str:
    """The words of a text as they are spoken, in English."""
    for short, words in _WORDS.items():
        text = text.replace(short, words)
    text = re.sub(r"https?://(www\.)?(\S+)", lambda m: _address(m[2]), text)
    text = re.sub(r"[\w.+-]+@[\w-]+\.[\w.-]*\w", lambda m: _address(m[0]), text)
    text = MONEY.sub(say_money, text)
    text = re.sub(r"\b(\d{1,2}):(\d\d)\s?([ap])(?:\.m\.|m\b)|\b(\d{1,2}):(\d\d)\b", _time, text)
    text = re.sub(r"\b(\d{1,2})\s?([ap])(?:\.m\.|m\b)", lambda m: f"{cardinal(int(m[1]))} {m[2]} m", text)
    units = "|".join(re.escape(unit) for unit in sorted(_UNITS, key=len, reverse=True))
    text = re.sub(rf"(\d[\d,.]*)(?<=\d)\s?({units})(?![A-Za-z])", _measure, text)
    text = re.sub(r"(\d)\s?%", r"\1 percent", text)
    text = re.sub(r"\b(\d{1,15})(st|nd|rd|th)\b", lambda m: ordinal(int(m[1])), text)
    text = re.sub(r"\b1/2\b", "one half", text)
    text = re.sub(r"\b(\d+)\s?/\s?(\d+)\b", r"\1 over \2", text)
    text = re.sub(r"(?<![\w.,-])(1[1-9]\d\d|20\d\d)(?![\d,.]\d|\w)", lambda m: year(int(m[1])), text)
    text = re.sub(r"(?<![\w])-(?=\d)", "minus ", text)
    text = re.sub(r"\d[\d,]*(?:\.\d+)?", _number, text)
    for symbol, words in _SYMBOLS.items():
        text = text.replace(symbol, words)
    return re.sub(r"\s+([,.;:!?])", r"\1", re.sub(r"\s+", " ", text)).strip()


def _number(match: re.Match[str]) -> str:
    text = match[0]
    tail = "," if text.endswith(",") else ""
    whole, _, fraction = text.rstrip(",").replace(",", "").partition(".")
    long = len(whole) > 6 and "," not in text.rstrip(",")  # a number that is no amount: telephone, account
    padded = len(whole) > 1 and whole.startswith("0")
    words = digits(whole) if long or padded else amount(whole)
    return words + (f" point {digits(fraction)}" if fraction else "") + tail


def say_money(match: re.Match[str]) -> str:
    """A match of `MONEY` in words."""
    return money(match[1], match[2], match[3] or "", match[4] or "") + ("," if match[2].endswith(",") else "")


def _measure(match: re.Match[str]) -> str:
    said = unit(_UNITS[match[2]], one=match[1] == "1")
    return f"{match[1]} {said.replace('meter', 'metre').replace('liter', 'litre')}"


def _time(match: re.Match[str]) -> str:
    hour, minute = int(match[1] or match[4]), int(match[2] or match[5])
    words = cardinal(hour)
    if minute:
        words += f" {'oh ' if minute < 10 else ''}{cardinal(minute)}"
    elif not match[3]:
        words += " o'clock"
    return words + (f" {match[3]} m" if match[3] else "")


def _address(text: str) -> str:
    text = text.rstrip("/.,")
    for symbol, word in (("@", " at "), (".", " dot "), ("/", " slash "), ("-", " dash "), ("_", " underscore ")):
        text = text.replace(symbol, word)
    return text
