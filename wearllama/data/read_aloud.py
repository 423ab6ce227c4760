"""Written English as a voice should say it: numbers, money, times, units and symbols in words.

A speech synthesiser that meets "$4.50" or "7:30 pm" guesses; here the words are decided, so that clip and transcript
agree. What stays written is what is said as it stands.
"""

import re

from wearllama.data.number_words import cardinal, ordinal

MOST_DIGITS = 15
"""Of a number that has a name."""
_MONEY = {"$": ("dollar", "cent"), "€": ("euro", "cent"), "£": ("pound", "penny")}
_UNITS = {
    "km/h": "kilometres per hour", "mph": "miles per hour", "km": "kilometres", "cm": "centimetres",
    "mm": "millimetres", "kg": "kilograms", "mg": "milligrams", "ml": "millilitres", "lbs": "pounds", "lb": "pounds",
    "oz": "ounces", "ft": "feet", "hrs": "hours", "hr": "hours", "mins": "minutes", "min": "minutes",
    "secs": "seconds", "sec": "seconds", "GB": "gigabytes", "MB": "megabytes", "°C": "degrees Celsius",
    "°F": "degrees Fahrenheit", "°": "degrees",
}  # fmt: skip
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


def digits(text: str) -> str:
    """Digit by digit."""
    return " ".join(cardinal(int(digit)) for digit in text)


def amount(text: str) -> str:
    """A whole number in words; digit by digit where it has more than 15 of them."""
    return cardinal(int(text)) if len(text) <= MOST_DIGITS else digits(text)


def year(number: int) -> str:
    """``1984`` -> ``nineteen eighty-four``; ``2024`` -> ``twenty twenty-four``, where number_words says it in full."""
    century, rest = divmod(number, 100)
    if 2000 <= number < 2010 or number % 1000 == 0:
        return cardinal(number)
    if rest == 0:
        return f"{cardinal(century)} hundred"
    return f"{cardinal(century)} {'oh ' if rest < 10 else ''}{cardinal(rest)}"


def read_aloud(text: str) -> str:
    """The words of a text as they are spoken, in English."""
    for short, words in _WORDS.items():
        text = text.replace(short, words)
    text = re.sub(r"https?://(www\.)?(\S+)", lambda m: _address(m[2]), text)
    text = re.sub(r"[\w.+-]+@[\w-]+\.[\w.-]*\w", lambda m: _address(m[0]), text)
    text = re.sub(r"([$€£])\s?(\d[\d,]*)(?:\.(\d\d?))?( (?:million|billion|thousand))?", _money, text)
    text = re.sub(r"\b(\d{1,2}):(\d\d)\s?([ap])(?:\.m\.|m\b)|\b(\d{1,2}):(\d\d)\b", _time, text)
    text = re.sub(r"\b(\d{1,2})\s?([ap])(?:\.m\.|m\b)", lambda m: f"{cardinal(int(m[1]))} {m[2]} m", text)
    units = "|".join(re.escape(unit) for unit in sorted(_UNITS, key=len, reverse=True))
    text = re.sub(rf"(\d)\s?({units})(?![A-Za-z])", lambda m: f"{m[1]} {_UNITS[m[2]]}", text)
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


def _money(match: re.Match[str]) -> str:
    unit, part = _MONEY[match[1]]
    whole = match[2].replace(",", "").lstrip("0") or "0"
    if match[4]:
        fraction = f" point {digits(match[3])}" if match[3] else ""
        return f"{amount(whole)}{fraction}{match[4]} {unit}s"
    cents = int((match[3] or "0").ljust(2, "0"))
    told = [f"{amount(whole)} {unit}{'' if whole == '1' else 's'}"] if whole != "0" or not cents else []
    if cents:
        plural = "pence" if part == "penny" else f"{part}s"
        told.append(f"{cardinal(cents)} {part if cents == 1 else plural}")
    return " and ".join(told) + ("," if match[2].endswith(",") else "")


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
