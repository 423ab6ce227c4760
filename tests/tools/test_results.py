"""tools/results.py: its stages are commands of the project in an order that works; pages keep what was written."""

import shlex
from pathlib import Path

import pytest

from wearllama.evaluation.tables import Table

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def tool(load_script):
    return load_script("tools", "results")


def test_every_stage_uses_what_an_earlier_one_made(tool) -> None:
    for fast in (False, True):
        setup = tool.Setup(runs="runs/x", demo="runs/demo", fast=fast, seeds=(1, 2), glasses="../glasses")
        for name, study in tool.STUDIES.items():
            made = {"runs/demo/sft", "runs/demo/text", "data/demo/rir_bank"}
            for stage in study.stages(setup):
                words = dict(word.split("=", 1) for word in shlex.split(stage.command) if "=" in word)
                assert (ROOT / stage.command.split()[0]).is_file()
                assert {words[key] for key in ("init", "ckpt", "bank") if key in words} <= made, (name, stage.command)
                made |= {words[key] for key in ("run_dir", "out_dir") if key in words}
            names = [stage.name for stage in study.stages(setup)]
            assert len(names) == len(set(names)), name


def test_commands_compose(tool, load_script) -> None:
    """Every training and evaluation command is one that the launcher reads."""
    from wearllama_launch import compose_config

    setup = tool.Setup(runs="runs/x", demo="runs/demo", fast=True, seeds=(1,), glasses="../glasses")
    schemas = {
        "recipes/sft.py": ("sft", load_script("recipes", "sft").SftCommand),
        "eval/wearvox.py": ("wearvox", load_script("eval", "wearvox").WearVoxCommand),
        "eval/vgbench.py": ("vgbench", load_script("eval", "vgbench").VGBenchCommand),
        "eval/asr.py": ("asr", load_script("eval", "asr").AsrCommand),
        "tools/make_asr.py": ("make_asr", load_script("tools", "make_asr").MakeAsr),
        "tools/record_demo.py": ("record_demo", load_script("tools", "record_demo").RecordDemo),
    }
    seen = set()
    for study in tool.STUDIES.values():
        for stage in study.stages(setup):
            script, *overrides = stage.command.split()
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
