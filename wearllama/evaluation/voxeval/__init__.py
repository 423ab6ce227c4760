"""VoxEval: MMLU asked and answered by voice, in its published layout (arXiv 2501.04962)."""
