"""Build a bank of simulated room responses for an array: in parallel, resumable, the same bits for any worker count.

Each room holds the wearer's mouth in several poses, conversation partners, bystanders, noises and a diffuse field.
An existing bank of the same settings is kept; a killed build goes on where it was.

Run as: python tools/build_rir_bank.py out_dir=data/demo/rir_bank bank.train_rooms=24 bank.eval_rooms=8 workers=2
"""

import os
import time
from dataclasses import dataclass, field

from wearllama.audio.array import load_array
from wearllama.simulation.build import BankConfig, bank_is_built, build_bank
from wearllama_launch import launch


@dataclass(kw_only=True)
class BuildRirBank:
    out_dir: str = "data/demo/rir_bank"
    array: str = "glasses5"
    """Name in conf/array or a YAML file."""
    workers: int | None = None
    """Processes; all cores if not given."""
    bank: BankConfig = field(default_factory=BankConfig)


@launch("build_rir_bank", BuildRirBank)
def main(config: BuildRirBank) -> None:
    array = load_array(config.array)
    if bank_is_built(config.bank, array, config.out_dir):
        print(f"{config.out_dir}: already built with these settings")
        return
    start = time.perf_counter()
    bank = build_bank(config.bank, array, config.out_dir, config.workers or os.cpu_count() or 1)
    seconds = time.perf_counter() - start
    print(
        f"{config.out_dir}: {len(bank)} responses of {len(bank.rooms())} rooms, {bank.num_channels} microphones, "
        f"{bank.num_taps / bank.sample_rate:.2f} s each, in {seconds:.0f} s ({len(bank) / seconds * 3600:,.0f} an hour)"
    )


if __name__ == "__main__":
    main()
