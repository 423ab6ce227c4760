"""tools/results.py: its stages are commands of the project in an order that works; pages keep what was written."""

import shlex
from pathlib import Path

import pytest

from wearllama.evaluation.tables import Table

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def tool(load_script):
    return load_script("tools", "results")


def setup_of(tool, *, fast: bool, seeds: tuple[int, ...]):
    return tool.Setup(
        runs="runs/x", demo="runs/demo", fast=fast, seeds=seeds, glasses="../glasses", speech="../speech.jsonl"
    )


def script_and_overrides(stage) -> list[str]:
    return stage.command.split("--nproc_per_node=2 ")[-1].split()


def test_every_stage_uses_what_an_earlier_one_made(tool) -> None:
    for fast in (False, True):
        setup = setup_of(tool, fast=fast, seeds=(1, 2))
        for name, study in tool.STUDIES.items():
            made = {"runs/demo/sft", "runs/demo/text", "data/demo/rir_bank"}
            for stage in study.stages(setup):
                words = dict(word.split("=", 1) for word in shlex.split(stage.command) if "=" in word)
                assert (ROOT / script_and_overrides(stage)[0]).is_file()
                used = {words[key] for key in ("init", "ckpt", "bank", "corpus") if key in words}
                used |= {bank for bank in words.get("data.other_banks", "[]").strip("[]").split(",") if bank}
                used |= {words["encoder"].removesuffix("/encoder")} if "encoder" in words else set()
                assert used <= made, (name, stage.command)
                made |= {words[key] for key in ("run_dir", "out_dir") if key in words}
            names = [stage.name for stage in study.stages(setup)]
            assert len(names) == len(set(names)), name


def test_commands_compose(tool, load_script) -> None:
    """Every training and evaluation command is one that the launcher reads."""
    from wearllama_launch import compose_config

    setup = setup_of(tool, fast=True, seeds=(1,))
    schemas = {
        "recipes/sft.py": ("sft", load_script("recipes", "sft").SftCommand),
        "eval/wearvox.py": ("wearvox", load_script("eval", "wearvox").WearVoxCommand),
        "eval/vgbench.py": ("vgbench", load_script("eval", "vgbench").VGBenchCommand),
        "eval/asr.py": ("asr", load_script("eval", "asr").AsrCommand),
        "tools/make_asr.py": ("make_asr", load_script("tools", "make_asr").MakeAsr),
        "tools/record_demo.py": ("record_demo", load_script("tools", "record_demo").RecordDemo),
        "tools/import_speech.py": ("import_speech", load_script("tools", "import_speech").ImportSpeech),
        "tools/teacher_features.py": ("teacher_features", load_script("tools", "teacher_features").TeacherFeatures),
        "recipes/pretrain_encoder.py": ("pretrain_encoder", load_script("recipes", "pretrain_encoder").PretrainEncoder),
        "recipes/best_rq.py": ("best_rq", load_script("recipes", "best_rq").BestRq),
        "tools/plot_run.py": ("plot_run", load_script("tools", "plot_run").PlotRun),
    }
    seen = set()
    for study in tool.STUDIES.values():
        stages = study.stages(setup)
        for stage in [*stages, *tool.curves_of(stages, "curves.svg")]:
            script, *overrides = script_and_overrides(stage)
            if script in schemas:
                compose_config(*schemas[script], overrides)
                seen.add(script)
    assert seen == set(schemas)


def test_unknown_studies_are_named(tool) -> None:
    with pytest.raises(ValueError, match=r"studies \['werr'\] are unknown, wanted some of \['sc_mc', 'wer'"):
        tool.Results(studies=("werr",))


def test_what_was_written_about_the_tables_stays(load_script, tmp_path: Path) -> None:
    page, path = load_script("tools", "page"), tmp_path / "page.md"
    table = Table("Rates", ("system", "rate"), [("a", "1 %")])
    page.write_page(path, "Title", "What it is.", [table], ["x.py"])
    assert "## Reading" not in path.read_text() and "| a | 1 % |" in path.read_text()
    path.write_text(path.read_text().replace("## Commands", "## Reading\n\nIt works.\n\n## Commands"))
    page.write_page(path, "Title", "What it is.", [table], ["y.py"])
    again = path.read_text()
    assert again.count("## Reading\n\nIt works.\n\n## Commands") == 1 and "python y.py" in again
    assert "![" not in again
    page.write_page(path, "Title", "What it is.", [table], ["y.py"], "curves/page.svg")
    assert "### Training\n\n![Loss by step](curves/page.svg)\n\n## Reading\n\nIt works." in path.read_text()
