"""What people read: the text and the advice that belong to each stable code, in Chinese and in English."""

import json
import tomllib
from functools import cache
from importlib import resources

LANGUAGES = ("zh", "en")


@cache
def _catalogue(lang: str) -> dict[str, dict[str, str]]:
    if lang not in LANGUAGES:
        raise KeyError(lang)
    return tomllib.loads(resources.files(__package__).joinpath(f"{lang}.toml").read_text("utf-8"))


def text(code: str, lang: str, /, **params: object) -> tuple[str, str]:
    """The (message, hint) of `code` with `params` filled in; KeyError for an unknown code, language or a
    parameter that the text names and the caller left out."""
    entry = _catalogue(lang)[code]
    shown = {name: _shown(value) for name, value in params.items()}
    return entry["message"].format_map(shown), entry["hint"].format_map(shown)


def _shown(value: object) -> object:
    """As people write it: `true` and not `True`, `56 / 70` for a tuple, which is a choice, and `–` for nothing."""
    if isinstance(value, tuple):
        return " / ".join(str(_shown(item)) for item in value) or "–"
    return "–" if value is None else json.dumps(value) if isinstance(value, bool) else value
