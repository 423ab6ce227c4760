"""The demo's one table: what was aimed at, what was reached, what a constant answer and a deafened model reach.

Run as: python tools/report_demo.py            (after eval/wearvox.py and eval/vgbench.py)

Prints the table and the path of one self-contained HTML page with every other table, the plots and the players.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wearllama.atomic import write_json, write_text
from wearllama.evaluation.adapters import CheckpointAdapter
from wearllama.evaluation.commands import run_folder
from wearllama.evaluation.demo_table import demo_table
from wearllama.evaluation.report import RESULTS, read_run, render_html, render_markdown, section_of
from wearllama.modeling.factory import model_folder
from wearllama_launch import existing_path, launch

TITLE = "WearLlama demo"
INTRO = (
    "Five-channel mixtures, c_0 and the beam, a frozen Conformer at 12.5 Hz, a projector and a small Llama, trained on "
    "this machine; evaluated on voices, rooms and wordings that no training row has."
)


@dataclass(kw_only=True)
class ReportCommand:
    """Where the evaluations lie and where the page goes."""

    ckpt: str = "runs/demo/sft"
    """The evaluated checkpoint."""
    grpo: str = "runs/demo/grpo"
    """The same after GRPO; its column is left out where it was not evaluated."""
    eval_out: str = "runs/eval"
    """``out`` of the evaluations."""
    out: str = "runs/demo/report"
    """Folder of the page."""


@launch("report_demo", ReportCommand)
def main(config: ReportCommand) -> None:
    model = CheckpointAdapter(existing_path(config.ckpt, "ckpt"))
    runs = {name: read_run(run_folder(config.eval_out, name, model)) for name in ("wearvox", "vgbench")}
    after = vgbench_after(config)
    table = demo_table(runs["wearvox"][0], runs["vgbench"][0], after)
    sections = [section_of(results, clips) for results, clips in runs.values()]
    out = Path(config.out)
    found = {name: results for name, (results, _) in runs.items()}
    write_json(out / "results.json", found | ({"vgbench_after_grpo": after} if after else {}))
    write_text(out / "report.md", render_markdown(TITLE, sections, [table]))
    write_text(out / "report.html", render_html(TITLE, sections, [table], INTRO))
    print(f"\n{table.text()}\n\nreport: {(out / 'report.html').resolve()}")


def vgbench_after(config: ReportCommand) -> dict[str, Any] | None:
    """VGBench's results of the model after GRPO."""
    if model_folder(config.grpo, "config.json") is None:
        return None
    folder = run_folder(config.eval_out, "vgbench", CheckpointAdapter(config.grpo))
    return read_run(folder)[0] if (folder / RESULTS).is_file() else None


if __name__ == "__main__":
    main()
