"""Only what pyproject.toml cannot say: a wheel carries conf/ as wearllama_conf/, beside the packages."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithConf(build_py):
    """Copies the configuration of the scripts; an editable installation reads it in the clone."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            shutil.copytree(Path(__file__).parent / "conf", Path(self.build_lib) / "wearllama_conf", dirs_exist_ok=True)


setup(cmdclass={"build_py": BuildWithConf})
