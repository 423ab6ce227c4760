"""Writing the demo's benchmarks in the published layouts: WearVox's folder and a VGBench manifest, with audio."""

import json
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from wearllama.atomic import write_json, write_text
from wearllama.audio.array import ArrayGeometry
from wearllama.audio.beamforming import Beam, select_channels
from wearllama.audio.io import write_audio
from wearllama.data.actions import format_action
from wearllama.data.demo_benchmarks import QUIET, VgItem
from wearllama.data.demo_scenes import Scene, scene_messages, scene_recipe, scene_target, timeline
from wearllama.data.manifest import example_seed
from wearllama.data.prompts import Message, PromptSet
from wearllama.simulation.bank import RirBank
from wearllama.simulation.mixing import Mixture, MixtureRecipe, render
from wearllama.simulation.noise import NoiseBank
from wearllama.simulation.scene_file import write_scenes

LEVEL_DBFS = (-32.0, -24.0)
"""Levels of the evaluation's recordings."""

# Where the noise types of WearVox usually are: the demo's metadata has the same words in the same fields.
PLACES = {
    "Normal Conversation (1m)": ("Indoors", "Cafe / Break Area"),
    "Vehicles: Car, Bus, Truck, Motorcycle (15m)": ("Outdoors", "Street / Crosswalk"),
    "Music": ("Indoors", "Cafe / Break Area"),
    "Construction Noise: Jackhammer, other (15m)": ("Outdoors", "Street / Crosswalk"),
    "Vacuum Cleaning": ("Indoors", "Large Room / Area"),
    "Lawnmower (1m)": ("Outdoors", "Large Room / Area"),
    "Aircraft: Jet plane, military jet take-off (30m)": ("Outdoors", "Parking Lot (near-bus / cars)"),
    QUIET: ("Indoors", "Large Room / Area"),
}


@dataclass(frozen=True, kw_only=True)
class Studio:
    """All that turns a scene into recordings."""

    root: Path
    """Folder that clips' paths are relative to."""
    seconds: Mapping[str, float]
    """Duration of every clip, by file."""
    bank: RirBank
    noise: NoiseBank
    array: ArrayGeometry
    beam: Beam
    prompts: PromptSet
    rooms: str = "eval"
    """Split of the bank that rooms come from."""

    def plan(self, scene: Scene, seed_id: str) -> tuple[MixtureRecipe, int]:
        """A scene in a room of the split: its recipe and its seed."""
        recipe, _ = scene_recipe(scene, self.seconds, split=self.rooms, level_dbfs=LEVEL_DBFS)
        return recipe, example_seed(seed_id)

    def record(self, scene: Scene, seed_id: str) -> Mixture:
        """Render a scene."""
        recipe, seed = self.plan(scene, seed_id)
        return render(recipe, bank=self.bank, noise=self.noise, seed=seed, audio_root=self.root)

    def keep(self, scenes: Iterable[tuple[Scene, str]], folder: Path) -> None:
        """Write how the scenes that are heard were rendered, for evaluation conditions that change them."""
        mixtures = {scene.id: self.plan(scene, seed_id) for scene, seed_id in scenes if not scene.text_only}
        write_scenes(folder, mixtures, bank=self.bank, noise=self.noise, audio_root=self.root)

    def write(self, mixture: Mixture, mc: Path, beam: Path) -> torch.Tensor:
        """Write the array's channels and the aligned beam; returns the channels (M, N)."""
        audio_MN = torch.as_tensor(np.asarray(mixture.audio_MN), dtype=torch.float32)
        _, cx_N = select_channels(audio_MN, self.array, self.beam)
        write_audio(mc, audio_MN)
        write_audio(beam, cx_N.clamp(-1.0, 1.0)[None])
        return audio_MN


def write_wearvox(scenes: Sequence[Scene], studio: Studio, folder: Path) -> None:
    """Write WearVox's published layout: data_public.json, audio_metadata.json, wav/ (beam) and wav_mc/ (array)."""
    for name in ("wav", "wav_mc"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    rows, metadata = [], []
    for number, scene in enumerate(tqdm(scenes, desc="wearvox", unit="item")):
        # As in the published data the two stems have nothing in common: they are paired through the row.
        mono, multi = f"wav/q{number:04d}.wav", f"wav_mc/a{(number * 7 + 3) % 10_000:04d}.wav"
        mixture = studio.record(scene, scene.id)
        studio.write(mixture, folder / multi, folder / mono)
        rows.append(
            {
                "id": scene.id,
                "task": scene.task,
                "text_prompt": _words_only(scene_messages(scene, studio.prompts)),
                "audio_query": mono,
                "audio_query_mc": multi,
                "gt_transcript": scene.words,
                "ground_truth": _ground_truth(scene),
            }
        )
        metadata.append({"id": scene.id, "audio_metadata": _wearvox_metadata(scene, mixture)})
    studio.keep(((scene, scene.id) for scene in scenes), folder)
    write_json(folder / "audio_metadata.json", metadata)
    write_json(folder / "data_public.json", rows)


def _words_only(messages: Sequence[Message]) -> list[Message]:
    """All turns but the one that is sound: WearVox keeps that one in ``audio_query``."""
    return [turn for turn in messages if isinstance(turn["content"], str)]


def _ground_truth(scene: Scene) -> Any:
    answers = [alias for part in scene.spoken for alias in part.line.utterance.answers]
    return answers if answers and scene.action and scene.action.kind == "answer" else scene_target(scene)


def _wearvox_metadata(scene: Scene, mixture: Mixture) -> dict[str, Any]:
    environment, location = PLACES.get(scene.noise_type or "", ("Indoors", "Large Room / Area"))
    partner = next((s for s in _sources(mixture) if s.get("role") == "partner"), None)
    others = {part.role for part in scene.spoken} | ({"bystander"} if scene.background else set())
    return {
        "environment": environment,
        "noise_level": "Quiet" if scene.noise_type == QUIET else "Noisy / Loud",
        "_noise_type": scene.noise_type,
        "location": location,
        "partner_position": str(round(partner["azimuth_deg"])) if partner and "azimuth_deg" in partner else "N/A",
        "partner_distance": f"{partner['distance_m']:.1f}m" if partner and "distance_m" in partner else "N/A",
        "bystander__y_n_": "Yes" if "bystander" in others else "No",
    }


def _sources(mixture: Mixture) -> list[dict[str, Any]]:
    return list(mixture.metadata.get("sources", []))


def write_vgbench(items: Sequence[VgItem], studio: Studio, folder: Path) -> None:
    """Write the manifest (one condition a line) and its audio: five channels and the beam."""
    (folder / "audio").mkdir(parents=True, exist_ok=True)
    rows = [vgbench_row(item, studio, folder) for item in tqdm(items, desc="vgbench", unit="item")]
    studio.keep(((item.scene, item.seed_id) for item in items), folder)
    write_lines(folder / "manifest.jsonl", rows)


def vgbench_row(item: VgItem, studio: Studio, folder: Path) -> dict[str, Any]:
    """One line of the manifest; its five channels and beam are written below ``folder``."""
    scene = item.scene
    row: dict[str, Any] = {
        "id": scene.id,
        "scenario": item.scenario,
        **item.fields,
        "target_action": _target_action(scene),
        "audio": None,
        "split": item.split,
        "template_id": [part.line.utterance.template_id for part in scene.spoken],
        "messages": scene_messages(scene, studio.prompts),
    }
    spans: list[tuple[float | None, float | None]] = [(None, None)] * len(scene.spoken)
    if not scene.text_only:
        mixture = studio.record(scene, item.seed_id)
        row["audio"], row["beam"] = f"audio/{scene.id}.wav", f"audio/{scene.id}.beam.wav"
        audio_MN = studio.write(mixture, folder / row["audio"], folder / row["beam"])
        row["peak"] = round(float(audio_MN.abs().max()), 4)
        row["duration_s"] = audio_MN.shape[1] / 16_000
        row["room"] = {"id": str(mixture.metadata.get("room", "")), "sources": _sources(mixture)}
        _, total = scene_recipe(scene, studio.seconds, split="eval", level_dbfs=LEVEL_DBFS)
        assert abs(total - row["duration_s"]) < 0.02, (scene.id, total, row["duration_s"])
        spans = list(scene_spans(scene, studio.seconds))
    source = {voice: "AB"[at] for at, voice in enumerate(dict.fromkeys(p.line.speaker.voice for p in scene.spoken))}
    row["segments"] = [
        {
            "text": part.line.utterance.text,
            "part": part.part,
            "voice": None if scene.text_only else part.line.speaker.voice,
            "source": source[part.line.speaker.voice],
            "distance": "near" if part.role == "wearer" else "far",
            "start_s": start,
            "end_s": end,
        }
        for part, (start, end) in zip(scene.spoken, spans, strict=True)
    ]
    return row


def scene_spans(scene: Scene, seconds: Mapping[str, float]) -> list[tuple[float, float]]:
    """Start and end of each foreground clip, as the recipe has them."""
    return timeline(scene, seconds, random.Random(scene.id))


def _target_action(scene: Scene) -> dict[str, Any]:
    assert scene.action is not None
    call = scene.action.calls[0] if scene.action.calls else None
    target: dict[str, Any] = {"kind": scene.action.kind, "name": call.name if call else None}
    if call:
        target["params"] = dict(call.arguments)
    if scene.action.kind == "answer":
        target["text"] = format_action(scene.action, "vgbench")
    return target


def write_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write JSONL whole or not at all."""
    write_text(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
