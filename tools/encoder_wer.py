"""Word error rate of a stored encoder's own CTC head by channel: what the beam adds before there is any decoder.

Run as: python tools/encoder_wer.py encoder=packaged data=data/demo/wearvox
        python tools/encoder_wer.py encoder=runs/ls/encoder data=/data/WearVox out=runs/encoder_wer/ls
        python tools/encoder_wer.py encoder=runs/easycom/encoder data=data/mine/manifest.jsonl array=easycom4

Each recording with a transcript is heard by c_x, by c_0, and by pairs whose distributions over word pieces are averaged
frame by frame; an oracle takes the better of c_x and c_0 for every recording. Greedy decoding; case and punctuation do
not count. The data are those of eval/asr.py. Writes OUT/results.json: rates, the errors and the words of every one.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from tqdm import tqdm

from wearllama.atomic import write_json
from wearllama.audio.array import ArrayGeometry, load_array
from wearllama.audio.beamforming import design_beam
from wearllama.data.manifest import Example, load_audio
from wearllama.evaluation.commands import OWN_ARRAY
from wearllama.evaluation.device import default_device
from wearllama.evaluation.encoder_words import Heard, StoredRecogniser, hear, results, table_of
from wearllama.evaluation.recordings import audio_root, read_examples
from wearllama_launch import existing_path, launch


@dataclass(kw_only=True)
class EncoderWer:
    """The whole of conf/encoder_wer.yaml."""

    encoder: str = "packaged"
    """``packaged``, or a folder of recipes/pretrain_encoder.py exported with its heads."""
    data: str = "data/demo/wearvox"
    """Folder in WearVox's layout, VGBench manifest, or manifest of recorded rows (tools/make_asr.py bank=...)."""
    array: str = OWN_ARRAY
    """Of the recordings: name in conf/array or a file."""
    beam: Literal["file", "design"] = "file"
    """c_x: the recorded beam where there is one, as eval/asr.py hears it, or always the array's designed one."""
    limit: int | None = None
    """Only the first so many recordings."""
    device: str | None = None
    """``cpu``, ``cuda:1``; the GPU where there is one if not given."""
    out: str = "runs/encoder_wer"
    """Folder of results.json."""

    def __post_init__(self) -> None:
        if self.limit is not None and self.limit < 1:
            raise ValueError(f"limit is {self.limit}, wanted at least 1")
        if self.beam not in ("file", "design"):
            raise ValueError(f"beam is {self.beam!r}, wanted file or design")


@launch("encoder_wer", EncoderWer)
def main(config: EncoderWer) -> None:
    data, array = existing_path(config.data, "data"), load_array(config.array)
    if array.num_mics < 2:
        raise ValueError(f"array={config.array} has {array.num_mics} microphone, wanted two: c_0 and c_1 are compared")
    examples = read_examples(data, array.num_mics)[: config.limit]
    spoken = [example for example in examples if example.audio is not None and example.metadata.get("transcript")]
    if not spoken:
        raise ValueError(f"{data}: none of {len(examples)} rows has both sound and a transcript")
    recogniser = StoredRecogniser(config.encoder, device=config.device or default_device())
    if config.beam == "design":
        spoken = [replace(example, audio={**(example.audio or {}), "beam": None}) for example in spoken]
    heard = hear_all(recogniser, spoken, audio_root(data), array)
    systems = results(heard)
    out = Path(config.out) / "results.json"
    write_json(out, {
        "encoder": str(recogniser.weights), "data": str(data), "array": array.name, "beam": config.beam,
        "recordings": len(spoken),
        "recordings_without_transcript": len(examples) - len(spoken), "systems": systems,
        "words": {name: one.words for name, one in heard.items()},
    }, indent=2)  # fmt: skip
    print(f"\n{table_of(systems).text()}\n\n{out}")


def hear_all(
    recogniser: StoredRecogniser, examples: list[Example], root: Path, array: ArrayGeometry
) -> dict[str, Heard]:
    """What is heard of every recording, by its id."""
    beam, heard = design_beam(array), {}
    for example in tqdm(examples, desc="encode", unit="recording"):
        clip = load_audio(example, root, channels=array.num_mics)
        assert clip is not None, "rows without sound are left out before"
        heard[example.id] = hear(recogniser, example, clip, array, beam)
    return heard


if __name__ == "__main__":
    main()
