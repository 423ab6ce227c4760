"""Rows of several manifests in one that recipes/sft.py reads: your own beside the demo's, say.

Run as: python tools/mix_rows.py manifests=[data/demo/train.jsonl,data/mine_rows/asr.jsonl] out=data/mix.jsonl
        python tools/mix_rows.py manifests=[A,B] roots=[data/demo,data] rows=[2000,500] root=data out=data/mix.jsonl

Afterwards data.root=ROOT in training. An id that stands in two manifests is an error that names both.
"""

from dataclasses import dataclass
from pathlib import Path

from wearllama.data.manifest import Example, read_manifest, write_manifest
from wearllama.data.mixed_rows import below, spread
from wearllama_launch import existing_path, launch


@dataclass(kw_only=True)
class MixRows:
    """What is mixed."""

    manifests: tuple[str, ...]
    out: str
    root: str = "data"
    """Folder that the mixed rows' paths are relative to; all sound lies below it."""
    roots: tuple[str, ...] = ()
    """Folder that each manifest's own paths are relative to; by default the manifest's."""
    rows: tuple[int, ...] = ()
    """At most so many rows of each, spread evenly; by default all."""

    def __post_init__(self) -> None:
        for name in ("roots", "rows"):
            given, count = getattr(self, name), len(self.manifests)
            if given and len(given) != count:
                raise ValueError(f"{name} has {len(given)} values, wanted one for each of {count} manifests")
        if any(count < 1 for count in self.rows):
            raise ValueError(f"rows is {list(self.rows)}, wanted 1 or more of each")


@launch("mix_rows", MixRows)
def main(config: MixRows) -> None:
    mixed: list[Example] = []
    stands_in: dict[str, str] = {}
    for index, name in enumerate(config.manifests):
        path = existing_path(name, "manifests")
        rows = read_manifest(path)
        chosen = spread(rows, config.rows[index]) if config.rows else rows
        if twice := [row.id for row in chosen if row.id in stands_in]:
            raise ValueError(f"id {twice[0]!r} stands in {stands_in[twice[0]]} and in {name}")
        stands_in |= dict.fromkeys((row.id for row in chosen), name)
        mixed += below(chosen, Path(config.roots[index]) if config.roots else path.parent, Path(config.root))
        print(f"{name}: {len(chosen)} of {len(rows)} rows")
    print(f"{config.out}: {write_manifest(config.out, mixed)} rows; train with data.root={config.root}")


if __name__ == "__main__":
    main()
