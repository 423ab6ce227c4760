"""Import measured responses (multichannel WAV, FLAC or SOFA) into a bank that mixtures use like a simulated one.

File names say room and source (measured.pattern); measured.rooms and measured.sources say what these are, and
measured.channels which channel of the files is which microphone. One scale for all, one shift a response, never one a
channel. conf/measured/ has an example to copy; SOFA needs pip install 'wearllama[sofa]'.

Run as: python tools/import_rirs.py measured=glasses_rirs folder=../shared/data/glasses_rirs out_dir=data/glasses_bank
"""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from wearllama.audio.array import load_array
from wearllama.simulation.importing import MeasuredSet, import_folder
from wearllama_launch import existing_path, launch


@dataclass(kw_only=True)
class ImportRirs:
    folder: str
    out_dir: str
    measured: MeasuredSet = field(default_factory=MeasuredSet)


@launch("import_rirs", ImportRirs)
def main(config: ImportRirs) -> None:
    array = load_array(config.measured.array)
    folder = existing_path(config.folder, "folder")
    bank = import_folder(Path(folder), Path(config.out_dir), config.measured, array)
    print(f"{'entry':44} {'role':10} {'azimuth':>7} {'metres':>7} {'RT60 s':>7} {'DRR dB':>7}")
    for entry in bank.entries:
        numbers = f"{entry.azimuth_deg:7.1f} {entry.distance_m:7.2f} {entry.rt60_s:7.3f} {entry.drr_db:7.1f}"
        print(f"{entry.id:44} {entry.role:10} {numbers}")
    roles = Counter(entry.role for entry in bank.entries)
    print(
        f"{config.out_dir}: {len(bank)} entries of {len(bank.rooms())} rooms ("
        + ", ".join(f"{count} {role}" for role, count in sorted(roles.items()))
        + f"), {bank.num_channels} microphones, {bank.num_taps} taps, scale {bank.meta['scale']:.4g}"
    )


if __name__ == "__main__":
    main()
