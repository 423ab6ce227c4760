"""Units of measurement in English words: their names by symbol, and the plural of a name."""

UNITS = {
    "km": "kilometer", "m": "meter", "cm": "centimeter", "mm": "millimeter", "nm": "nanometer", "kg": "kilogram",
    "g": "gram", "mg": "milligram", "s": "second", "ms": "millisecond", "min": "minute", "h": "hour", "Hz": "hertz",
    "kHz": "kilohertz", "MHz": "megahertz", "V": "volt", "mV": "millivolt", "A": "ampere", "mA": "milliampere",
    "W": "watt", "kW": "kilowatt", "J": "joule", "kJ": "kilojoule", "N": "newton", "Pa": "pascal", "kPa": "kilopascal",
    "mol": "mole", "K": "kelvin", "eV": "electronvolt", "mL": "milliliter", "ml": "milliliter", "L": "liter",
    "ft": "foot", "in": "inch", "mi": "mile", "lb": "pound", "°C": "degree Celsius", "°F": "degree Fahrenheit",
    "Ω": "ohm", "kΩ": "kiloohm", "kV": "kilovolt", "mC": "millicoulomb", "µC": "microcoulomb", "nC": "nanocoulomb",
    "µF": "microfarad", "µm": "micrometer", "µs": "microsecond", "dB": "decibel", "T": "tesla", "C": "coulomb",
}  # fmt: skip
_LENGTHS = ("meter", "foot", "inch", "mile")
_UNCHANGED = frozenset({"hertz", "kilohertz", "megahertz", "kelvin"})
_IRREGULAR = {"foot": "feet", "inch": "inches"}


def unit(name: str, *, one: bool) -> str:
    """A unit's name behind a number: ("foot", one=False) -> "feet", ("degree Celsius", one=False) -> "degrees ..."."""
    if one or name in _UNCHANGED:
        return name
    first, _, rest = name.partition(" ")
    return f"{_IRREGULAR.get(first, f'{first}s')} {rest}".strip()


def power_of_unit(name: str, power: str, *, one: bool) -> str:
    """("centimeter", "2") -> "square centimeters" (one=False), ("second", "2") -> "seconds squared"."""
    words = unit(name, one=one)
    if power not in ("2", "3"):
        return words
    if name.endswith(_LENGTHS):
        return f"{'square' if power == '2' else 'cubic'} {words}"
    return f"{words} {'squared' if power == '2' else 'cubed'}"
