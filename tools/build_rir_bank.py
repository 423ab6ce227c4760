"""Build a bank of simulated room responses for an array: in parallel, resumable, the same bits for any worker count.

Each room holds the wearer's mouth in several poses, conversation partners, bystanders, noises and a diffuse field.
An existing bank of the same settings is kept; a killed build goes on where it was.  With shard=2/8 this machine builds
the second eighth; all shards in one out_dir (or copied there) open as the bank that one machine would have built.

Run as: python tools/build_rir_bank.py out_dir=data/demo/rir_bank bank.train_rooms=24 bank.eval_rooms=8 workers=2
        python tools/build_rir_bank.py simulation@bank=full out_dir=data/bank count=1000000 workers=64 shard=1/4
"""

import os
import resource
import time
from dataclasses import dataclass, field

from wearllama.audio.array import load_array
from wearllama.simulation.bank_config import BankConfig, Shard, with_count
from wearllama.simulation.build import bank_is_built, build_bank, rooms_to_build
from wearllama_launch import launch


@dataclass(kw_only=True)
class BuildRirBank:
    out_dir: str = "data/demo/rir_bank"
    array: str = "glasses5"
    """Name in conf/array or a YAML file."""
    workers: int | None = None
    """Processes; all cores if not given."""
    count: int | None = None
    """Responses of the whole bank, at least, in place of bank.train_rooms and bank.eval_rooms: one room in twenty is
    for evaluation."""
    shard: str | None = None
    """NUMBER/COUNT: build only this part."""
    bank: BankConfig = field(default_factory=BankConfig)


@launch("build_rir_bank", BuildRirBank)
def main(config: BuildRirBank) -> None:
    array = load_array(config.array)
    wanted = config.bank if config.count is None else with_count(config.bank, config.count)
    shard = None if config.shard is None else Shard.parse(config.shard)
    if bank_is_built(wanted, array, config.out_dir, shard):
        print(f"{config.out_dir}: already built with these settings")
        return
    workers = config.workers or os.cpu_count() or 1
    todo = rooms_to_build(wanted, array, config.out_dir, shard)
    start, busy = time.perf_counter(), core_seconds()
    bank = build_bank(wanted, array, config.out_dir, workers, shard=shard)
    seconds, busy = time.perf_counter() - start, core_seconds() - busy
    size = os.path.getsize(bank.path / "rirs.npy") / len(bank)
    print(
        f"{bank.path}: {len(bank)} responses of {len(bank.rooms())} rooms, {bank.num_channels} microphones, "
        f"{bank.num_taps / bank.sample_rate:.2f} s each, {size * len(bank) / 1e6:,.0f} MB"
    )
    rendered = sum(len(bank.select(room=f"{split}_{index:05d}", pose=None)) for split, index in todo)
    if rendered:
        print_rate(rendered, seconds, busy, workers, size)


def print_rate(rendered: int, seconds: float, busy: float, workers: int, size: float) -> None:
    """What this run reached, and what follows for other counts and machines."""
    each = busy / rendered
    print(f"{rendered} rendered in {seconds:.0f} s with {workers} workers: {rendered / seconds * 3600:,.0f} an hour")
    print(
        f"{each:.3f} s of one core a response: {2 * 36_000 / each:,.0f} in ten hours on 2 cores; "
        f"a million in {1e6 * each / 64 / 3600:.1f} hours on 64 cores, {size * 1e6 / 1e9:,.0f} GB"
    )


def core_seconds() -> float:
    """CPU time of this process and of its workers that have ended."""
    own, others = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime + others.ru_utime + others.ru_stime


if __name__ == "__main__":
    main()
