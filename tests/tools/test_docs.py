"""Documentation against the code: every command exists with its options, the site builds without a warning."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.fixture(scope="module")
def lines(load_script: Callable[[str, str], ModuleType]) -> ModuleType:
    return load_script("tools", "docsite.command_lines")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_of_a_page_exists_with_its_options(page: Path, lines: ModuleType) -> None:
    wrong = {line.text: problem for line in lines.command_lines(page) if (problem := lines.problem_of(line))}
    assert not wrong


def test_wrong_commands_are_found(lines: ModuleType, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "text\n```\npython recipes/sft.py experiment=demo train.stepz=3   # a comment\n"
        "OMP_NUM_THREADS=1 torchrun --nproc_per_node=2 recipes/sft.py experiment=demo train.parallel=fsdp3\n"
        "python tools/nothing.py\nmake nothing\npython tools/compare.py A B --tol-mark name\n"
        "python eval/wearvox.py ckpt=... \\\n    data=X\npython tools/listen.py clip.wav ckpt=X\n```\n"
        "```yaml\npython: tools/none.py\n```\n"
    )
    problems = [lines.problem_of(line) for line in lines.command_lines(page)]
    assert len(problems) == 7 and problems[5:] == [None, None]
    for problem, part in zip(problems, ("train.steps", "fsdp3", "no script", "no target", "--tol-mark"), strict=False):
        assert part in problem


def test_the_docs_have_commands(lines: ModuleType) -> None:
    assert sum(len(list(lines.command_lines(page))) for page in PAGES) > 60


def test_the_reference_has_every_field(load_script: Callable[[str, str], ModuleType]) -> None:
    reference = load_script("tools", "docsite.config_reference")
    commands = load_script("tools", "docsite.commands").commands()
    assert {"recipes/sft.py", "eval/wearvox.py", "tools/play.py", "tools/benchmarks/mixing.py"} <= {
        command.script for command in commands
    }
    page = reference.reference_page()
    sft = page.split("### recipes/sft.py")[1].split("###")[0]
    assert "| `align` | `bool` | `False` | Start the projector's word path" in sft
    assert "[TrainConfig](#training-config-trainconfig)" in sft
    train = page.split("{ #training-config-trainconfig }")[1].split("###")[0]
    assert "| `parallel` | `Literal['ddp', 'fsdp2', 'zero2', 'zero3']` | `'ddp'` | What ranks keep" in train
    listed = set(re.findall(r"\{ #([\w-]+) \}", page))
    assert set(re.findall(r"\]\(#([\w-]+)\)", page)) <= listed
    assert len(listed) == page.count("{ #")


def test_figures_are_drawn(load_script: Callable[[str, str], ModuleType]) -> None:
    drawn = load_script("tools", "docsite.figures").figures()
    used = {name for page in PAGES for name in re.findall(r"figures/(\w+)\.svg", page.read_text())}
    assert used == set(drawn)
    assert all(svg.startswith(b"<?xml") and len(svg) < 3_000_000 for svg in drawn.values())


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    if shutil.which("mkdocs", path=str(Path(sys.executable).parent)) is None:
        pytest.skip("needs mkdocs (pip install -e '.[docs]')")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "WARNING" not in done.stdout + done.stderr
    page = (tmp_path / "site/reference/api/audio/index.html").read_text()
    assert 'id="wearllama.audio.beamforming.design_beam"' in page
    assert (tmp_path / "site/figures/cue.svg").is_file()


def nav_pages(entry: Any) -> list[str]:
    if isinstance(entry, str):
        return [entry]
    children = entry.values() if isinstance(entry, dict) else entry
    return [page for child in children for page in nav_pages(child)]


def test_every_page_is_in_the_navigation() -> None:
    named = nav_pages(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"])
    written = {str(page.relative_to(ROOT / "docs")) for page in PAGES if page.parent != ROOT}
    assert written <= set(named) and len(named) == len(set(named))
