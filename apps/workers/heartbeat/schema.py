"""Parsing of heartbeats."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import msgspec

from apps.common.openapi import INT4
from apps.workers.busy_ports import PORTS
from fermi.engines import runner_reports, telemetry_reports, untrusted
from fermi.engines.environments import HostedSeen
from fermi.jobs.spec import Sample
from fermi.schema import sanitize, serialization

STATES = ("starting", "running", "exited")
_SURROGATE = re.compile("[\ud800-\udfff]")
COUNT = 2**53 - 1
"""Largest number that every reader of JSON keeps exact."""
DAY_SECONDS = 86_400
PROCESS = ("name", "rank", "state", "pid", "exitCode", "endedAt", "left", "asked", "stillSince", "cause")
"""Fields besides those that are parsed one by one: `doing`, `course`, and the runner's reports."""
USAGE = ("gpuUtilization", "gpuMemoryUsedMb", "gpuMemoryTotalMb", "cpuPercent", "memoryUsedMb")
MOST_PORTS = 1024
MOST_WORKERS = 1024
CAUSE_NUMBERS = (
    "free", "total", "rank", "port", "freeMiB", "totalMiB", "reserveMiB", "seconds", "processes", "threads",
    "processBound", "threadBound", "files", "fileBound",
)  # fmt: skip
CAUSE_WORDS = ("code", "path", "holder", "task", "wrote", "size", "used", "bound")
CAUSE_TEXTS = ("file", "why", "expected", "found")
"""Fields of a cause with others' output: they may be empty, and are cleaned for the database."""
LONGEST = 4096
_DOING = untrusted.record(code=untrusted.NAME, file=untrusted.NAME, said=untrusted.TEXT)
MOST_RUNS = 256
LARGEST_RUN = 1 << 16
"""Bytes that a host may report of one dev environment."""


@dataclass(frozen=True, slots=True)
class Beat:
    """One worker's part of a heartbeat. `generation`: the newest one it has acted on; `process`: what it runs, None =
    nothing; `pulse`: the progress of that; `used`: what its GPU, its rank and (reported by one of them) its host used;
    `hosted`: status of the dev environments there, by run; `gone`: those of which nothing is left."""

    worker: str
    token: str
    incarnation: str
    sequence: int
    generation: int
    process: Mapping[str, Any] | None
    usage: Mapping[str, Any]
    pulse: Mapping[str, Any] | None = None
    used: Sample | None = None
    hosted: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    gone: tuple[str, ...] = ()


def read(body: Any) -> tuple[float, list[Beat]]:
    """Return how many seconds the answer may be held, and the entries. Raises ValueError for an invalid heartbeat; the
    serializer says what is wrong."""
    if not isinstance(body, dict) or not isinstance(workers := body.get("workers"), list):
        raise ValueError("no workers")
    if len(workers) > MOST_WORKERS:
        raise ValueError("workers")
    wait = body.get("waitSeconds") or 0
    if not isinstance(wait, int | float) or isinstance(wait, bool) or not 0 <= wait <= DAY_SECONDS:
        raise ValueError("waitSeconds")
    return float(wait), [_beat(item) for item in workers]


def _beat(item: Any) -> Beat:
    if not isinstance(item, dict):
        raise ValueError("a worker")
    process, usage = item.get("process"), item.get("usage") or {}
    if (process is not None and not _is_process(process)) or not _is_usage(usage):
        raise ValueError("process or usage")
    if process and (cause := process.get("cause")):
        texts = {name: sanitize.text(text) for name, text in _known(cause, CAUSE_TEXTS).items() if text is not None}
        process = {**process, "cause": {**_known(cause, (*CAUSE_NUMBERS, *CAUSE_WORDS)), **texts}}
    if PORTS in usage:
        usage = {**usage, PORTS: [_known(one, ("port", "holder")) for one in usage[PORTS]]}
    news = {**runner_reports.news(process), **_doing(process), **_course(process)} if process else {}
    return Beat(
        _text(item, "id"), _text(item, "token"), _text(item, "incarnation"), _number(item, "sequence"),
        _number(item, "generation"), process and {**_known(process, PROCESS), **news},
        _known(usage, (*USAGE, PORTS)), untrusted.PULSE(item.get("pulse")),
        telemetry_reports.sample(item["telemetry"]) if "telemetry" in item else None,
        *_hosted(item.get("hosted")),
    )  # fmt: skip


def _doing(process: Mapping[str, Any]) -> dict[str, Any]:
    found = _DOING(process.get("doing"))
    return {"doing": {name: text for name, text in found.items() if text is not None}} if found else {}


def _course(process: Mapping[str, Any]) -> dict[str, Any]:
    said = process.get("course")
    found = runner_reports.course(said) if isinstance(said, dict) else {}
    return {"course": found} if found else {}


def _hosted(said: Any) -> tuple[Mapping[str, Mapping[str, Any]], tuple[str, ...]]:
    """Return the reported dev environments; what has another shape is ignored."""
    if not isinstance(said, dict):
        return {}, ()
    runs, gone = said.get("runs"), said.get("gone")
    found = {}
    for name, one in list(runs.items())[:MOST_RUNS] if isinstance(runs, dict) else ():
        seen = _seen(one)
        if seen is not None and isinstance(name, str) and 0 < len(name) <= 80:
            found[sanitize.text(name)] = seen
    words = gone[:MOST_RUNS] if isinstance(gone, list) else []
    return found, tuple(sanitize.text(one) for one in words if isinstance(one, str) and len(one) <= 40)


def _seen(said: Any) -> Mapping[str, Any] | None:
    try:
        found = serialization.dump(msgspec.convert(sanitize.params(said), HostedSeen))
    except (msgspec.ValidationError, TypeError, ValueError):
        return None
    return found if len(msgspec.json.encode(found)) <= LARGEST_RUN else None


def _known(found: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """Return the known fields: a newer agent may report more, and what the database cannot store of that would block
    all reports."""
    return {name: found[name] for name in names if name in found}


def _is_process(found: Any) -> bool:
    return (
        isinstance(found, dict)
        and isinstance(found.get("name"), str)
        and 0 < len(found["name"]) <= 80
        and "\0" not in found["name"]
        and found.get("state") in STATES
        and all(_is(found.get(name), int, most=INT4) for name in ("rank", "pid", "exitCode"))
        and all(_is(found.get(name), int, float) for name in ("endedAt", "stillSince"))
        and all(isinstance(found.get(name), bool | None) for name in ("left", "asked"))
        and _is_cause(found.get("cause"))
    )


def _is_cause(found: Any) -> bool:
    return found is None or (
        isinstance(found, dict)
        and all(_is(found.get(name), int) for name in CAUSE_NUMBERS)
        and all(_is_word(found.get(name)) for name in CAUSE_WORDS)
        and all(_is_text(found.get(name)) for name in CAUSE_TEXTS)
    )


def _is_word(value: Any) -> bool:
    """Return True for None, or a text that is not blank and that a database stores."""
    return value is None or (
        isinstance(value, str)
        and bool(value.strip())
        and len(value) <= LONGEST
        and "\0" not in value
        and not _SURROGATE.search(value)
    )


def _is_text(value: Any) -> bool:
    return value is None or (isinstance(value, str) and len(value) <= LONGEST)


def _is_usage(found: Any) -> bool:
    return (
        isinstance(found, dict)
        and all(_is(found.get(name), int, float) for name in USAGE)
        and _are_ports(found.get(PORTS, []))
    )


def _are_ports(found: Any) -> bool:
    return isinstance(found, list) and len(found) <= MOST_PORTS and all(_is_port(one) for one in found)


def _is_port(found: Any) -> bool:
    return (
        isinstance(found, dict)
        and found.get("port") is not None
        and _is(found["port"], int, most=65535)
        and _is_word(found.get("holder"))
    )


def _is(value: Any, *kinds: type, most: int = COUNT) -> bool:
    return value is None or (
        isinstance(value, kinds) and not isinstance(value, bool) and abs(cast(float, value)) <= most
    )


def _text(item: Mapping[str, Any], name: str) -> str:
    value = item.get(name, "")
    if not isinstance(value, str) or len(value) > 200 or "\0" in value:
        raise ValueError(name)
    return value


def _number(item: Mapping[str, Any], name: str) -> int:
    value = item.get(name, 0)
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) > COUNT:
        raise ValueError(name)
    return value
