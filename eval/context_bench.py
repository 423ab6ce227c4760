"""Evaluate a model on the Wearable Assistant Context Bench: which scene does the user mean now?

Run as: python eval/context_bench.py ckpt=MODEL context_bench.root=CLONE judge.model=JUDGE
        python eval/context_bench.py ckpt=... context_bench.root=... judge.model=... judge.family=llama
        python eval/context_bench.py ckpt=... context_bench.root=... judge.model=... ranking_judge.model=...
        python eval/context_bench.py ckpt=... context_bench.root=... context_bench.camera=false     # the ablation
        python eval/context_bench.py ckpt=runs/demo/sft context_bench.root=... turns=spoken         # with ears

MODEL and JUDGE are folders: a WearLlama checkpoint, or any causal LM (tools/convert_smollm2.py makes one), so that a
decoder can be asked before and after it learnt to hear. Tasks, conditions and lock come from the user's clone. A run
that was stopped goes on where it was. Results: OUT/context_bench/MODEL-WEIGHTS/TURNS-CAMERA/findings.md.
"""

from wearllama.evaluation.context_bench.command import ContextBenchCommand, run_command
from wearllama_launch import existing_path, launch


@launch("context_bench", ContextBenchCommand)
def main(config: ContextBenchCommand) -> None:
    existing_path(config.ckpt, "ckpt")
    existing_path(config.context_bench.root, "context_bench.root")
    run_command(config)


if __name__ == "__main__":
    main()
