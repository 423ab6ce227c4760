"""What training and evaluation use of voices, rooms and wordings, and the check that they share none of it."""

from collections.abc import Sequence
from typing import Any

from wearllama.data.demo_scenes import Scene
from wearllama.data.textgen import normalise
from wearllama.data.voices import blended_from
from wearllama.simulation.bank import RirBank

KINDS = ("voices", "rooms", "wordings", "sentences")


def split_record(train: Sequence[Scene], held_out: Sequence[Scene], bank: RirBank) -> dict[str, Any]:
    """Voices, rooms, wordings and sentences of both splits, sorted: what ``splits.json`` holds."""
    return {
        "train": {**_used(train), "rooms": bank.rooms("train")},
        "eval": {**_used(held_out), "rooms": bank.rooms("eval")},
    }


def _used(scenes: Sequence[Scene]) -> dict[str, list[str]]:
    lines = [line for scene in scenes for line in scene.lines]
    heard = [line for scene in scenes if not scene.text_only for line in scene.lines]
    return {
        "voices": sorted({voice for line in heard for voice in blended_from(line.speaker.voice)}),
        "wordings": sorted({line.utterance.template_id for line in lines}),
        "sentences": sorted({normalise(line.utterance.text) for line in lines}),
    }


def check_disjoint(record: dict[str, Any]) -> None:
    """ValueError names what a voice, room, wording or sentence is shared by both splits."""
    for kind in KINDS:
        shared = sorted(set(record["train"][kind]) & set(record["eval"][kind]))
        if shared:
            raise ValueError(f"training and evaluation share {len(shared)} {kind}, first {shared[:3]}")
        for split in ("train", "eval"):
            if not record[split][kind]:
                raise ValueError(f"split {split} has no {kind}")
