"""What data were made from, as one short hash: same settings, texts, bank and tools give the same data."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from importlib import resources
from pathlib import Path
from typing import Any


def made_from(version: int, config: Any, facts: Sequence[Any] = (), *, bank: str | Path) -> str:
    """16 hexadecimal digits of a tool's settings, the package's texts and the RIR bank.

    Args:
        version: of the tool; raised when the same settings give other data.
        config: the tool's dataclass; ``workers`` changes nothing and does not count.
        facts: what else the data depend on (engines that speak, recordings found).
        bank: folder of the bank.
    """
    settings = asdict(config)
    settings.pop("workers", None)
    folder = resources.files("wearllama.data").joinpath("texts")
    texts = {item.name: item.read_text(encoding="utf-8") for item in folder.iterdir() if item.name.endswith(".yaml")}
    meta = (Path(bank) / "meta.json").read_text()
    described = json.dumps([version, settings, sorted(texts.items()), *facts, meta], sort_keys=True)
    return hashlib.sha256(described.encode()).hexdigest()[:16]
