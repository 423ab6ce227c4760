"""What is broken in a source of data: named, counted, and at a stated share the end of the run."""

import json
from pathlib import Path


class TooManyFaults(ValueError):
    """More of a source is broken than was allowed; the message names where the list is."""


class Faults:
    """Collects faults of one job, appends each to a JSONL file, and stops the job when there are too many."""

    BEFORE_JUDGING = 100
    """Items after which a share is taken seriously; the end of the job judges it in any case."""

    def __init__(self, path: Path, tolerance: float, *, keep: bool = False) -> None:
        """
        Args:
            path: JSONL of ``{"kind", "name", "why"}``.
            tolerance: share of all items that may be broken; 0 stops at the first.
            keep: append to what the file has; it is begun anew otherwise.
        """
        if not 0 <= tolerance < 1:
            raise ValueError(f"tolerance is {tolerance}, wanted 0 to 1")
        self.path, self.tolerance = path, tolerance
        self.items = 0
        self.kinds: dict[str, int] = {}
        path.parent.mkdir(parents=True, exist_ok=True)
        if not keep:
            path.write_text("", encoding="utf-8")

    @property
    def count(self) -> int:
        return sum(self.kinds.values())

    def good(self, items: int = 1) -> None:
        """Count items that are whole."""
        self.items += items

    def add(self, kind: str, name: str, why: str) -> None:
        """Note a broken item; TooManyFaults where that is one too many."""
        self.items += 1
        self.kinds[kind] = self.kinds.get(kind, 0) + 1
        with self.path.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps({"kind": kind, "name": name, "why": why}, ensure_ascii=False) + "\n")
        if self.tolerance == 0 or self.count > self.tolerance * max(self.items, self.BEFORE_JUDGING):
            raise TooManyFaults(f"{self.describe()}; last {name}: {why}")

    def finish(self) -> None:
        """At the end: TooManyFaults where the share is above the tolerance, else say what was left out."""
        if self.count > self.tolerance * self.items:
            raise TooManyFaults(self.describe())
        if self.count:
            print(f"left out: {self.describe()}")

    def describe(self) -> str:
        """Counts by kind, the share that is allowed, and where the names are."""
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(self.kinds.items()))
        return (
            f"{self.count} of {self.items} items broken ({kinds}), tolerance={self.tolerance:g}, named in {self.path}"
        )
