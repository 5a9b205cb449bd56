"""Parsing of heartbeats."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import msgspec

from apps.common.openapi import MAX_INT4
from apps.workers.busy_ports import PORTS_KEY
from fermi.engines import runner_reports, telemetry_reports, untrusted
from fermi.engines.environments import EnvironmentStatus
from fermi.jobs.spec import Sample
from fermi.schema import sanitize, serialization

PROCESS_STATES = ("starting", "running", "exited")
_SURROGATE = re.compile("[\ud800-\udfff]")
MAX_COUNT = 2**53 - 1
"""Largest number that every reader of JSON keeps exact."""
DAY_SECONDS = 86_400
PROCESS_FIELDS = ("name", "rank", "state", "pid", "exitCode", "endedAt", "left", "asked", "stillSince", "cause")
"""Fields besides those that are parsed one by one: `doing`, `course`, and the runner's reports."""
USAGE_FIELDS = ("gpuUtilization", "gpuMemoryUsedMb", "gpuMemoryTotalMb", "cpuPercent", "memoryUsedMb")
MAX_PORTS = 1024
MAX_WORKERS = 1024
CAUSE_NUMBERS = (
    "free", "total", "rank", "port", "freeMiB", "totalMiB", "reserveMiB", "seconds", "processes", "threads",
    "processBound", "threadBound", "files", "fileBound",
)  # fmt: skip
CAUSE_WORDS = ("code", "path", "holder", "task", "wrote", "size", "used", "bound")
CAUSE_TEXTS = ("file", "why", "expected", "found")
"""Fields of a cause with others' output: they may be empty, and are cleaned for the database."""
MAX_TEXT_LENGTH = 4096
_DOING = untrusted.build_record_parser(code=untrusted.NAME, file=untrusted.NAME, said=untrusted.TEXT)
MAX_RUNS = 256
MAX_RUN_BYTES = 1 << 16
"""Bytes that a host may report of one dev environment."""


@dataclass(frozen=True, slots=True)
class HeartbeatEntry:
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


def parse_heartbeat(body: Any) -> tuple[float, list[HeartbeatEntry]]:
    """Return how many seconds the answer may be held, and the entries. Raises ValueError for an invalid heartbeat; the
    serializer says what is wrong."""
    if not isinstance(body, dict) or not isinstance(workers := body.get("workers"), list):
        raise ValueError("no workers")
    if len(workers) > MAX_WORKERS:
        raise ValueError("workers")
    wait = body.get("waitSeconds") or 0
    if not isinstance(wait, int | float) or isinstance(wait, bool) or not 0 <= wait <= DAY_SECONDS:
        raise ValueError("waitSeconds")
    return float(wait), [_parse_entry(item) for item in workers]


def _parse_entry(item: Any) -> HeartbeatEntry:
    if not isinstance(item, dict):
        raise ValueError("a worker")
    process, usage = item.get("process"), item.get("usage") or {}
    if (process is not None and not _is_process(process)) or not _is_usage(usage):
        raise ValueError("process or usage")
    if process and (cause := process.get("cause")):
        texts = {
            name: sanitize.sanitize_text(text)
            for name, text in _pick_known(cause, CAUSE_TEXTS).items()
            if text is not None
        }
        process = {**process, "cause": {**_pick_known(cause, (*CAUSE_NUMBERS, *CAUSE_WORDS)), **texts}}
    if PORTS_KEY in usage:
        usage = {**usage, PORTS_KEY: [_pick_known(one, ("port", "holder")) for one in usage[PORTS_KEY]]}
    news = {**runner_reports.parse_extras(process), **_read_doing(process), **_read_course(process)} if process else {}
    return HeartbeatEntry(
        _read_text(item, "id"), _read_text(item, "token"), _read_text(item, "incarnation"), _read_number(item,
        "sequence"), _read_number(item, "generation"), process and {**_pick_known(process, PROCESS_FIELDS), **news},
        _pick_known(usage, (*USAGE_FIELDS, PORTS_KEY)), untrusted.PULSE(item.get("pulse")),
        telemetry_reports.parse_sample(item["telemetry"]) if "telemetry" in item else None,
        *_read_hosted(item.get("hosted")),
    )  # fmt: skip


def _read_doing(process: Mapping[str, Any]) -> dict[str, Any]:
    found = _DOING(process.get("doing"))
    return {"doing": {name: text for name, text in found.items() if text is not None}} if found else {}


def _read_course(process: Mapping[str, Any]) -> dict[str, Any]:
    said = process.get("course")
    found = runner_reports.parse_course(said) if isinstance(said, dict) else {}
    return {"course": found} if found else {}


def _read_hosted(reported: Any) -> tuple[Mapping[str, Mapping[str, Any]], tuple[str, ...]]:
    """Return the reported dev environments; what has another shape is ignored."""
    if not isinstance(reported, dict):
        return {}, ()
    runs, gone = reported.get("runs"), reported.get("gone")
    found = {}
    for name, one in list(runs.items())[:MAX_RUNS] if isinstance(runs, dict) else ():
        seen = _read_status(one)
        if seen is not None and isinstance(name, str) and 0 < len(name) <= 80:
            found[sanitize.sanitize_text(name)] = seen
    words = gone[:MAX_RUNS] if isinstance(gone, list) else []
    return found, tuple(sanitize.sanitize_text(one) for one in words if isinstance(one, str) and len(one) <= 40)


def _read_status(reported: Any) -> Mapping[str, Any] | None:
    try:
        found = serialization.dump(msgspec.convert(sanitize.sanitize_params(reported), EnvironmentStatus))
    except (msgspec.ValidationError, TypeError, ValueError):
        return None
    return found if len(msgspec.json.encode(found)) <= MAX_RUN_BYTES else None


def _pick_known(values: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """Return the known fields: a newer agent may report more, and what the database cannot store of that would block
    all reports."""
    return {name: values[name] for name in names if name in values}


def _is_process(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and isinstance(value.get("name"), str)
        and 0 < len(value["name"]) <= 80
        and "\0" not in value["name"]
        and value.get("state") in PROCESS_STATES
        and all(_is_number(value.get(name), int, max_value=MAX_INT4) for name in ("rank", "pid", "exitCode"))
        and all(_is_number(value.get(name), int, float) for name in ("endedAt", "stillSince"))
        and all(isinstance(value.get(name), bool | None) for name in ("left", "asked"))
        and _is_cause(value.get("cause"))
    )


def _is_cause(value: Any) -> bool:
    return value is None or (
        isinstance(value, dict)
        and all(_is_number(value.get(name), int) for name in CAUSE_NUMBERS)
        and all(_is_word(value.get(name)) for name in CAUSE_WORDS)
        and all(_is_text(value.get(name)) for name in CAUSE_TEXTS)
    )


def _is_word(value: Any) -> bool:
    """Return True for None, or a text that is not blank and that a database stores."""
    return value is None or (
        isinstance(value, str)
        and bool(value.strip())
        and len(value) <= MAX_TEXT_LENGTH
        and "\0" not in value
        and not _SURROGATE.search(value)
    )


def _is_text(value: Any) -> bool:
    return value is None or (isinstance(value, str) and len(value) <= MAX_TEXT_LENGTH)


def _is_usage(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and all(_is_number(value.get(name), int, float) for name in USAGE_FIELDS)
        and _are_ports(value.get(PORTS_KEY, []))
    )


def _are_ports(value: Any) -> bool:
    return isinstance(value, list) and len(value) <= MAX_PORTS and all(_is_port(one) for one in value)


def _is_port(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and value.get("port") is not None
        and _is_number(value["port"], int, max_value=65535)
        and _is_word(value.get("holder"))
    )


def _is_number(value: Any, *kinds: type, max_value: int = MAX_COUNT) -> bool:
    return value is None or (
        isinstance(value, kinds) and not isinstance(value, bool) and abs(cast(float, value)) <= max_value
    )


def _read_text(item: Mapping[str, Any], name: str) -> str:
    value = item.get(name, "")
    if not isinstance(value, str) or len(value) > 200 or "\0" in value:
        raise ValueError(name)
    return value


def _read_number(item: Mapping[str, Any], name: str) -> int:
    value = item.get(name, 0)
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) > MAX_COUNT:
        raise ValueError(name)
    return value
