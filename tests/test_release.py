"""What a release is made of: a wheel that works outside the clone, and files that tools for releases read."""

import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ("wearllama", "wearllama_launch", "conf", "pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy of the sources and unpacked as pip unpacks it."""
    root = tmp_path_factory.mktemp("release")
    clone = root / "clone"
    clone.mkdir()
    for name in SOURCES:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, clone / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, clone / name)
    command = [sys.executable, "-m", "pip", "wheel", ".", "--no-deps", "--no-build-isolation", "-q", "-w", str(root)]
    done = subprocess.run(command, cwd=clone, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    shutil.rmtree(clone)
    (wheel,) = root.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(root / "site")
    return root / "site"


def run(site: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run Python outside the clone with the wheel alone in front."""
    env = {**os.environ, "PYTHONPATH": str(site)}
    return subprocess.run(
        [sys.executable, *command], cwd=site.parent, capture_output=True, text=True, env=env, check=False
    )


def test_the_wheel_holds_what_is_needed(site: Path) -> None:
    for name in (
        "wearllama/py.typed", "wearllama/assets/encoder_demo/encoder.safetensors", "wearllama/data/texts/frames.yaml",
        "wearllama/assets/tokenizer_demo/tokenizer.json", "wearllama/evaluation/judge_prompts.yaml",
        "wearllama_conf/sft.yaml", "wearllama_conf/array/glasses5.yaml", "wearllama_conf/train/zero2.json",
        "wearllama_conf/assets.yaml",
    ):  # fmt: skip
        assert (site / name).is_file(), name
    assert not {path.name for path in site.iterdir()} & {"tests", "tools", "recipes", "conf"}
    packaged = {str(path.relative_to(site / "wearllama_conf")) for path in (site / "wearllama_conf").rglob("*.*")}
    assert packaged == {str(path.relative_to(ROOT / "conf")) for path in (ROOT / "conf").rglob("*.*")}


def test_it_imports_and_finds_its_configuration_outside_the_clone(site: Path) -> None:
    code = (
        "import wearllama, wearllama_launch\n"
        "from wearllama.audio.array import load_array\n"
        "from wearllama.audio.beamforming import design_beam\n"
        "from wearllama.data.assets import cache_root, load_registry\n"
        "assert 'kokoro' in load_registry()\n"
        "print(wearllama.__file__, wearllama_launch.CONF_DIR, design_beam(load_array('aria7')).fir_MK.shape)\n"
        "print(cache_root())\n"
    )
    done = run(site, "-c", code)
    assert done.returncode == 0, done.stderr
    assert str(site) in done.stdout and "wearllama_conf (7, 177)" in done.stdout
    assert str(ROOT) not in done.stdout
    assert ".cache/wearllama" in done.stdout or "WEARLLAMA_CACHE" in os.environ


def test_a_recipe_started_from_the_wheel_says_what_it_needs(site: Path) -> None:
    recipe = site.parent / "sft.py"
    shutil.copy(ROOT / "recipes/sft.py", recipe)
    done = run(site, str(recipe), "experiment=demo", "--cfg")
    assert done.returncode == 0 and "data/demo/train.jsonl" in done.stdout, done.stderr
    done = run(site, str(recipe), "experiment=demo")
    assert done.returncode == 2 and "data.manifest" in done.stderr and "data/demo/train.jsonl" in done.stderr
    shutil.move(site / "wearllama_conf", site / "elsewhere")
    try:
        done = run(site, str(recipe), "experiment=demo")
        assert done.returncode == 2 and "no configuration at" in done.stderr and "clone" in done.stderr
    finally:
        shutil.move(site / "elsewhere", site / "wearllama_conf")


def test_versions_and_licences_agree() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == project["version"] and citation["license"] == project["license"] == "Apache-2.0"
    assert f"## {project['version']}" in (ROOT / "CHANGELOG.md").read_text()
    assert "Apache License" in (ROOT / "LICENSE").read_text()
    assert {"cff-version", "message", "title", "authors"} <= set(citation)


def test_ci_runs_what_everybody_runs() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())
    steps = [step.get("run", "") for step in workflow["jobs"]["test"]["steps"]]
    assert ".ci/run" in steps and "make lint" in steps and "make docs" in steps
    assert "exec make test" in (ROOT / ".ci/run").read_text()
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert {"ruff-check", "ruff-format", "mypy"} <= {hook["id"] for repo in hooks for hook in repo["hooks"]}
