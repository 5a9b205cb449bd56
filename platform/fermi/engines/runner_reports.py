"""What runners report, believed in its shape only. Where a script runs as its runner's user it can write in its name:
into status files on a shared folder, into a pod's output and its termination message.

What is not as a runner writes it counts as not said; nothing here raises, waits, or gives a number that no runner has.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fermi.engines import logfiles, untrusted
from fermi.jobs.spec import PulseSeen
from fermi.probe.shared_page import PHASES

MOST_BYTES = 4 << 20  # a hundred times what is written for a thousand nodes
MOST_TEXT = 2000

_Shape = Callable[[Any], bool]


def read(path: str | Path) -> dict[str, Any] | None:
    """The object in a file; None when there is none, or something else stands there: a pipe, a link, torn JSON."""
    try:
        with logfiles.plain(path) as file:
            data = file.read(MOST_BYTES + 1)
    except (FileNotFoundError, IsADirectoryError):
        return None
    return parse(data) if len(data) <= MOST_BYTES else None


def parse(text: str | bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def whole(low: int, high: int) -> _Shape:
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def moment(value: Any) -> bool:
    """Unix seconds of a clock that may be wrong, but can be shown."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e11


def text(value: Any) -> bool:
    return isinstance(value, str)


def _or_none(shape: _Shape) -> _Shape:
    return lambda value: value is None or shape(value)


RANK, CODE = whole(0, 1 << 20), whole(-255, 255)
_ENTRY: dict[str, _Shape] = {
    "rank": RANK,
    "state": lambda value: value in ("waiting", "running", "exited"),
    "pid": _or_none(whole(1, 1 << 31)),
    "exit_code": _or_none(CODE),
    "ended_at": _or_none(moment),
    "still_since": _or_none(moment),
}


NEWS = {"error": untrusted.ERROR, "stalled": untrusted.STALLED, "kill": untrusted.KILL}
"""What an entry says besides, where there is anything: without it, or wrongly said, the rest of the entry holds."""


def entries(found: Any) -> list[dict[str, Any]]:
    """Of ranks, each once."""
    kept: dict[int, dict[str, Any]] = {}
    for entry in found if isinstance(found, list) else ():
        if isinstance(entry, dict) and all(is_so(entry.get(name)) for name, is_so in _ENTRY.items()):
            said = {name: entry.get(name) for name in _ENTRY} | {"asked": bool(entry.get("asked"))}
            kept.setdefault(entry["rank"], said | news(entry) | course(entry))
    return list(kept.values())


def news(entry: Mapping[str, Any]) -> dict[str, Any]:
    """`error`, `stalled` and `kill` of a rank, those that there are."""
    found = ((name, take(entry.get(name))) for name, take in NEWS.items())
    return {name: value for name, value in found if value}


COURSE: dict[str, untrusted.Take] = {
    "called_at": untrusted.MOMENT, "began_at": untrusted.MOMENT,
    "last_step": untrusted.SIZE, "trainer": untrusted.TRAINER, "joined_as": untrusted.SIZE,
}  # fmt: skip


def course(entry: Mapping[str, Any]) -> dict[str, Any]:
    """When a rank's runner was at work, when the rank was started, and how far it had come when it ended, as far as its
    runner says so: fields of a `RankSeen`."""
    found = ((name, take(entry.get(name))) for name, take in COURSE.items())
    return {name: value for name, value in found if value is not None}


def pulses(found: Any) -> dict[int, PulseSeen]:
    """Of the ranks of a node: `[{"rank": 0, "at": …, "phase": …, …}]`."""
    kept: dict[int, PulseSeen] = {}
    for one in found if isinstance(found, list) else ():
        taken = untrusted.PULSE(one)
        if taken and taken["rank"] is not None and taken["at"] is not None:
            phase = taken["phase"] if taken["phase"] in PHASES else PHASES[0]
            kept.setdefault(taken["rank"], PulseSeen(**{**taken, "phase": phase}))
    return kept


def pulses_in(folder: Path) -> dict[int, PulseSeen]:
    """Of all nodes whose runners write there: `{"pulse": […]}` into `node-<k>.pulse.json`."""
    found = (pulses((read(path) or {}).get("pulse")) for path in sorted(folder.glob("node-*.pulse.json")))
    return {rank: seen for node in found for rank, seen in node.items()}


def words(found: Any) -> dict[str, Any] | None:
    """A cause: its `code`, and what the text takes."""
    if not isinstance(found, dict) or not isinstance(found.get("code"), str):
        return None
    return {
        name: value[:MOST_TEXT] if isinstance(value, str) else value for name, value in found.items() if _plain(value)
    }


def _plain(value: Any) -> bool:
    return value is None or isinstance(value, str | bool) or whole(-(1 << 53), 1 << 53)(value) or moment(value)


def last_words(text: str) -> dict[str, Any]:
    """A pod's termination message: see `fermi.runner.pod`. Empty when its runner could not write it. `error` and `kill`
    are of the `rank` that it names."""
    found = parse(text) or {}
    return {name: value for name, is_so in _LAST_WORDS.items() if is_so(value := found.get(name))} | news(found)


def _is_row(found: Any) -> bool:
    """A rank, its exit code, and when it ended."""
    shapes = (RANK, _or_none(CODE), _or_none(moment))
    return (
        isinstance(found, list)
        and len(found) == 3
        and all(is_so(one) for is_so, one in zip(shapes, found, strict=True))
    )


def _list_of(shape: _Shape) -> _Shape:
    return lambda value: isinstance(value, list) and all(map(shape, value))


_LAST_WORDS: dict[str, _Shape] = {
    "ranks": _list_of(_is_row),
    "asked": _list_of(RANK),
    "rank": RANK,
    "terminated": moment,
    "cause": text,
    "detail": text,
    "about": lambda value: isinstance(value, dict) and all(map(_plain, value.values())),
    "tail": text,
}


def status(found: Any) -> dict[str, Any] | None:
    """A node's, as its runner writes it."""
    if not isinstance(found, dict) or found.get("state") not in ("starting", "running", "exited"):
        return None
    asked, asked_at = found.get("asked"), found.get("asked_at")
    return {
        "state": found["state"],
        "ranks": entries(found.get("ranks")),
        "asked": asked if text(asked) else "",
        "asked_at": asked_at if moment(asked_at) else None,
        "cause": words(found.get("cause")),
        "doing": words(found.get("doing")),
    }
