"""Parses the lines of a rank's output that are meant for the platform. Pure. All other lines are log.

    {"step": 10, "loss": 2.31, "time": 1763703000.5}         a point; `time` in unix seconds, may be left out
    {"event": "checkpoint", "step": 100, "path": "…"}        an event; may have `time`, too
    {'loss': 1.2, 'learning_rate': 5e-05, 'epoch': 0.5}      the Hugging Face Trainer's: a point without a step

Lines for people are read by `text_patterns`; a dictionary that counts something else, `{'epoch': 0, 'iter': 10, …}`, is
one of them. A progress bar ends its lines with a carriage return, so that ends a line here as well.
"""

import ast
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from fermi.metrics.points import JSON, TEXT, Point, parse_integer, parse_number
from fermi.schema import sanitize

MAX_LINE_BYTES = 64 << 10
"""Longest line in bytes that is parsed; a longer one is log."""

MAX_DEPTH = 16
_BEGINNING = b"\n{"
_COUNTED = re.compile(rb"\{'.{0,200}?'(?:global_step|iter|iters|iteration|batch|update|episode)': ")
_NOT_LITERAL = re.compile(rb"(?<=: )(?:-?inf|nan)(?=[,}])")


@dataclass(frozen=True, slots=True)
class PrintedEvent:
    """An event that a script printed; `params` is the whole object."""

    event: str
    params: Mapping[str, Any]
    time: float | None


def find_candidates(text: bytes) -> Iterator[bytes]:
    """Yield the lines of `text` that begin as points and events do. `text` holds whole lines that end with a line feed.
    The search runs in C: any other line costs nanoseconds."""
    text = b"\n" + text
    at = text.find(_BEGINNING)
    while at >= 0:
        end = text.index(b"\n", at + 1)
        if end - at <= MAX_LINE_BYTES:
            yield text[at + 1 : end]
        at = text.find(_BEGINNING, end)


def is_counted_dict(line: bytes) -> bool:
    """Return True if the line begins a printed dictionary that counts something but the Trainer's epochs."""
    return line.startswith(b"{'") and b"'step':" not in line and _COUNTED.match(line) is not None


def find_epoch_line(text: bytes) -> int:
    """Return where the first Trainer line with an epoch and no step begins in `text`; -1 if there is none."""
    for line in find_candidates(text):
        if line.startswith(b"{'") and isinstance(point := parse_line(line), Point) and point.step is None:
            return (b"\n" + text).index(b"\n%b\n" % line)
    return -1


def parse_line(line: bytes) -> Point | PrintedEvent | None:
    """Return the point or event in the line; None if it is just log. Never raises, and returns nothing that a database
    cannot store."""
    if not line.startswith(b"{"):
        return None
    printed = line.startswith(b"{'")
    if printed and is_counted_dict(line):
        return None
    if not any(word in line for word in ((b"'epoch'", b"'step'") if printed else (b'"step"', b'"event"'))):
        return None
    try:
        found = _parse_python_dict(line) if printed else _parse_json(line)
        if not isinstance(found, dict):
            return None
        time = parse_number(found.get("time"))
        event = found.get("event")
        if event and isinstance(event, str) and not printed:
            params = _sanitize(found)
            return PrintedEvent(params["event"], params, time)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return None
    return _build_point(found, time, printed)


def _build_point(found: Mapping[str, Any], time: float | None, printed: bool) -> Point | None:
    """Return the point. `printed` by a Trainer: it has no step but an epoch, and newer versions print their numbers as
    strings."""
    step = parse_integer(found.get("step"))
    if step is None and ("step" in found or "epoch" not in found or not printed):
        return None
    values: dict[str, float | None] = {}
    for name, value in found.items():
        if name in ("step", "time") or not isinstance(name, str):
            continue
        if printed and isinstance(value, str):
            try:
                value = float(value)
            except ValueError:
                continue
        if value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
            values[sanitize.sanitize_text(name)] = parse_number(value)
    return Point(step, values, time, TEXT if printed else JSON) if values else None


def _parse_json(line: bytes) -> Any:
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:  # Python's json writes NaN and Infinity, which orjson does not read
        return json.loads(line.decode(errors="replace"))


def _parse_python_dict(line: bytes) -> Any:
    return ast.literal_eval(_NOT_LITERAL.sub(b"None", line.strip()).decode(errors="replace"))


def _sanitize(value: Any, depth: int = 0) -> Any:
    """Return the value without what JSON or the database cannot hold. Raises ValueError if it is nested too deeply."""
    if depth > MAX_DEPTH:
        raise ValueError("nested too deep")
    match value:
        case None | bool():
            return value
        case str():
            return sanitize.sanitize_text(value)
        case dict():
            return {sanitize.sanitize_text(name): _sanitize(inner, depth + 1) for name, inner in value.items()}
        case list():
            return [_sanitize(inner, depth + 1) for inner in value]
    return parse_number(value)
