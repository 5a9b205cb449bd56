"""Output on the terminal: every line is prefixed by the name of the process that wrote it."""

import os
import sys
import threading
from collections.abc import Callable
from typing import IO

WIDTH = 6  # of the longest name
COLOURS = {"web": 36, "worker": 33, "beat": 35, "watch": 34, "broker": 32, "vite": 34, "fermi": 1}
FAULT_COLOUR = 31

_lock = threading.Lock()
_coloured = sys.stdout.isatty() and "NO_COLOR" not in os.environ


def paint(code: int, text: str) -> str:
    return f"\033[{code}m{text}\033[0m" if _coloured else text


def print_line(text: str, *, name: str = "fermi", fault: bool = False) -> None:
    """Print each line of `text` whole. A reader that closed the pipe (`make up | head`) is no error."""
    prefix = paint(COLOURS.get(name.partition("-")[0], 37), f"{name:<{WIDTH}}") + " | "
    lines = "".join(f"{prefix}{paint(FAULT_COLOUR, line) if fault else line}\n" for line in text.splitlines() or [""])
    with _lock:
        try:
            sys.stdout.write(lines)
            sys.stdout.flush()
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def accept_all(line: str) -> bool:
    """Return True: show every line."""
    return True


def copy_output(source: IO[str], name: str, is_shown: Callable[[str], bool]) -> None:
    """Print the lines of a process's output for which `is_shown` returns True, without blank lines."""
    for line in source:
        if is_shown(line) and not line.isspace():
            print_line(line.rstrip("\n"), name=name)
