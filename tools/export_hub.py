"""A checkpoint as a push-ready folder: weights in safetensors shards, processor, code, model card and licence.

Run as: python tools/export_hub.py ckpt=runs/demo/sft out_dir=hub/wearllama-demo report=[runs/demo/report/results.json]
        python tools/export_hub.py ckpt=... out_dir=... merge_lora=true dtype=bfloat16 licence=llama3.2

Where wearllama is not installed, `AutoModelForCausalLM.from_pretrained(FOLDER, trust_remote_code=True)` loads it, and
AutoProcessor too; that is tried before the folder takes its place. Push: `hf upload USER/NAME FOLDER`.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch

from wearllama.evaluation.adapters import checkpoint_folder, weights_hash
from wearllama.evaluation.model_card import CardFacts, model_card, read_results, run_config
from wearllama.modeling.configuration import WearLlamaConfig
from wearllama.modeling.factory import cast_weights, load_checkpoint
from wearllama.modeling.hub import export_folder
from wearllama.modeling.hub_code import flat_sources, packages
from wearllama_launch import existing_path, launch

LICENSE = Path(__file__).resolve().parents[1] / "LICENSE"
"""Of the code that the folder carries."""


@dataclass(kw_only=True)
class ExportHub:
    ckpt: str
    """Checkpoint folder, or a training run's folder with its ``final`` inside."""
    out_dir: str
    """The folder to write: new, empty, or an earlier export with ``overwrite``."""
    name: str | None = None
    """Title of the card; the folder's name if not given."""
    licence: str | None = None
    """Of the weights, as the hub spells it; by default apache-2.0, except where the decoder is somebody else's."""
    data_note: str = ""
    """A sentence for the card: where the data came from and under which terms."""
    report: list[str] = field(default_factory=list)
    """``results.json`` files of evaluations of this checkpoint."""
    merge_lora: bool = False
    """Fold LoRA into the decoder, in float32."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Of the saved weights; ``auto`` keeps the checkpoint's."""
    max_shard_size: str = "5GB"
    overwrite: bool = False
    check: bool = True
    """Load the folder in a process without wearllama, and compare what it says."""


@launch("export_hub", ExportHub)
def main(config: ExportHub) -> None:
    folder = checkpoint_folder(existing_path(config.ckpt, "ckpt"))
    run = run_config(folder)
    licence = config.licence or _own_licence(run)
    weights = weights_hash(folder)
    results = [one for path in config.report for one in read_results(existing_path(path, "report"), weights)]
    stored = WearLlamaConfig.from_pretrained(folder)
    if config.merge_lora and stored.lora is None:
        raise ValueError(f"merge_lora=true, but {folder} has no LoRA to merge")
    kept = str(stored.dtype or "float32").removeprefix("torch.")
    dtype: torch.dtype = getattr(torch, kept if config.dtype == "auto" else config.dtype)
    model, processor = load_checkpoint(folder, dtype=torch.float32 if config.merge_lora else dtype)
    if config.merge_lora:
        model.merge_lora()
        cast_weights(model, dtype)
    facts = CardFacts(
        name=config.name or Path(config.out_dir).name, licence=licence, requirements=packages(flat_sources()),
        run=run, data_note=config.data_note, results=results,
    )  # fmt: skip
    texts = {"README.md": model_card(facts, model, processor), "LICENSE": LICENSE.read_text(encoding="utf-8")}
    out = export_folder(
        model, processor, config.out_dir, texts=texts, max_shard_size=config.max_shard_size,
        overwrite=config.overwrite, check=config.check,
    )  # fmt: skip
    size = sum(path.stat().st_size for path in out.iterdir())
    checked = "loads without wearllama and says the same" if config.check else "not tried without wearllama"
    print(f"{out}: {len(list(out.iterdir()))} files, {size / 1e6:.1f} MB; {checked}")


def _own_licence(run: dict[str, Any] | None) -> str:
    decoder = ((run or {}).get("model") or {}).get("decoder")
    if decoder != "scratch":
        found = f"its decoder is {decoder}" if decoder else "no config.yaml tells where its decoder is from"
        raise ValueError(f"licence is not given and {found}, whose licence the weights carry; give licence=...")
    return "apache-2.0"


if __name__ == "__main__":
    main()
