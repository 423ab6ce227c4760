"""Set simulated responses beside measured ones: the same rooms and sources, the beam's cue, levels, arrivals.

``measured`` is a bank of tools/import_rirs.py whose rooms have size_m and head_m.  Each room is simulated with the
sphere of the default bank, with its face softened (bank.head.face_hz) and, where ``directions`` is given, with the
measured head (bank.head.directions).  Numbers further off than 3 dB or 20 % carry a star.

Run as: python tools/compare_rirs.py measured=data/glasses_bank directions=data/glasses_directions
        python tools/compare_rirs.py measured=data/glasses_bank array=glasses5
"""

from dataclasses import dataclass
from pathlib import Path

from wearllama.audio.array import load_array
from wearllama.audio.beamforming import design_beam
from wearllama.simulation.bank import RirBank
from wearllama.simulation.comparing import Row, compare, measured_figures, simulated_figures
from wearllama.simulation.heads import HeadResponses
from wearllama.simulation.measured_head import MeasuredHead
from wearllama_launch import existing_path, launch


@dataclass(kw_only=True)
class CompareRirs:
    measured: str
    directions: str | None = None
    """Bank of anechoic responses of the same device."""
    array: str | None = None
    """Geometry to simulate and to design the beam for; the measured bank's own if not given."""
    face_hz: float = 1200.0
    directivity: str = "monitor"
    """What stands for a talker in the measurement: monitor or mouth."""
    draws: int = 5
    """Heads a source, within 5 cm of where the measured one stood; their median is printed."""


@launch("compare_rirs", CompareRirs)
def main(config: CompareRirs) -> None:
    bank = RirBank.open(existing_path(config.measured, "measured"))
    array = load_array(config.array or bank.entries[0].array)
    beam = design_beam(array)
    heads = {"sphere": HeadResponses(array), "soft face": HeadResponses(array, config.face_hz)}
    if config.directions is not None:
        directions = RirBank.open(existing_path(config.directions, "directions"))
        heads["measured head"] = MeasuredHead(array, directions, bank)
    for room in bank.rooms():
        measured = measured_figures(bank, room, beam)
        simulated = {
            name: simulated_figures(bank, room, head, beam, config.directivity, config.draws)
            for name, head in heads.items()
        }
        print_table(f"{Path(config.measured).name}, {room}, array {array.name}", compare(measured, simulated))


def print_table(title: str, rows: list[Row]) -> None:
    """One block a row: columns, measured, each simulation with stars."""
    print(f"\n{title}")
    variants = list(rows[0].simulated)
    for row in rows:
        print(f"  {row.what:34}" + "".join(f"{column[-10:]:>11}" for column in row.columns))
        print(f"    {'measured':32}" + "".join(f"{value:11.1f}" for value in row.measured))
        for variant in variants:
            stars = ["" if good else "*" for good in row.within(variant)]
            values = [f"{value:.1f}{star or ' '}" for value, star in zip(row.simulated[variant], stars, strict=True)]
            print(f"    {variant:32}" + "".join(f"{value:>11}" for value in values))
    for variant in variants:
        good = sum(int(row.within(variant).sum()) for row in rows)
        print(f"  {variant}: {good} of {sum(len(row.measured) for row in rows)} figures within 3 dB or 20 %")


if __name__ == "__main__":
    main()
