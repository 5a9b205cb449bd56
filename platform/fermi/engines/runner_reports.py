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
from fermi.jobs.spec import RankProgress
from fermi.probe.shared_page import PHASES

MAX_REPORT_BYTES = 4 << 20  # a hundred times the report of a thousand nodes
MAX_TEXT_CHARS = 2000

_Shape = Callable[[Any], bool]


def read_report(path: str | Path) -> dict[str, Any] | None:
    """Return the object in a file; None where there is none, or it is a pipe, a link or torn JSON."""
    try:
        with logfiles.open_regular_file(path) as file:
            data = file.read(MAX_REPORT_BYTES + 1)
    except (FileNotFoundError, IsADirectoryError):
        return None
    return parse_object(data) if len(data) <= MAX_REPORT_BYTES else None


def parse_object(text: str | bytes) -> dict[str, Any] | None:
    """Return the JSON object in a text; None where it is something else."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def build_int_check(low: int, high: int) -> _Shape:
    """Return a check for integers from `low` to `high`."""
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def is_timestamp(value: Any) -> bool:
    """Return whether a value is unix seconds of a clock that may be wrong, but can be shown."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e11


def is_text(value: Any) -> bool:
    """Return whether a value is a text."""
    return isinstance(value, str)


def _allow_none(shape: _Shape) -> _Shape:
    return lambda value: value is None or shape(value)


IS_RANK, IS_EXIT_CODE = build_int_check(0, 1 << 20), build_int_check(-255, 255)
_ENTRY_FIELDS: dict[str, _Shape] = {
    "rank": IS_RANK,
    "state": lambda value: value in ("waiting", "running", "exited"),
    "pid": _allow_none(build_int_check(1, 1 << 31)),
    "exit_code": _allow_none(IS_EXIT_CODE),
    "ended_at": _allow_none(is_timestamp),
    "still_since": _allow_none(is_timestamp),
}


EXTRA_FIELDS = {"error": untrusted.ERROR, "stalled": untrusted.STALLED, "kill": untrusted.KILL}
"""Further fields of an entry, each optional: where one is missing or malformed, the rest of the entry holds."""


def parse_rank_entries(data: Any) -> list[dict[str, Any]]:
    """Return the well-formed entries of ranks, each rank once."""
    kept: dict[int, dict[str, Any]] = {}
    for entry in data if isinstance(data, list) else ():
        if isinstance(entry, dict) and all(is_so(entry.get(name)) for name, is_so in _ENTRY_FIELDS.items()):
            said = {name: entry.get(name) for name in _ENTRY_FIELDS} | {"asked": bool(entry.get("asked"))}
            kept.setdefault(entry["rank"], said | parse_extras(entry) | parse_course(entry))
    return list(kept.values())


def parse_extras(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return `error`, `stalled` and `kill` of a rank, those that exist."""
    found = ((name, take(entry.get(name))) for name, take in EXTRA_FIELDS.items())
    return {name: value for name, value in found if value}


COURSE_FIELDS: dict[str, untrusted.Parser] = {
    "called_at": untrusted.MOMENT, "began_at": untrusted.MOMENT,
    "last_step": untrusted.SIZE, "trainer": untrusted.TRAINER, "joined_as": untrusted.SIZE,
}  # fmt: skip


def parse_course(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return when a rank's runner was at work, when the rank was started, and how far it had come when it ended, as far
    as its runner reports it: fields of a `RankSeen`."""
    found = ((name, take(entry.get(name))) for name, take in COURSE_FIELDS.items())
    return {name: value for name, value in found if value is not None}


def parse_pulses(data: Any) -> dict[int, RankProgress]:
    """Return the progress of the ranks of a node by rank: `[{"rank": 0, "at": …, "phase": …, …}]`."""
    kept: dict[int, RankProgress] = {}
    for one in data if isinstance(data, list) else ():
        taken = untrusted.PULSE(one)
        if taken and taken["rank"] is not None and taken["at"] is not None:
            phase = taken["phase"] if taken["phase"] in PHASES else PHASES[0]
            kept.setdefault(taken["rank"], RankProgress(**{**taken, "phase": phase}))
    return kept


def read_pulses(folder: Path) -> dict[int, RankProgress]:
    """Return the progress of the ranks of all nodes whose runners write to a folder: `{"pulse": […]}` in
    `node-<k>.pulse.json`."""
    found = (parse_pulses((read_report(path) or {}).get("pulse")) for path in sorted(folder.glob("node-*.pulse.json")))
    return {rank: seen for node in found for rank, seen in node.items()}


def parse_cause(data: Any) -> dict[str, Any] | None:
    """Return a cause: its `code`, and the parameters of its text; None where it is none."""
    if not isinstance(data, dict) or not isinstance(data.get("code"), str):
        return None
    return {
        name: value[:MAX_TEXT_CHARS] if isinstance(value, str) else value
        for name, value in data.items()
        if _is_plain(value)
    }


def _is_plain(value: Any) -> bool:
    return (
        value is None
        or isinstance(value, str | bool)
        or build_int_check(-(1 << 53), 1 << 53)(value)
        or is_timestamp(value)
    )


def parse_termination_message(text: str) -> dict[str, Any]:
    """Return a pod's termination message (see `fermi.runner.pod`); empty when its runner could not write it. `error`
    and `kill` are those of the `rank` that it names."""
    found = parse_object(text) or {}
    return {
        name: value for name, is_so in _TERMINATION_FIELDS.items() if is_so(value := found.get(name))
    } | parse_extras(found)


def _is_row(value: Any) -> bool:
    """Return whether a value is a rank, its exit code, and when it ended."""
    shapes = (IS_RANK, _allow_none(IS_EXIT_CODE), _allow_none(is_timestamp))
    return (
        isinstance(value, list)
        and len(value) == 3
        and all(is_so(one) for is_so, one in zip(shapes, value, strict=True))
    )


def _build_list_check(shape: _Shape) -> _Shape:
    return lambda value: isinstance(value, list) and all(map(shape, value))


_TERMINATION_FIELDS: dict[str, _Shape] = {
    "ranks": _build_list_check(_is_row),
    "asked": _build_list_check(IS_RANK),
    "rank": IS_RANK,
    "terminated": is_timestamp,
    "cause": is_text,
    "detail": is_text,
    "about": lambda value: isinstance(value, dict) and all(map(_is_plain, value.values())),
    "tail": is_text,
}


def parse_status(data: Any) -> dict[str, Any] | None:
    """Return the status of a node, as its runner writes it; None where it is none."""
    if not isinstance(data, dict) or data.get("state") not in ("starting", "running", "exited"):
        return None
    asked, asked_at = data.get("asked"), data.get("asked_at")
    return {
        "state": data["state"],
        "ranks": parse_rank_entries(data.get("ranks")),
        "asked": asked if is_text(asked) else "",
        "asked_at": asked_at if is_timestamp(asked_at) else None,
        "cause": parse_cause(data.get("cause")),
        "doing": parse_cause(data.get("doing")),
    }
