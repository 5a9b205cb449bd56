"""Quotes text as one word of bash: nothing in it is expanded, split or lost, and shellcheck accepts it."""

import re
import unicodedata
from collections.abc import Mapping

from fermi.jobs.spec import Late, Value

_SAFE = re.compile(r"[A-Za-z0-9_@%+:,./-]+")  # `=` would look like an assignment in an array
_SPECIAL = re.compile(r'([\\"$`])')


def quote_word(text: str) -> str:
    """Return the text unquoted where that is safe, else quoted."""
    return text if _SAFE.fullmatch(text) else quote_text(text)


def quote_text(text: str) -> str:
    r"""Return the text in double quotes, or, where a character is invisible or ambiguous, as `$'\n'`."""
    return f'"{_escape_double_quoted(text)}"' if _is_printable(text) else _quote_ansi_c(text)


def quote_value(content: Value, variables: Mapping[Late, str], prefix: str = "") -> str:
    """Return a word that may hold what only the script knows: the variables' names are by late value. `prefix`: text
    before it."""
    pieces = [prefix, *(content if isinstance(content, tuple) else (content,))]
    if not any(isinstance(piece, Late) for piece in pieces):
        return quote_word("".join(str(piece) for piece in pieces))
    if all(isinstance(piece, Late) or _is_printable(piece) for piece in pieces):
        within = (
            f"${{{variables[piece]}}}" if isinstance(piece, Late) else _escape_double_quoted(piece) for piece in pieces
        )
        return f'"{"".join(within)}"'
    return "".join(f'"${{{variables[piece]}}}"' if isinstance(piece, Late) else quote_text(piece) for piece in pieces)


def quote_assignment(name: str, content: Value, variables: Mapping[Late, str]) -> str:
    """Return `NAME=value` as a word."""
    return quote_value(content, variables, f"{name}=")


def _is_printable(text: str) -> bool:
    return all(char == " " or "!" <= char <= "~" or unicodedata.category(char)[0] in "LN" for char in text)


def _escape_double_quoted(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", text)


def _quote_ansi_c(text: str) -> str:
    return "$'" + "".join(map(_escape_character, text)) + "'"


def _escape_character(char: str) -> str:
    if char in "\\'":
        return f"\\{char}"
    if char == "\n":
        return "\\n"
    if char == " " or "!" <= char <= "~":
        return char
    return "".join(f"\\{byte:03o}" for byte in char.encode("utf-8", "surrogateescape"))
