"""Make a VoxEval folder from text questions: verbalised, spoken, and under 26 fine conditions of ours.

Run as: python tools/build_voxeval.py out_dir=data/voxeval build.settings=[alloy,alloy_noise] build.limit=2
        python tools/build_voxeval.py source=/data/mmlu/test out_dir=... build.shots=5     # tables SUBJECT.csv
        python tools/build_voxeval.py language=de out_dir=... speech=false                 # tables only

Questions are MMLU's development items as the lm-eval package has them (fetched once), or the user's tables; program
code is left out. Only English is verbalised and spoken. A build that was stopped goes on where it was; settings can be
added.
"""

from dataclasses import dataclass, field
from pathlib import Path

from wearllama.data.assets import fetch
from wearllama.evaluation.voxeval.build import BuildConfig, build, choose_questions, write_tables
from wearllama.evaluation.voxeval.questions import read_questions
from wearllama_launch import launch


@dataclass(kw_only=True)
class BuildVoxEval:
    out_dir: str = "data/voxeval"
    source: str | None = None
    """Folder of MMLU's tables ``SUBJECT.csv``, or of ``LANGUAGE/mmlu_*.yaml``; by default the asset mmlu_dev."""
    language: str = "en"
    """Of the questions: en de es fr it pt."""
    speech: bool = True
    """false: only the tables, for models that read."""
    build: BuildConfig = field(default_factory=BuildConfig)

    def __post_init__(self) -> None:
        if self.speech and self.language != "en":
            raise ValueError(f"language={self.language} has no voice here: give speech=false for tables to read")


@launch("build_voxeval", BuildVoxEval)
def main(config: BuildVoxEval) -> None:
    questions = read_questions(config.source or fetch("mmlu_dev"), config.language)
    out = Path(config.out_dir)
    chosen = choose_questions(questions, config.build)
    counts = [sum(map(len, found.values())) for found in (chosen, questions)]
    told = f"from {counts[0]} of {counts[1]} questions, in {len(chosen)} of {len(questions)} subjects"
    if config.speech:
        made = build(questions, config.build, out)
        print(f"{out}: {made} files made, {told}")
    else:
        write_tables(questions, config.build, out)
        print(f"{out}: tables {told}")


if __name__ == "__main__":
    main()
