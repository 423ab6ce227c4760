"""Geometries load by name and file; wrong files say what is wrong."""

import math
from pathlib import Path

import numpy as np
import pytest

from wearllama.audio.array import ArrayGeometry, load_array


@pytest.mark.parametrize(("name", "mics", "reference"), [("glasses5", 5, 0), ("aria7", 7, 1), ("easycom4", 4, 1)])
def test_shipped_arrays(name: str, mics: int, reference: int) -> None:
    array = load_array(name)
    assert (array.name, array.num_mics, array.reference) == (name, mics, reference)
    to_mouth_M = np.linalg.norm(array.positions_M3 - array.mouth_3, axis=1)
    assert 0.03 < to_mouth_M.min() <= to_mouth_M.max() < 0.2
    assert abs(array.positions_M3[reference, 0]) < 0.02  # c_0 sits at the nose


def test_own_file_takes_its_name_and_defaults(tmp_path: Path) -> None:
    path = tmp_path / "pair.yaml"
    path.write_text("positions: [[0, 0, 0], [0.1, 0, 0]]\n")
    assert load_array(path).name == "pair"
    assert load_array(path).mouth == ArrayGeometry(name="x", positions=((0.0, 0.0, 0.0),)).mouth


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("positions: [[0, 0]]", "has 2 numbers"),
        ("positions: []", "positions is empty"),
        ("positions: [[68, 10, 4]]", "metres"),
        ("positions: [[.nan, 0, 0]]", "metre"),
        ("positions: [[a, b, c]]", "broken.yaml.*three numbers"),
        ("positions: [[0, 0, 0]]\nmouth: [0, 0]", "mouth has 2"),
        ("positions: [[0, 0, 0]]\nreference: 1", "wanted 0..0"),
        ("positions: [[0, 0, 0]]\nmic: 3", "unknown field .'mic'."),
        ("- 1", "found list"),
    ],
)
def test_broken_files(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "broken.yaml"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        load_array(path)


def test_unknown_name_lists_the_known() -> None:
    with pytest.raises(ValueError, match="aria7, easycom4, glasses5"):
        load_array("glasses6")


def test_geometry_refuses_nan() -> None:
    with pytest.raises(ValueError, match="over a metre"):
        ArrayGeometry(name="x", positions=((math.nan, 0.0, 0.0),))
