"""Evaluate a model on the Wearable Assistant Context Bench: which scene does the user mean now?

Run as: python eval/context_bench.py context_bench.root=CLONE candidate.model=hf:MODEL judge.model=openai:NAME
        python eval/context_bench.py context_bench.root=CLONE ckpt=runs/demo/sft judge.model=smollm2
        python eval/context_bench.py context_bench.root=CLONE ckpt=... turns=spoken judge.model=...    # with ears
        ... judge.family=llama                             # the judge's family, where its name does not tell
        ... ranking_judge.model=...                        # a second judge, the same for every candidate
        ... context_bench.camera=false                     # the ablation

A decoder can be asked before (candidate.model=hf:DECODER) and after it learnt to hear (ckpt=...). Tasks, conditions
and lock come from the user's clone. A run that was stopped goes on where it was. Results:
OUT/context_bench/MODEL-WEIGHTS/TURNS-CAMERA/findings.md, summary.json and transcripts.jsonl.
"""

from wearllama.evaluation.context_bench.command import ContextBenchCommand, run_command
from wearllama_launch import existing_path, launch


@launch("context_bench", ContextBenchCommand)
def main(config: ContextBenchCommand) -> None:
    if config.ckpt is not None:
        existing_path(config.ckpt, "ckpt")
    existing_path(config.context_bench.root, "context_bench.root")
    run_command(config)


if __name__ == "__main__":
    main()
