"""Numbers, money, times and symbols in words."""

import pytest

from wearllama.data.read_aloud import cardinal, ordinal, read_aloud, year


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (0, "zero"), (13, "thirteen"), (40, "forty"), (99, "ninety-nine"), (100, "one hundred"),
        (203, "two hundred and three"), (1_000, "one thousand"), (1_050, "one thousand and fifty"),
        (12_345, "twelve thousand three hundred and forty-five"), (2_000_000, "two million"), (-7, "minus seven"),
    ],
)  # fmt: skip
def test_cardinals(number: int, words: str) -> None:
    assert cardinal(number) == words


def test_ordinals_and_years() -> None:
    assert [ordinal(n) for n in (1, 2, 3, 5, 8, 12, 20, 21, 100)] == [
        "first", "second", "third", "fifth", "eighth", "twelfth", "twentieth", "twenty-first", "one hundredth",
    ]  # fmt: skip
    assert [year(n) for n in (1984, 1905, 1900, 2000, 2007, 2024)] == [
        "nineteen eighty-four", "nineteen oh five", "nineteen hundred", "two thousand", "two thousand and seven",
        "twenty twenty-four",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        ("It costs $4.50.", "It costs four dollars and fifty cents."),
        ("It costs $1, not £0.99.", "It costs one dollar, not ninety-nine pence."),
        ("He made $2.5 million.", "He made two point five million dollars."),
        ("Wake me at 7:30 pm.", "Wake me at seven thirty p m."),
        ("Wake me at 7:05.", "Wake me at seven oh five."),
        ("Meet at 6 a.m. please", "Meet at six a m please"),
        ("about 20% of 3,500 people", "about twenty percent of three thousand five hundred people"),
        ("The 3rd of May 1984", "The third of May nineteen eighty-four"),
        ("-5°C and 12 km", "minus five degrees Celsius and twelve kilometres"),
        ("pi is 3.14", "pi is three point one four"),
        ("call 5550123", "call five five five zero one two three"),
        ("1 km, 1.5 km, 3 ft and 1 lb", "one kilometre, one point five kilometres, three feet and one pound"),
        (
            "$1,250.5, not $3.999",
            "one thousand two hundred and fifty dollars and fifty cents, not three point nine nine nine dollars",
        ),
        ("Rock & roll", "Rock and roll"),
        ("ask ann@example.com", "ask ann at example dot com"),
        ("1/2 of 3/4", "one half of three over four"),
        ("No numbers here, thanks.", "No numbers here, thanks."),
    ],
)
def test_what_is_written_is_said(written: str, spoken: str) -> None:
    assert read_aloud(written) == spoken
