"""Texts of the command line, in the user's language: `messages/<language>/cli.toml`, `flags.toml` for the fields of a
request, and for each module of `commands` the TOML file beside it, if there is one."""

import os
from collections.abc import Sequence
from pathlib import Path

from fermi import messages
from fermi.messages.languages import DEFAULT, FALLBACK, LANGUAGES, match_language

COMMANDS_FOLDER = Path(__file__).parent / "commands"

_language = DEFAULT

messages.register_folder(COMMANDS_FOLDER)
messages.register_folder(COMMANDS_FOLDER.parent)


def _(code: str, **parts: object) -> str:
    """Return the sentence of `code` in the chosen language."""
    return find_sentence(code, _language, **parts)


def find_sentence(code: str, language: str, **parts: object) -> str:
    """Return the sentence of `code` in a language."""
    return messages.render_sentence("cli", code, language, **parts)


def set_language(language: str) -> None:
    global _language
    _language = language


def get_language() -> str:
    return _language


def choose_language(arguments: Sequence[str]) -> str:
    """Return the language: --lang, else what `fermi login` stored, else the locale's."""
    for position, argument in enumerate(arguments):
        if argument == "--":
            break
        value = argument.removeprefix("--lang=") if argument.startswith("--lang=") else ""
        if argument == "--lang":
            value = "".join(arguments[position + 1 : position + 2])
        if value in LANGUAGES:
            return value
    return _read_configured_language() or _read_locale_language()


def _read_configured_language() -> str:
    from fermi.client import FermiError, config

    try:
        kept = config.load_config().language
    except FermiError:  # said when the file is needed
        return ""
    return match_language(kept)


def _read_locale_language() -> str:
    """Return the locale's language in POSIX's order: the first of the three that is set and not empty counts; without
    any it is the locale C, whose language is English."""
    locale = next(filter(None, map(os.environ.get, ("LC_ALL", "LC_MESSAGES", "LANG"))), "")
    return match_language(locale) or FALLBACK
