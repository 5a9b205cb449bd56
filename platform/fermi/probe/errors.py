"""Describes the exception that ends a rank."""

from __future__ import annotations

import os
import sys
import time
from types import TracebackType
from typing import Any

MAX_MESSAGE_LENGTH = 500

_PROBE_FOLDER = os.path.dirname(os.path.abspath(__file__))
_FOREIGN_FOLDERS = (
    os.path.dirname(os.path.abspath(os.__file__)) + os.sep,  # the standard library, and most often site-packages
    _PROBE_FOLDER + os.sep,
    os.path.join(os.path.dirname(_PROBE_FOLDER), "runner") + os.sep,
)


def describe_error(error: BaseException, traceback: TracebackType | None) -> dict[str, Any]:
    """Return type, message and time of the exception, with the innermost frame of the user's own code, not of the
    packages that it called."""
    file, line, function = _find_syntax_error(error) or _find_innermost(traceback)
    return {
        "type": type(error).__qualname__,
        "message": _shorten_message(error),
        "file": make_relative(file),
        "line": line,
        "function": function,
        "at": time.time(),
    }


def is_own(file: str) -> bool:
    """Return True for files of the user's own code."""
    path = os.path.abspath(file)
    packages = f"{os.sep}site-packages{os.sep}" in path or f"{os.sep}dist-packages{os.sep}" in path
    return not (file.startswith("<") or packages or path.startswith(_FOREIGN_FOLDERS))


def _find_innermost(traceback: TracebackType | None) -> tuple[str, int, str]:
    found, own = ("", 0, ""), False
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if is_own(code.co_filename) or not own:
            own = own or is_own(code.co_filename)
            found = (code.co_filename, traceback.tb_lineno or 0, code.co_name)
        traceback = traceback.tb_next
    return found


def _find_syntax_error(error: BaseException) -> tuple[str, int, str] | None:
    if isinstance(error, SyntaxError) and error.filename:
        return error.filename, error.lineno or 0, "<module>"
    return None


def _shorten_message(error: BaseException) -> str:
    """Return the message; a long one with its beginning and end: an exception of a DataLoader's worker has its reason
    last."""
    try:
        text = str(error).strip()
    except Exception:  # the user's own
        return ""
    half = MAX_MESSAGE_LENGTH // 2 - 2
    return text if len(text) <= MAX_MESSAGE_LENGTH else f"{text[:half]} … {text[-half:]}"


def make_relative(file: str) -> str:
    """Return the path relative to the working directory, or to the script's folder."""
    try:
        folder = os.getcwd() + os.sep
    except OSError:
        return file
    for start in (folder, os.path.dirname(os.path.abspath(sys.argv[0] if sys.argv else "")) + os.sep):
        if file.startswith(start):
            return file[len(start) :]
    return file
