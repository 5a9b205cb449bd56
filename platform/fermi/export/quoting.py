"""Quotes text as one word of bash: nothing in it is expanded, split or lost, and shellcheck accepts it."""

import re
import unicodedata
from collections.abc import Mapping

from fermi.jobs.spec import Late, Value

_PLAIN = re.compile(r"[A-Za-z0-9_@%+:,./-]+")  # `=` would look like an assignment in an array
_SPECIAL = re.compile(r'([\\"$`])')


def word(text: str) -> str:
    """Return the text unquoted where that is safe, else quoted."""
    return text if _PLAIN.fullmatch(text) else quoted(text)


def quoted(text: str) -> str:
    r"""Return the text in double quotes, or, where a character is invisible or ambiguous, as `$'\n'`."""
    return f'"{_within(text)}"' if _is_clear(text) else _escaped(text)


def value(of: Value, late: Mapping[Late, str], prefix: str = "") -> str:
    """Return a word that may hold what only the script knows: the variables' names are by late value. `prefix`: text
    before it."""
    pieces = [prefix, *(of if isinstance(of, tuple) else (of,))]
    if not any(isinstance(piece, Late) for piece in pieces):
        return word("".join(str(piece) for piece in pieces))
    if all(isinstance(piece, Late) or _is_clear(piece) for piece in pieces):
        within = (f"${{{late[piece]}}}" if isinstance(piece, Late) else _within(piece) for piece in pieces)
        return f'"{"".join(within)}"'
    return "".join(f'"${{{late[piece]}}}"' if isinstance(piece, Late) else quoted(piece) for piece in pieces)


def assignment(name: str, of: Value, late: Mapping[Late, str]) -> str:
    """Return `NAME=value` as a word."""
    return value(of, late, f"{name}=")


def _is_clear(text: str) -> bool:
    return all(char == " " or "!" <= char <= "~" or unicodedata.category(char)[0] in "LN" for char in text)


def _within(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", text)


def _escaped(text: str) -> str:
    return "$'" + "".join(map(_character, text)) + "'"


def _character(char: str) -> str:
    if char in "\\'":
        return f"\\{char}"
    if char == "\n":
        return "\\n"
    if char == " " or "!" <= char <= "~":
        return char
    return "".join(f"\\{byte:03o}" for byte in char.encode("utf-8", "surrogateescape"))
