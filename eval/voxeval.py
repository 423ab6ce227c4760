"""Evaluate a model on VoxEval: MMLU's questions by voice, in eleven settings.

Run as: python eval/voxeval.py data=/data/VoxEval ckpt=runs/demo/sft voxeval.shots=0
        python eval/voxeval.py data=... model=cascade voxeval.settings=[alloy,alloy_noise]     # Whisper + SmolLM2
        python eval/voxeval.py data=... reader.model=smollm2 voxeval.input=text                # the same, read
        python eval/voxeval.py data=... model=openai:NAME voxeval.mode=cot                     # mathematics, reasoned
        python eval/voxeval.py data=... spoken_answers=FOLDER asr.model=faster-whisper:large-v3
        ... condition=[clean,voxeval]                      # evaluation conditions, one table

tools/build_voxeval.py makes such a folder from text questions. A run that was stopped goes on where it was. Results:
OUT/voxeval/MODEL-WEIGHTS/INPUT-MODE-SHOTS/report.html.
"""

from wearllama.evaluation.voxeval.command import VoxEvalCommand, run_command
from wearllama_launch import existing_path, launch


@launch("voxeval", VoxEvalCommand)
def main(config: VoxEvalCommand) -> None:
    existing_path(config.data, "data")
    if config.ckpt is not None:
        existing_path(config.ckpt, "ckpt")
    run_command(config)


if __name__ == "__main__":
    main()
