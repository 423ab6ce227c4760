"""Shared test settings: one thread a process, so that tests run side by side without fighting for cores."""

import importlib
import importlib.util
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported; subprocesses inherit it
os.environ.setdefault("WANDB_MODE", "offline")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import pytest
import torch

torch.set_num_threads(1)
ROOT = Path(__file__).resolve().parents[1]
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
OpenPage = Callable[..., AbstractContextManager[Any]]


@pytest.fixture(scope="session")
def load_script() -> Callable[[str, str], ModuleType]:
    """A script of the project as a module, with its neighbours in reach as when it is run: ("tools", "demo")."""

    def load(folder: str, name: str) -> ModuleType:
        with pytest.MonkeyPatch.context() as patch:
            patch.syspath_prepend(str(ROOT / folder))
            return importlib.import_module(name)

    return load


@pytest.fixture(scope="session")
def open_page() -> OpenPage:
    """Opens a page of playwright in headless Chromium; leaving it fails on errors of JavaScript."""
    chromium = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if chromium is None:
        pytest.skip(f"needs a browser: none of {', '.join(BROWSERS)} is installed (apt install chromium)")
    if importlib.util.find_spec("playwright") is None:
        pytest.skip("needs playwright: pip install -e '.[dev]'")

    @contextmanager
    def opened(**options: Any) -> Iterator[Any]:
        from playwright.sync_api import sync_playwright

        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            try:
                page = browser.new_page(**options)
                page.set_default_timeout(120_000)
                errors: list[str] = []
                page.on("pageerror", lambda error: errors.append(str(error)))
                yield page
                assert not errors, errors
            finally:
                browser.close()

    return opened
