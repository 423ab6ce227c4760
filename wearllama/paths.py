"""Where configuration and cached assets are: in the clone, or beside an installed wheel and in the user's cache."""

from pathlib import Path

_ABOVE = Path(__file__).resolve().parents[1]
IN_CLONE = (_ABOVE / "conf").is_dir() and (_ABOVE / "pyproject.toml").is_file()
"""Whether the library runs from its clone (an editable installation does); scripts and tests are there only."""
CONF_DIR = _ABOVE / ("conf" if IN_CLONE else "wearllama_conf")
"""Configuration of every script; a wheel carries it under the second name."""
CACHE_DIR = _ABOVE / "cache" if IN_CLONE else Path.home() / ".cache" / "wearllama"
"""Default place of fetched assets."""
