"""Texts of these commands, in the user's language."""

import tomllib
from functools import cache
from pathlib import Path

from fermi.cli import texts


@cache
def _load_texts() -> dict[str, dict[str, str]]:
    return tomllib.loads(Path(__file__).with_name("texts.toml").read_text(encoding="utf-8"))


def render_text(name: str, /, **params: object) -> str:
    """Return the text `name` in the user's language, with its placeholders filled."""
    return _load_texts()[texts.choose_language([])][name].format(**params)
