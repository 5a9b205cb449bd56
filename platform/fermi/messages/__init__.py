"""What people read: the text and the advice that belong to each stable code, in Chinese and in English.

A text is often the last thing that is made of a row or of an error, for whoever looks at it: it never raises. What is
missing is shown as a dash and logged, because a gap is a fault of ours.
"""

import json
import logging
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from string import Formatter
from typing import Any

LANGUAGES = ("zh", "en")
GAP = "–"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Words:
    """A parameter that is itself said in the reader's language: the message of `code`. Not for params that are kept."""

    code: str
    params: Mapping[str, object] = field(default_factory=dict)


@cache
def _catalogue(lang: str) -> dict[str, dict[str, Any]]:
    return tomllib.loads(resources.files(__package__).joinpath(f"{lang}.toml").read_text("utf-8"))


def text(code: str, lang: str, /, **params: object) -> tuple[str, str]:
    """The (message, hint) of `code` with `params` filled in; English for a language that there is none of; the code
    itself where it has no text."""
    known = _catalogue(lang if lang in LANGUAGES else "en").get(code)
    if known is None:
        fault("%s has no text", code)
        return code, ""
    entry = _fitting(known, params)
    shown = {name: _shown(value, lang) for name, value in params.items()}
    try:
        return entry["message"].format_map(shown), entry["hint"].format_map(shown)
    except (LookupError, AttributeError, ValueError, TypeError):
        careful = _Careful(code)
        return careful.vformat(entry["message"], (), shown), careful.vformat(entry["hint"], (), shown)


def fault(said: str, *about: object) -> None:
    """Of a text that has a gap. Our own tests raise here instead (see tests/conftest.py)."""
    log.error(said, *about)


class _Careful(Formatter):
    """Fills what it can."""

    def __init__(self, code: str) -> None:
        self.code = code

    def get_field(self, field_name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        try:
            return super().get_field(field_name, args, kwargs)
        except (LookupError, AttributeError, TypeError):
            fault("the text of %s lacks its parameter %s", self.code, field_name)
            return GAP, field_name

    def format_field(self, value: Any, format_spec: str) -> str:
        try:
            return str(super().format_field(value, format_spec))
        except (ValueError, TypeError):
            return str(value)


def _fitting(entry: Mapping[str, Any], params: Mapping[str, object]) -> Mapping[str, Any]:
    """With what `when` says instead where a parameter is given (`left`) or has a value (`"signal=SIGBUS"`)."""
    for condition, instead in entry.get("when", {}).items():
        name, _, value = condition.partition("=")
        if name in params and (not value or str(params[name]) == value):
            entry = {**entry, **instead}
    return entry


def _shown(value: object, lang: str) -> object:
    """As people write it: `true` and not `True`, `56 / 70` for a tuple, which is a choice, and `–` for nothing."""
    if isinstance(value, Words):
        return text(value.code, lang, **value.params)[0]
    if isinstance(value, tuple):
        return " / ".join(str(_shown(item, lang)) for item in value) or GAP
    return GAP if value is None else json.dumps(value) if isinstance(value, bool) else value
