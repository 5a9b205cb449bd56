"""Describes the exception that ends a rank."""

from __future__ import annotations

import os
import sys
import time
from types import TracebackType
from typing import Any

MAX_MESSAGE_LENGTH = 500
MAX_FAILURES = 64

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
        "message": _shorten_text(_read_message(error)),
        "file": make_relative(file),
        "line": line,
        "function": function,
        "at": time.time(),
        **_describe_started_ranks(error),
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


def _describe_started_ranks(error: BaseException) -> dict[str, Any]:
    """Return what the exception of a launcher says of the ranks that it has started: `failures` (local rank, exit code)
    with the first one first, and `type` and `message` of that one's own exception where it is known.

    torch's elastic launcher raises ChildFailedError (torch 2.13, distributed/elastic/multiprocessing/errors):
    `failures` by rank, each with `local_rank`, `exitcode`, `timestamp` and `message`, which is an exception's where the
    rank wrote one. `torch.multiprocessing` raises ProcessRaisedException, whose `msg` ends with the traceback, and
    ProcessExitedException with an `exit_code` (torch/multiprocessing/spawn.py)."""
    try:
        if type(error).__name__ == "ChildFailedError":
            ends = sorted(error.failures.values(), key=lambda one: one.timestamp)  # type: ignore[attr-defined]
            found = {"failures": [[one.local_rank, one.exitcode] for one in ends[:MAX_FAILURES]]}
            said = ends[0].message
            return {**found, **_split_exception(str(said["message"] if isinstance(said, dict) else said))}
        if type(error).__name__ == "ProcessRaisedException":
            last = error.msg.strip().rpartition("\n")[2]  # type: ignore[attr-defined]
            return {"failures": [[error.error_index, 1]], **_split_exception(last)}  # type: ignore[attr-defined]
        if type(error).__name__ == "ProcessExitedException":
            return {"failures": [[error.error_index, error.exit_code]]}  # type: ignore[attr-defined]
    except Exception:  # of another version
        pass
    return {}


def _split_exception(text: str) -> dict[str, str]:
    """Return `type` and `message` of an exception as tracebacks end with it; nothing for any other text."""
    name, _, message = text.partition(": ")
    if not name.replace(".", "").isidentifier() or (not name[:1].isupper() and "." not in name):
        return {}
    return {"type": name.rpartition(".")[2], "message": _shorten_text(message)}


def _read_message(error: BaseException) -> str:
    try:
        return str(error).strip()
    except Exception:  # the user's own
        return ""


def _shorten_text(text: str) -> str:
    """Return the text; a long one with its beginning and end: an exception of a DataLoader's worker has its reason
    last."""
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
