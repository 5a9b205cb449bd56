"""What the command line itself says, in English or Chinese.

English stands in the code, where it is read; `zh.toml` has the Chinese for each sentence. `{name}` parts are filled in
afterwards. A sentence without a translation stays English.
"""

import os
import tomllib
from collections.abc import Sequence
from functools import cache
from importlib import resources

from fermi.messages.languages import DEFAULT, FALLBACK, LANGUAGES, known

_language = DEFAULT


def _(sentence: str, **parts: object) -> str:
    """`sentence` in the chosen language."""
    text = _chinese().get(sentence, sentence) if _language == "zh" else sentence
    return text.format_map(parts) if parts else text


def use(language: str) -> None:
    global _language
    _language = language


def language() -> str:
    return _language


def choose(arguments: Sequence[str]) -> str:
    """--lang, then what `fermi login` kept, then the locale; the platform's own default where that says nothing."""
    for position, argument in enumerate(arguments):
        if argument == "--":
            break
        value = argument.removeprefix("--lang=") if argument.startswith("--lang=") else ""
        if argument == "--lang":
            value = "".join(arguments[position + 1 : position + 2])
        if value in LANGUAGES:
            return value
    return _kept() or _of_locale()


def _kept() -> str:
    from fermi.client import FermiError, config

    try:
        kept = config.load().language
    except FermiError:  # said when the file is needed
        return ""
    return known(kept)


def _of_locale() -> str:
    name = next((os.environ[name] for name in ("LC_ALL", "LC_MESSAGES", "LANG") if os.environ.get(name)), "")
    neutral = name.partition(".")[0] in {"", "C", "POSIX"}
    return DEFAULT if neutral else known(name) or FALLBACK


@cache
def _chinese() -> dict[str, str]:
    return tomllib.loads(resources.files(__package__).joinpath("zh.toml").read_text("utf-8"))
