"""A few training rows made by hand: each clip said by the wearer (a tool call) and by somebody else ([Mute]).

Enough to see in a minute what a change of model or mixing does; nothing to report results on.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from tqdm import tqdm

from wearllama.audio.array import ArrayGeometry
from wearllama.audio.io import write_audio
from wearllama.audio.timebase import SAMPLE_RATE
from wearllama.data.actions import Call, format_action, mute, tool
from wearllama.data.manifest import Example, write_manifest
from wearllama.data.prompts import build_messages, load_prompts
from wearllama.data.tools import WEARVOX_TOOLS
from wearllama.simulation.noise import NoiseBank
from wearllama.simulation.placed import Place, PlacedScene, Talker, render_placed
from wearllama.simulation.spaces import Space


def write_placed_rows(
    folder: str | Path,
    clips: Mapping[Path, str],
    array: ArrayGeometry,
    spaces: Mapping[str, Space],
    *,
    seed: int = 0,
    taps: int = 4000,
    split: str = "train",
) -> Path:
    """Write ``folder/manifest.jsonl`` and its five-channel recordings; returns the manifest.

    Args:
        clips: mono 16 kHz files and their words.
        array: whose microphones record.
        spaces: by name; scenes go through them in turn.
        seed: of places, levels and noise.
        taps: length of the responses.
        split: of the rows.
    """
    root = Path(folder)
    (root / "wav").mkdir(parents=True, exist_ok=True)
    rng, noise, system = np.random.default_rng(seed), NoiseBank(), load_prompts(style="compact")
    messages = build_messages(system=system.system("wearvox", WEARVOX_TOOLS))
    examples = []
    names = list(spaces)
    for number, (file, words) in enumerate(tqdm(clips.items(), desc="scenes", unit="clip")):
        for role in ("wearer", "bystander"):
            place = Place(azimuth_deg=float(rng.uniform(-90, 90)), distance_m=float(rng.uniform(0.5, 1.0)))
            scene = PlacedScene(
                space=spaces[names[number % len(names)]],
                talkers=(Talker(role=role, file=str(file.resolve()), place=place, start_s=0.1),),
                noise_type="Quiet Office",
                noise_dba=float(rng.uniform(35, 50)),
                level_dbfs=float(rng.uniform(-36, -20)),
                taps=taps,
                seed=seed + number,
            )
            mixture = render_placed(scene, array, noise=noise)
            name = f"wav/{role}-{number:03d}.wav"
            write_audio(root / name, mixture.audio_MN)
            action = mute() if role == "bystander" else tool(Call("web_search", {"search_query": words}))
            examples.append(Example(
                id=f"{role}-{number:03d}", task="non-assistant-directed" if role == "bystander" else "tool_call",
                split=split, messages=messages, audio={"mc": name, "beam": None},
                target=format_action(action, "wearvox"),
                metadata={"transcript": words, "seconds": mixture.audio_MN.shape[1] / SAMPLE_RATE},
            ))  # fmt: skip
    write_manifest(root / "manifest.jsonl", examples, progress=False)
    return root / "manifest.jsonl"
