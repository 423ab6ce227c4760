"""Mix VoxGate's training rows: VGBench's training part with WearVox-style tool, abstention and answer rows.

Run as: python tools/mix_voxgate.py                    (after tools/build_vgbench.py and tools/prepare_demo.py)
        python tools/mix_voxgate.py mute_share=0.25    (ablation: SFT sees fewer muted triggers)
        python tools/mix_voxgate.py translations=data/translations/train.jsonl

Writes OUT/sft.jsonl, OUT/cue_balanced.jsonl, OUT/random_gaps.jsonl (same rows, only the heard sides of the pairs are
replaced) and OUT/grpo.jsonl, all with paths relative to ROOT. Translation rows, which the paper's mixture has too, come
from tools/make_translations.py (translations=FILE); the demo has none, since its voices speak English.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from wearllama.data.manifest import Example, read_manifest, write_manifest
from wearllama.data.mixed_rows import below, spread
from wearllama.evaluation.wearvox import TRANSLATION
from wearllama_launch import existing_path, launch

WEARVOX_TASKS = ("tool_call", "non-assistant-directed", "closed_book", "grounding")


@dataclass(kw_only=True)
class MixVoxGate:
    """What is mixed."""

    root: str = "data"
    """Folder that the mixed rows' paths are relative to; both sources lie below it."""
    vgbench: str = "data/vgbench"
    protocol: str = "items"
    """``items``, ``voices``, ``templates`` or ``tools``: which training part."""
    wearvox: str = "data/demo/train.jsonl"
    wearvox_rows: int = 2000
    """At most so many of its rows, spread evenly."""
    translations: str | None = None
    """Manifest of translation rows (tools/make_translations.py), below ``root``."""
    translation_rows: int = 500
    """At most so many of them, spread evenly."""
    mute_share: float = 1.0
    """Share of the muted sides that SFT sees."""
    out: str = "data/voxgate"

    def __post_init__(self) -> None:
        if not 0 <= self.mute_share <= 1:
            raise ValueError(f"mute_share is {self.mute_share}, wanted 0 to 1")
        if self.wearvox_rows < 0 or self.translation_rows < 0:
            raise ValueError(
                f"wearvox_rows {self.wearvox_rows} or translation_rows {self.translation_rows} is less than 0"
            )


@launch("mix_voxgate", MixVoxGate)
def main(config: MixVoxGate) -> None:
    root, folder, out = Path(config.root), existing_path(config.vgbench, "vgbench"), Path(config.out)
    name = "train.jsonl" if config.protocol == "items" else f"train-{config.protocol}.jsonl"
    gate = below(read_manifest(existing_path(folder / name, "protocol")), folder, root)
    manifest = existing_path(config.wearvox, "wearvox")
    others = below(spread(wearvox_rows(manifest), config.wearvox_rows), manifest.parent, root)
    if config.translations is not None:
        manifest = existing_path(config.translations, "translations")
        others += below(spread(translation_rows(manifest), config.translation_rows), manifest.parent, root)
    heard = [row for row in gate if "group" in row.metadata]
    rest = [row for row in gate if "group" not in row.metadata]
    sft = thin(heard, config.mute_share) + rest + others
    counts = {"sft": write_manifest(out / "sft.jsonl", sft), "grpo": write_manifest(out / "grpo.jsonl", gate + others)}
    for cue, title in (("balanced", "cue_balanced"), ("random_gaps", "random_gaps")):
        kept = {row.metadata["group"] for row in heard}
        changed = below(read_manifest(folder / f"cues-{cue}.jsonl"), folder, root)
        changed = [row for row in changed if row.metadata["group"] in kept]
        counts[title] = write_manifest(out / f"{title}.jsonl", changed + rest + others)
    print(f"{out}: " + ", ".join(f"{name} {count} rows" for name, count in counts.items()))


def wearvox_rows(manifest: Path) -> list[Example]:
    """Rows of WearVox's tasks in WearVox's dialect."""
    return [row for row in read_manifest(manifest) if row.task in WEARVOX_TASKS and row.dialect == "wearvox"]


def translation_rows(manifest: Path) -> list[Example]:
    """Rows of live translation; ValueError where the manifest has others."""
    rows = read_manifest(manifest)
    if other := sorted({row.task for row in rows} - {TRANSLATION}):
        raise ValueError(f"{manifest}: rows of {other}, wanted {TRANSLATION!r} alone")
    return rows


def thin(rows: Sequence[Example], share: float) -> list[Example]:
    """All tool sides, and ``share`` of the muted ones, evenly."""
    muted = [row for row in rows if row.metadata["side"] == "switch"]
    kept = {row.id for row in spread(muted, round(share * len(muted)))} if share else set()
    return [row for row in rows if row.metadata["side"] != "switch" or row.id in kept]


if __name__ == "__main__":
    main()
