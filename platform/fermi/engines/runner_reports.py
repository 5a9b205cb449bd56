"""Parse what runners report, by its shape only. Where a script runs as its runner's user it can write in the runner's
name: into status files on a shared folder, into a pod's output and its termination message.

What does not have the shape that a runner writes counts as not reported; nothing here raises, waits, or returns a
number that no runner has.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fermi.engines import logfiles, untrusted
from fermi.jobs.spec import PulseSeen
from fermi.probe.shared_page import PHASES

MOST_BYTES = 4 << 20  # a hundred times the report of a thousand nodes
MOST_TEXT = 2000

_Shape = Callable[[Any], bool]


def read(path: str | Path) -> dict[str, Any] | None:
    """Return the object in a file; None where there is none, or it is a pipe, a link or torn JSON."""
    try:
        with logfiles.plain(path) as file:
            data = file.read(MOST_BYTES + 1)
    except (FileNotFoundError, IsADirectoryError):
        return None
    return parse(data) if len(data) <= MOST_BYTES else None


def parse(text: str | bytes) -> dict[str, Any] | None:
    """Return the JSON object in a text; None where it is something else."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def whole(low: int, high: int) -> _Shape:
    """Return a check for integers from `low` to `high`."""
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def moment(value: Any) -> bool:
    """Return whether a value is unix seconds of a clock that may be wrong, but can be shown."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e11


def text(value: Any) -> bool:
    """Return whether a value is a text."""
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
"""Further fields of an entry, each optional: where one is missing or malformed, the rest of the entry holds."""


def entries(found: Any) -> list[dict[str, Any]]:
    """Return the well-formed entries of ranks, each rank once."""
    kept: dict[int, dict[str, Any]] = {}
    for entry in found if isinstance(found, list) else ():
        if isinstance(entry, dict) and all(is_so(entry.get(name)) for name, is_so in _ENTRY.items()):
            said = {name: entry.get(name) for name in _ENTRY} | {"asked": bool(entry.get("asked"))}
            kept.setdefault(entry["rank"], said | news(entry) | course(entry))
    return list(kept.values())


def news(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return `error`, `stalled` and `kill` of a rank, those that exist."""
    found = ((name, take(entry.get(name))) for name, take in NEWS.items())
    return {name: value for name, value in found if value}


COURSE: dict[str, untrusted.Take] = {
    "called_at": untrusted.MOMENT, "began_at": untrusted.MOMENT,
    "last_step": untrusted.SIZE, "trainer": untrusted.TRAINER, "joined_as": untrusted.SIZE,
}  # fmt: skip


def course(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return when a rank's runner was at work, when the rank was started, and how far it had come when it ended, as far
    as its runner reports it: fields of a `RankSeen`."""
    found = ((name, take(entry.get(name))) for name, take in COURSE.items())
    return {name: value for name, value in found if value is not None}


def pulses(found: Any) -> dict[int, PulseSeen]:
    """Return the progress of the ranks of a node by rank: `[{"rank": 0, "at": …, "phase": …, …}]`."""
    kept: dict[int, PulseSeen] = {}
    for one in found if isinstance(found, list) else ():
        taken = untrusted.PULSE(one)
        if taken and taken["rank"] is not None and taken["at"] is not None:
            phase = taken["phase"] if taken["phase"] in PHASES else PHASES[0]
            kept.setdefault(taken["rank"], PulseSeen(**{**taken, "phase": phase}))
    return kept


def pulses_in(folder: Path) -> dict[int, PulseSeen]:
    """Return the progress of the ranks of all nodes whose runners write to a folder: `{"pulse": […]}` in
    `node-<k>.pulse.json`."""
    found = (pulses((read(path) or {}).get("pulse")) for path in sorted(folder.glob("node-*.pulse.json")))
    return {rank: seen for node in found for rank, seen in node.items()}


def words(found: Any) -> dict[str, Any] | None:
    """Return a cause: its `code`, and the parameters of its text; None where it is none."""
    if not isinstance(found, dict) or not isinstance(found.get("code"), str):
        return None
    return {
        name: value[:MOST_TEXT] if isinstance(value, str) else value for name, value in found.items() if _plain(value)
    }


def _plain(value: Any) -> bool:
    return value is None or isinstance(value, str | bool) or whole(-(1 << 53), 1 << 53)(value) or moment(value)


def last_words(text: str) -> dict[str, Any]:
    """Return a pod's termination message (see `fermi.runner.pod`); empty when its runner could not write it. `error`
    and `kill` are those of the `rank` that it names."""
    found = parse(text) or {}
    return {name: value for name, is_so in _LAST_WORDS.items() if is_so(value := found.get(name))} | news(found)


def _is_row(found: Any) -> bool:
    """Return whether a value is a rank, its exit code, and when it ended."""
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
    """Return the status of a node, as its runner writes it; None where it is none."""
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
