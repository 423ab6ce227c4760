"""How a set of recordings was rendered, kept beside them: a recipe and a seed a recording, one bank, one noise bank.

With it a condition can change the scene itself (the room, how far people stand) and leave all else as it was.  Folders
are relative to the file, so that data can be moved as a whole.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from wearllama.atomic import write_text
from wearllama.simulation.bank import RirBank
from wearllama.simulation.conditions import Condition
from wearllama.simulation.mixing import Mixture, MixtureRecipe, render
from wearllama.simulation.noise import NoiseBank
from wearllama.simulation.scene_edits import Surrounding, talk_of

NAME = "scenes.json"
_FIELDS = ("audio_root", "bank", "noise", "speech", "mixtures")


class SceneFile:
    """Renders recordings again by id."""

    def __init__(self, path: str | Path) -> None:
        """ValueError if the file is missing or lacks a field."""
        self.path = Path(path)
        if not self.path.is_file():
            raise ValueError(
                f"no {self.path}: conditions of scenes need the recipes that the recordings were rendered from "
                "(tools/prepare_demo.py writes them); recordings from elsewhere take the other conditions"
            )
        text = self.path.read_text(encoding="utf-8")
        self._fields: dict[str, Any] = json.loads(text)
        if missing := [name for name in _FIELDS if name not in self._fields]:
            raise ValueError(f"{self.path}: missing {missing}")
        bank_meta = (self._folder(self._fields["bank"]) / "meta.json").read_text(encoding="utf-8")
        self.stamp = hashlib.sha256(f"{text}\n{bank_meta}".encode()).hexdigest()[:16]
        """Changes with the recipes and with the bank."""

    def render(self, name: str, condition: Condition | None = None, seed: int = 0) -> Mixture:
        """A recording as it was made, or with its scene changed; ``seed`` draws what the condition leaves open."""
        row = self._fields["mixtures"].get(name)
        if row is None:
            raise ValueError(f"{self.path}: no scene for {name!r}")
        recipe = MixtureRecipe.from_dict(row["recipe"])
        if condition is not None:
            recipe = condition.edit(recipe, self._around, seed)
        root = self._around.audio_root
        return render(recipe, bank=self._around.bank, noise=self._noise, seed=int(row["seed"]), audio_root=root)

    @cached_property
    def _around(self) -> Surrounding:
        bank, audio_root = (self._folder(self._fields[name]) for name in ("bank", "audio_root"))
        return Surrounding(bank=RirBank.open(bank), audio_root=audio_root, talk=talk_of(self._fields["mixtures"]))

    @cached_property
    def _noise(self) -> NoiseBank:
        folders, speech = ([self._folder(name) for name in self._fields[field]] for field in ("noise", "speech"))
        return NoiseBank(folders, speech=speech)

    def _folder(self, name: str) -> Path:
        return self.path.parent / name


def write_scenes(
    folder: Path,
    mixtures: Mapping[str, tuple[MixtureRecipe, int]],
    *,
    bank: RirBank,
    noise: NoiseBank,
    audio_root: Path,
) -> Path:
    """Write recipes and seeds by recording into ``folder``, whole or not at all; returns the file's path."""

    def relative(path: Path) -> str:
        return os.path.relpath(path.resolve(), folder.resolve())

    fields = {
        "audio_root": relative(audio_root),
        "bank": relative(bank.path),
        "noise": [relative(path) for path in noise.folders],
        "speech": [relative(path) for path in noise.speech],
        "mixtures": {name: {"recipe": recipe.to_dict(), "seed": seed} for name, (recipe, seed) in mixtures.items()},
    }
    path = folder / NAME
    write_text(path, json.dumps(fields, indent=1) + "\n")
    return path
