"""Build the whole of VGBench from scripts and voices: 400 speaker-switch, 223 self-talk and 395 side-talk items.

Run as: python tools/build_vgbench.py                              (Kokoro's eight voices; about 3,000 clips)
        python tools/build_vgbench.py preset=demo                  (small, quick voices: what the demo's GRPO trains on)
        python tools/build_vgbench.py script_only=true             (script.jsonl: what speakers are to read)
        python tools/build_vgbench.py recordings=/data/read plan.voices=[recorded/ann,...]
        python tools/build_vgbench.py check=true                   (the folder against its lock.json)

OUT holds manifest.jsonl (docs/vgbench_manifest.md) with audio of five channels and the beam, mono.jsonl with the
paper's mono rendering, train.jsonl and train-PROTOCOL.jsonl for recipes/sft.py and recipes/grpo.py, cues-*.jsonl (the
heard sides of training pairs with balanced cues or random gaps), balance.json and lock.json. Needs the RIR bank
(tools/build_rir_bank.py). Interrupted work is taken up again.
"""

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import soundfile
from tqdm import tqdm

from wearllama.atomic import write_json
from wearllama.audio.array import load_array
from wearllama.audio.beamforming import design_beam
from wearllama.data.demo_layout import Studio, vgbench_row, write_lines
from wearllama.data.demo_scenes import GAP_S, clip_seconds, scene_messages, scene_target, to_example
from wearllama.data.demo_speakers import Line
from wearllama.data.demo_speech import speak_lines
from wearllama.data.made_from import made_from
from wearllama.data.manifest import Example, write_manifest
from wearllama.data.prompts import PromptStyle, load_prompts
from wearllama.data.vgbench_full import PROTOCOLS, BuiltItem, VgBenchPlan, describe_balance, factorised, plan_items
from wearllama.data.vgbench_lock import check_lock, lock_of
from wearllama.data.vgbench_mono import FarRoom, far_room, render_mono
from wearllama.data.vgbench_recorded import place_recordings
from wearllama.simulation.bank import RirBank
from wearllama.simulation.noise import NoiseBank
from wearllama.unread import refuse_unread
from wearllama_launch import existing_path, launch

VERSION = 2
"""Raised when the same settings and texts give other data."""
DEMO = VgBenchPlan(
    switch_pairs=300, self_talk=80, side_talk=60,
    voices=("flite/rms", "flite/slt", "flite/kal16", "flite/awb"), held_out_voices=("pico/en-US", "pico/en-GB"),
)  # fmt: skip
"""Voices that speak at fifty times real time, all of them training voices of the demo."""


@dataclass(kw_only=True)
class BuildVgBench:
    """What is built from what."""

    out_dir: str = "data/vgbench"
    bank: str = "data/demo/rir_bank"
    noise: list[str] = field(default_factory=list)
    """Folders of recorded noise; none gives the synthetic kinds."""
    array: str = "glasses5"
    plan: VgBenchPlan = field(default_factory=VgBenchPlan)
    preset: Literal["paper", "demo"] = "paper"
    """``demo``: a plan of fewer items and quick voices in place of ``plan``."""
    prompts: PromptStyle = "compact"
    """Of the rows' messages: ``full`` for real decoders, ``compact`` for the demo scale."""
    benchmark: bool = True
    """False: training rows only, which is what the demo's GRPO needs."""
    recordings: str | None = None
    """Folder with index.jsonl ({"file", "speaker", "text"} a line) of what speakers read."""
    workers: int = 2
    script_only: bool = False
    check: bool = False

    def __post_init__(self) -> None:
        if self.preset == "demo":
            if self.plan != DEMO:  # a copy of these settings brings it along
                refuse_unread(self, ("plan",), "with preset=demo, a plan of its own")
            self.plan = DEMO


@launch("build_vgbench", BuildVgBench)
def main(config: BuildVgBench) -> None:
    out_dir = Path(config.out_dir)
    if config.check:
        count = check_lock(existing_path(out_dir, "out_dir"))
        print(f"{out_dir}: {count} files are as lock.json has them")
        return
    items = plan_items(config.plan)
    items += factorised(items)
    if not config.benchmark:
        items = [built for built in items if is_trained(built, "items")]
    lines = {line.id: line for built in items if not built.item.scene.text_only for line in built.item.scene.lines}
    if config.script_only:
        write_lines(out_dir / "script.jsonl", script(list(lines.values())))
        print(f"{out_dir}/script.jsonl: {len(lines)} sentences to read")
        return
    bank = RirBank.open(existing_path(config.bank, "bank"))
    bank.require_array(load_array(config.array))
    key = made_from(VERSION, config, bank=config.bank)
    if built_from(out_dir) == key:
        print(f"{out_dir} is built already (check=true holds its files against lock.json)")
        return
    if config.recordings is not None:
        place_recordings(existing_path(config.recordings, "recordings"), list(lines.values()), out_dir)
    spoken = speak_lines(list(lines.values()), out_dir, workers=config.workers)
    print(f"speech: {spoken} clips spoken, {len(lines)} in all")
    build(config, items, lines, bank, out_dir)
    write_json(out_dir / "balance.json", describe_balance(items), indent=2)
    write_json(out_dir / "lock.json", {"made_from": key, **lock_of(out_dir)}, indent=2)
    print(f"{out_dir}: {json.dumps(describe_balance(items)['items'])}, {len(items)} conditions; lock.json written")


def built_from(out_dir: Path) -> str | None:
    """Hash of what a finished folder was made from."""
    path = out_dir / "lock.json"
    return json.loads(path.read_text()).get("made_from") if path.is_file() else None


def is_trained(built: BuiltItem, protocol: str) -> bool:
    """Whether a protocol's training part has the item."""
    return built.splits[protocol] == "train" and built.item.scenario != "factorised"


def script(lines: list[Line]) -> list[dict[str, Any]]:
    """What each speaker is to read, in his order."""
    ordered = sorted(lines, key=lambda line: (line.speaker.voice, line.utterance.template_id, line.id))
    return [
        {"file": Path(line.file).name, "speaker": line.speaker.voice.removeprefix("recorded/"),
         "text": line.utterance.text}
        for line in ordered
    ]  # fmt: skip


def build(config: BuildVgBench, items: list[BuiltItem], lines: dict[str, Line], bank: RirBank, out_dir: Path) -> None:
    """Render both forms of every condition and write the manifests."""
    array = load_array(config.array)
    seconds = clip_seconds(out_dir, sorted({line.file for line in lines.values()}))
    studios = {
        split: Studio(root=out_dir, seconds=seconds, bank=bank, noise=NoiseBank(config.noise), array=array,
                      beam=design_beam(array), prompts=load_prompts(style=config.prompts), rooms=split)
        for split in ("train", "eval")
    }  # fmt: skip
    room = far_room(bank)
    rows, mono_rows = [], []
    for name in ("audio", "mono"):
        (out_dir / name).mkdir(parents=True, exist_ok=True)
    for built in tqdm(items, desc="vgbench", unit="condition"):
        rows.append({**vgbench_row(built.item, studios[built.item.split], out_dir), "splits": built.splits})
        mono_rows.append(mono_row(built, rows[-1], room, out_dir))
    write_lines(out_dir / "manifest.jsonl", rows)
    write_lines(out_dir / "mono.jsonl", mono_rows)
    for protocol in PROTOCOLS if config.benchmark else ("items",):
        name = "train.jsonl" if protocol == "items" else f"train-{protocol}.jsonl"
        write_manifest(out_dir / name, examples(items, rows, studios["train"], protocol))
    cues: tuple[Literal["balanced", "random_gaps"], ...] = ("balanced", "random_gaps")
    for cue in cues:
        write_manifest(out_dir / f"cues-{cue}.jsonl", cue_rows(items, studios["train"], cue, config.plan.seed))


def mono_row(built: BuiltItem, row: dict[str, Any], room: FarRoom, out_dir: Path) -> dict[str, Any]:
    """The row with the paper's mono rendering in place of the array's."""
    mono = {name: value for name, value in row.items() if name not in ("audio", "beam", "room", "peak", "duration_s")}
    if built.item.scene.text_only:
        return {**mono, "audio": None}
    audio_N, notes = render_mono(built.item.scene, room, out_dir)
    name = f"mono/{row['id']}.wav"
    soundfile.write(out_dir / name, audio_N, 16_000, subtype="PCM_16")
    segments = [{**segment, **note} for segment, note in zip(row["segments"], notes, strict=True)]
    far = any(note["distance"] == "far" for note in notes)
    return {
        **mono, "audio": name, "segments": segments, "duration_s": len(audio_N) / 16_000,
        "peak": round(float(np.abs(audio_N).max()), 4), "room": room.facts if far else None,
        "normalisation": {"rms_dbfs": -26.0, "fade_ms": 5},
    }  # fmt: skip


def cue_rows(
    items: list[BuiltItem], studio: Studio, cue: Literal["balanced", "random_gaps"], seed: int
) -> Iterator[Example]:
    """The heard sides of the training pairs with other distances or gaps, as recipes that every epoch renders anew.

    ``balanced``: near and far crossed with 0 and 600 ms inside BOTH labels, each combination as often as any other
    (the paper's cue-balanced control: a tool may then be called from afar). ``random_gaps``: 0 to 600 ms, the same on
    both sides.
    """
    rng = random.Random(f"{cue}/{seed}")
    heard = [b for b in items if b.item.scenario == "speaker_switch" and b.splits["items"] == "train"]
    heard = [b for b in heard if not b.item.scene.text_only]
    gaps: dict[str, float] = {}
    for built in heard:
        item, pair = built.item, built.item.seed_id
        gaps.setdefault(pair, round(rng.uniform(0.0, GAP_S), 3))
        turn = list(gaps).index(pair)
        context, trigger = item.scene.spoken
        if cue == "balanced":
            trigger = replace(trigger, role=("wearer", "bystander")[turn % 2], gap_s=GAP_S * (turn // 2 % 2))
        else:
            trigger = replace(trigger, gap_s=gaps[pair])
        scene = replace(item.scene, id=f"{cue}-{item.scene.id}", spoken=(context, trigger))
        example = to_example(scene, studio.seconds, studio.prompts, level_dbfs=(-40.0, -18.0))
        example.metadata |= {"group": pair, "side": item.fields["condition"], "seed_id": pair}
        yield example


def examples(items: list[BuiltItem], rows: list[dict[str, Any]], studio: Studio, protocol: str) -> Iterator[Example]:
    """Training rows (contract 7) of a protocol; the heard sides of a pair are one group of GRPO."""
    for built, row in zip(items, rows, strict=True):
        item = built.item
        if not is_trained(built, protocol):
            continue
        metadata: dict[str, Any] = {"dialect": "vgbench", "template": row["template_id"], "tool": row.get("tool")}
        if row["audio"]:
            metadata["seconds"] = row["duration_s"]
            if "pair_id" in item.fields:
                metadata |= {"group": item.seed_id, "side": item.fields["condition"], "seed_id": item.seed_id}
        yield Example(
            id=row["id"],
            task=item.scenario,
            split="train",
            messages=scene_messages(item.scene, studio.prompts),
            target=scene_target(item.scene),
            audio={"mc": row["audio"], "beam": row["beam"]} if row["audio"] else None,
            metadata=metadata,
        )


if __name__ == "__main__":
    main()
