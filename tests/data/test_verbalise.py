"""What questions sound like: each rule, and that plain words stay as they are."""

# ruff: noqa: RUF001 (typographic signs)

import re

import pytest

from wearllama.data.math_words import MathError, say_math
from wearllama.data.number_words import cardinal, number, ordinal, year
from wearllama.data.verbalise import verbalise

SAID = {
    "What is 4 ÷ (2+8)?": "What is four divided by the sum of two and eight?",
    "4/(2+8)": "four divided by the sum of two and eight",
    # fractions
    "1/2": "one half", "3/4": "three quarters", "33/2": "thirty-three over two", "sin(x)/x": "the sine of x over x",
    r"\frac{a}{b+1}": "a divided by the sum of b and one",
    # powers
    "x^2 - 1 = 0": "x squared minus one equals zero", "10^-3": "ten to the power of minus three",
    "E = mc²": "E equals m c squared", "2 + e^-4": "two plus e to the power of minus four",
    # negative numbers
    "-11": "minus eleven", "A - B": "A minus B", "the values -5 and -4": "the values minus five and minus four",
    # units
    "10 m/s^2": "ten meters per second squared", "5 km": "five kilometers", "-40 °C": "minus forty degrees Celsius",
    "1 kg of 7m + 12n = 22": "one kilogram of seven m plus twelve n equals twenty-two",
    "53 cm^2 and 5 g/cm^3": "fifty-three square centimeters and five grams per cubic centimeter",
    "3 Ω": "three ohms", "Step 2 A ball": "Step two A ball",
    # Greek letters
    r"$\alpha^2 + \beta$": "alpha squared plus beta", "λ ≥ 0": "lambda is greater than or equal to zero",
    # matrices
    "[[1, 2], [3, 4]]": "the two by two matrix with the first row one and two, the second row three and four",
    r"\begin{pmatrix}1 & 0 \\ 0 & 1\end{pmatrix}": "the two by two matrix with the first row one and zero, the second "
    "row zero and one",
    "a real 2x2 matrix": "a real two by two matrix",
    "det [[1, 2], [3, 4]]": "the determinant of the two by two matrix with the first row one "
    "and two, the second row three and four",
    # brackets are not heard: words tell where a part ends
    "(x + 17)^2": "the square of the sum of x and seventeen", "(x+1)^n": "the sum of x and one, all to the power of n",
    "(a+b)c": "the sum of a and b, all times c", "sin(x/2)": "the sine of the fraction x over two",
    "sin(x)^2 - sin(x^2)": "the square of the sine of x minus the sine of x squared",
    "2^(x+1)": "two to the power of the sum of x and one", "(n+1)!": "the factorial of the sum of n and one",
    "|x - 3|": "the absolute value of the difference of x and three", "√2x": "the square root of two times x",
    "√(2x)": "the square root of two x", "4/3 πr^3": "four thirds pi r cubed",
    "(2x)^3 + 3(x+1)^2": "the cube of two x plus three times the square of the sum of x and one",
    # functions and others
    "sin 2x and det A": "the sine of two x and the determinant of A",
    "f'(x) = 3x^2 + 2": "f prime of x equals three x squared plus two",
    "f(1 + x) = f(x)": "f of the sum of one and x equals f of x",
    "log_2(8) = 3": "the logarithm base two of eight equals three", "n! = 24": "n factorial equals twenty-four",
    "|x| < 3": "the absolute value of x is less than three", "x is in [0, 1)": "x is in the interval from zero to one",
    "S_10": "S sub ten", "107 x 25": "one hundred and seven times twenty-five", "√(2)": "the square root of two",
    r"\sqrt[3]{x}": "the cube root of x", "8 µC": "eight microcoulombs",
    "3x + 2(x - 1)": "three x plus two times the difference of x and one", "xp(x)": "x p of x",
    "p(x) -&gt; 2": "p of x goes to two",
    # text that only looks like mathematics, and what touches words
    "a 44-year-old, glucose-6-phosphate, SHA-1": "a forty-four year-old, glucose six phosphate, SHA one",
    "2e-3": "two times ten to the power of minus three",
    "H2SO4, CO2 and Al(NO3)3": "H two SO four, CO two and Al(NO three) three", "yt-1": "yt minus one",
    "120/80 mm, 2 hits / instruction": "one hundred and twenty over eighty millimeters, two hits over instruction",
    "the ratio (50 cm)^2": "the ratio (fifty centimeters) squared", "$2pq$": "two pq",
    "xp'(x) and p’(x)": "x p prime of x and p prime of x", r"\frac{1}{3^{n}}": "one over three to the power of n",
    "and/or he/she": "and/or he/she", "(Torque)/(Area)": "(Torque) over (Area)",
    # text
    "in 1905, 20% of 2,351": "in nineteen oh five, twenty percent of two thousand three hundred and fifty-one",
    "1914-1918 and the 1960s": "nineteen fourteen to nineteen eighteen and the nineteen sixties",
    "It costs $5.50.": "It costs five dollars and fifty cents.", "$2 million": "two million dollars",
    "$0.05 of $2.5 in 2024, £3": "five cents of two dollars and fifty cents in twenty twenty-four, three pounds",
    "the 10th of 3.14": "the tenth of three point one four", "I and II only": "one and two only",
    "A ____ is": "A blank is", "Statement 1 | Every": "Statement one. Every",
    "a well-known p-value": "a well-known p-value",
}  # fmt: skip
PLAIN = (
    "Which of the following best describes the theory?",
    "He said: I can't, and/or won't. Why (if ever) should A follow B?",
    "The answer is (D).",
)


@pytest.mark.parametrize(("written", "said"), SAID.items())
def test_rules(written: str, said: str) -> None:
    assert verbalise(written) == said


@pytest.mark.parametrize("text", PLAIN)
def test_plain_words_stay(text: str) -> None:
    assert verbalise(text) == text


@pytest.mark.parametrize(
    "text", ["", "f(", "3 +", "(", "|x", "[[", "^^", "a ) b (", "{x : ", r"\frac{1}{", "$", "-", "e^", "0.0.0"]
)
def test_broken_mathematics_is_still_said(text: str) -> None:
    said = verbalise(text)
    assert not any(character.isdigit() for character in said)


def deeper(exprs: list[tuple[str, float]]) -> list[tuple[str, float]]:
    """Expressions (text, precedence) one operation above the given ones, with the fewest brackets."""

    def part(expr: tuple[str, float], least: float) -> str:
        return expr[0] if expr[1] >= least else f"({expr[0]})"

    found: list[tuple[str, float]] = []
    for a in exprs:
        found += [
            (f"sin({a[0]})", 5),
            (f"f({a[0]})", 5),
            (f"|{a[0]}|", 5),
            (f"{part(a, 4)}!", 4),
            (f"-{part(a, 1)}", 0),
        ]
        for b in exprs:
            found += [(f"{part(a, 0)} {sign} {part(b, 1)}", 0) for sign in "+-"]
            found += [(f"{part(a, 1)}{sign}{part(b, 3)}", 1) for sign in "*/"] + [(f"{part(a, 4)}^{part(b, 5)}", 3)]
    return found


def test_no_two_expressions_sound_the_same() -> None:
    atoms = [("x", 5.0), ("2", 5.0), ("3y", 2.0)]
    once = deeper(atoms)
    sounds: dict[str, set[str]] = {}
    for text, _ in {*atoms, *once, *deeper(atoms + once)}:
        # A leading minus binds a product alike with brackets and without: (-x)*2 is -x*2.
        same_value = re.sub(r"^\(-(\w+)\)(?=[*/])", r"-\1", text)
        sounds.setdefault(say_math(text).replace(",", ""), set()).add(same_value)
    assert len(sounds) > 15_000
    assert [texts for texts in sounds.values() if len(texts) > 1] == []


def test_numbers() -> None:
    assert cardinal(2351) == "two thousand three hundred and fifty-one" and cardinal(1_000_001) == "one million and one"
    assert [ordinal(n) for n in (1, 12, 20, 33, 101)] == [
        "first", "twelfth", "twentieth", "thirty-third", "one hundred and first",
    ]  # fmt: skip
    assert number(".05") == "zero point zero five" and year(2008) == "two thousand and eight"
    with pytest.raises(MathError):
        say_math("3 + * 2")
