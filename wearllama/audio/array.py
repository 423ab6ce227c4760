"""Microphone array geometry (contract 2): positions, mouth and reference channel, from conf/array/*.yaml."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import yaml
from numpy.typing import NDArray

from wearllama.paths import CONF_DIR

ARRAY_DIR = CONF_DIR / "array"


@dataclass(frozen=True, kw_only=True)
class ArrayGeometry:
    """Microphones on a head; metres; x to the wearer's left, y up, z forward, origin between the pupils."""

    name: str
    positions: tuple[tuple[float, float, float], ...]
    """Microphone positions in channel order."""
    mouth: tuple[float, float, float] = (0.0, -0.070, 0.015)
    """The wearer's mouth opening."""
    reference: int = 0
    """Channel that is c_0."""
    source: str = ""
    """Where the numbers come from."""

    def __post_init__(self) -> None:
        if len(self.mouth) != 3:
            raise ValueError(f"array {self.name!r}: mouth has {len(self.mouth)} numbers, wanted x, y, z")
        if not self.positions:
            raise ValueError(f"array {self.name!r}: positions is empty, wanted at least one microphone")
        for index, position in enumerate(self.positions):
            if len(position) != 3:
                raise ValueError(f"array {self.name!r}: positions[{index}] has {len(position)} numbers, wanted x, y, z")
            if not all(abs(value) <= 1.0 for value in position):  # written so that NaN fails too
                raise ValueError(f"array {self.name!r}: positions[{index}] = {position} is over a metre off; metres?")
        if not 0 <= self.reference < len(self.positions):
            raise ValueError(f"array {self.name!r}: reference is {self.reference}, wanted 0..{len(self.positions) - 1}")

    @property
    def num_mics(self) -> int:
        return len(self.positions)

    @property
    def positions_M3(self) -> NDArray[np.float64]:
        return np.asarray(self.positions, dtype=np.float64)

    @property
    def mouth_3(self) -> NDArray[np.float64]:
        return np.asarray(self.mouth, dtype=np.float64)


def load_array(name_or_path: str | Path) -> ArrayGeometry:
    """Load a geometry by name (``glasses5``) or from a YAML file of the same fields."""
    path = Path(name_or_path)
    if path.suffix not in (".yaml", ".yml"):
        path = ARRAY_DIR / f"{name_or_path}.yaml"
    if not path.is_file():
        known = ", ".join(sorted(p.stem for p in ARRAY_DIR.glob("*.yaml")))
        raise ValueError(f"no array at {path}; known arrays: {known}")
    fields = yaml.safe_load(path.read_text())
    if not isinstance(fields, dict):
        raise ValueError(
            f"{path}: found {type(fields).__name__}, wanted a mapping of name, positions, mouth, reference"
        )
    unknown = set(fields) - set(ArrayGeometry.__dataclass_fields__)
    if unknown:
        raise ValueError(
            f"{path}: unknown field {sorted(unknown)}, wanted {sorted(ArrayGeometry.__dataclass_fields__)}"
        )
    try:
        fields["positions"] = tuple(tuple(float(v) for v in p) for p in fields.get("positions") or ())
        if "mouth" in fields:
            fields["mouth"] = tuple(float(v) for v in fields["mouth"])
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: positions and mouth want lists of three numbers in metres ({error})") from error
    return ArrayGeometry(**{"name": path.stem, **fields})
