"""Record the demo's benchmarks once more: the same scenes and voices, heard by another array or in other rooms.

Run as: python tools/build_rir_bank.py array=aria7 out_dir=data/aria7/rir_bank bank.train_rooms=0
        python tools/record_demo.py array=aria7 bank=data/aria7/rir_bank out_dir=data/aria7
        python eval/wearvox.py ckpt=runs/demo/sft array=aria7 data=data/aria7/wearvox

Needs `make demo`'s data (the clips that were spoken). With a bank of the same settings, rooms and places are the
demo's own, and only the array differs.
"""

from dataclasses import dataclass, field
from pathlib import Path

from wearllama.audio.array import load_array
from wearllama.audio.beamforming import design_beam
from wearllama.data.demo_benchmarks import BenchmarkSizes, vgbench_items, wearvox_scenes
from wearllama.data.demo_chatter import noise_folders
from wearllama.data.demo_layout import PLACES, Studio, write_vgbench, write_wearvox
from wearllama.data.demo_scenes import Scene, clip_seconds
from wearllama.data.prompts import load_prompts
from wearllama.simulation.bank import RirBank
from wearllama.simulation.noise import NoiseBank
from wearllama_launch import existing_path, launch


@dataclass(kw_only=True)
class RecordDemo:
    """What records, where, and from which clips."""

    out_dir: str
    """Gets ``wearvox/`` and ``vgbench/``."""
    bank: str
    """Responses of the array."""
    array: str = "glasses5"
    speech: str = "data/demo"
    """Folder that tools/prepare_demo.py filled."""
    rooms: str = "eval"
    """Split of the bank."""
    benchmarks: BenchmarkSizes = field(default_factory=BenchmarkSizes)


@launch("record_demo", RecordDemo)
def main(config: RecordDemo) -> None:
    out_dir, speech = Path(config.out_dir), existing_path(config.speech, "speech")
    bank, array = RirBank.open(existing_path(config.bank, "bank")), load_array(config.array)
    bank.require_array(array)
    noises, silent = noise_folders(speech)
    for sentence in silent:
        print(sentence)
    wearvox = wearvox_scenes(config.benchmarks, list(PLACES))
    vgbench = vgbench_items(config.benchmarks)
    studio = Studio(
        root=speech,
        seconds=clip_seconds(speech, clips_of(wearvox + [item.scene for item in vgbench], speech)),
        bank=bank,
        noise=NoiseBank(noises["eval"]),
        array=array,
        beam=design_beam(array),
        prompts=load_prompts(style="compact"),
        rooms=config.rooms,
    )
    write_wearvox(wearvox, studio, out_dir / "wearvox")
    write_vgbench(vgbench, studio, out_dir / "vgbench")
    print(f"{out_dir}: {len(wearvox)} WearVox items, {len(vgbench)} VGBench conditions, {array.num_mics} microphones")


def clips_of(scenes: list[Scene], speech: Path) -> list[str]:
    """Files of the clips that are heard; ValueError where the demo's data were made with other texts."""
    files = sorted({line.file for scene in scenes if not scene.text_only for line in scene.lines})
    missing = [file for file in files if not (speech / file).is_file()]
    if missing:
        raise ValueError(
            f"{len(missing)} of {len(files)} clips are not in {speech}, such as {missing[0]}: run tools/prepare_demo.py"
        )
    return files


if __name__ == "__main__":
    main()
