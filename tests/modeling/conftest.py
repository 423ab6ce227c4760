"""Makes ``tiny_wearllama`` importable here and shares one model among a file's tests."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from tiny_wearllama import build


@pytest.fixture(scope="module")
def tiny():
    """A tiny real processor and model."""
    return build()
