"""Rows that ask for the words: of a folder of speech, or of another manifest's rows that have a transcript.

Run as: python tools/make_asr.py speech=data/mine out=data/mine_rows/asr.jsonl root=data style=compact
        python tools/make_asr.py speech=data/mine out=data/mine_test/manifest.jsonl split=test scenes.rooms=eval \\
            bank=data/demo/rir_bank style=compact                            # recorded once: for eval/asr.py
        python tools/make_asr.py manifest=data/demo/train.jsonl out=data/demo/asr.jsonl style=compact
        python tools/make_asr.py speech=data/mine out=data/mine_rows/notes.jsonl root=data ask=note     # dictation

Clips are said by the wearer, in mixtures that are rendered anew in every epoch; with ``bank`` they are rendered now,
into files beside OUT. Of a manifest, recipes and paths stay as they are: put OUT beside it, or give data.root= in
training.
"""

from dataclasses import dataclass, field
from pathlib import Path

from wearllama.data.dataset import MixtureRenderer
from wearllama.data.manifest import Example, read_manifest, write_manifest
from wearllama.data.prompts import PromptStyle
from wearllama.data.speech_rows import MANIFEST, read_rows
from wearllama.data.spoken_examples import SceneDefaults
from wearllama.data.transcription_rows import Ask, ask_for_words, clip_row, record
from wearllama.simulation.bank import RirBank
from wearllama.simulation.noise import NoiseBank
from wearllama_launch import existing_path, launch


@dataclass(kw_only=True)
class MakeAsr:
    out: str
    speech: str | None = None
    """Folder of a speech manifest (tools/import_speech.py); clips without words are left out, and counted."""
    manifest: str | None = None
    """Instead: rows with ``metadata.transcript``."""
    ask: Ask = "words"
    """``words``: the reply is what is said; ``note``: it calls the tool ``create_note`` with it."""
    style: PromptStyle = "full"
    """Of the prompt: ``compact`` at the demo's scale."""
    root: str | None = None
    """Of ``speech``: folder that paths are relative to; the folder of ``out`` if not given."""
    split: str = "train"
    limit: int | None = None
    """Of ``speech``: clips at most."""
    scenes: SceneDefaults = field(default_factory=SceneDefaults)
    bank: str | None = None
    """Of ``speech``: render the mixtures once, with these responses."""
    noise: list[str] = field(default_factory=list)
    """Folders of recorded noise for that; none gives the synthetic kinds."""

    def __post_init__(self) -> None:
        if (self.speech is None) == (self.manifest is None):
            raise ValueError("wanted speech=FOLDER (clips) or manifest=FILE (rows of training), one of them")


@launch("make_asr", MakeAsr)
def main(config: MakeAsr) -> None:
    if config.manifest is not None:
        rows = read_manifest(existing_path(config.manifest, "manifest"))
        examples, of = ask_for_words(rows, style=config.style, ask=config.ask), f"{len(rows)} rows"
    else:
        examples, of = of_clips(config)
    count = write_manifest(config.out, examples)
    print(f"{config.out}: {count} rows of transcription, of {of}")


def of_clips(config: MakeAsr) -> tuple[list[Example], str]:
    """Rows of the speech manifest's clips, and what they are of."""
    assert config.speech is not None
    speech, folder = existing_path(config.speech, "speech"), Path(config.out).parent
    clips = list(read_rows(speech / MANIFEST))
    spoken = [row for row in clips if str(row.get("text") or "").strip()][: config.limit]
    if not spoken:
        raise ValueError(
            f"{speech / MANIFEST}: none of {len(clips)} clips has words; tools/pseudo_label.py writes them"
        )
    # Recordings are files beside OUT; where clips lie then matters to this run alone.
    root = Path("/") if config.bank else Path(config.root) if config.root else folder
    rows = [
        clip_row(
            row,
            style=config.style,
            speech=speech.resolve(),
            root=root,
            scenes=config.scenes,
            split=config.split,
            ask=config.ask,
        )
        for row in spoken
    ]
    if config.bank is not None:
        bank = RirBank.open(existing_path(config.bank, "bank"))
        rows = record(rows, folder, MixtureRenderer(bank=bank, noise=NoiseBank(config.noise), audio_root=root))
    return rows, f"{len(clips)} clips"


if __name__ == "__main__":
    main()
