"""Parsing of heartbeats."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Required, TypeAlias, TypedDict, get_args

import msgspec
from msgspec import UNSET, Meta, Struct

from apps.common.openapi import MAX_INT4
from apps.workers.busy_ports import PORTS_KEY
from fermi.engines import runner_reports, telemetry_reports, untrusted
from fermi.engines.environments import EnvironmentStatus
from fermi.jobs.spec import Sample
from fermi.schema import sanitize, serialization

ProcessState = Literal["starting", "running", "exited"]
PROCESS_STATES: tuple[ProcessState, ...] = get_args(ProcessState)
MAX_COUNT = 2**53 - 1
"""Largest number that every reader of JSON keeps exact."""
DAY_SECONDS = 86_400
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


Count: TypeAlias = Annotated[int, Meta(ge=-MAX_COUNT, le=MAX_COUNT)]
Int4: TypeAlias = Annotated[int, Meta(ge=-MAX_INT4, le=MAX_INT4)]
Number: TypeAlias = Count | Annotated[float, Meta(ge=-MAX_COUNT, le=MAX_COUNT)]
Key: TypeAlias = Annotated[str, Meta(max_length=200, pattern=r"\A[^\0]*\Z")]
Text: TypeAlias = Annotated[str, Meta(max_length=MAX_TEXT_LENGTH)]
Word: TypeAlias = Annotated[str, Meta(max_length=MAX_TEXT_LENGTH, pattern=r"\A(?=\s*\S)[^\0\ud800-\udfff]*\Z")]
"""A text that is not blank, and that a database stores."""

# A newer agent may report more than these shapes have, and what the database cannot store of that would block all
# reports: it is left out.
_Cause: Any = TypedDict(
    "_Cause",
    {
        **dict.fromkeys(CAUSE_NUMBERS, Count | None),  # type: ignore[misc]  # its names are in tables
        **dict.fromkeys(CAUSE_WORDS, Word | None),
        **dict.fromkeys(CAUSE_TEXTS, Text | None),
    },
    total=False,
)


class _Process(TypedDict, total=False):
    """What is parsed one by one stands beside these: `doing`, `course`, and the runner's reports."""

    name: Required[Annotated[str, Meta(min_length=1, max_length=80, pattern=r"\A[^\0]*\Z")]]
    state: Required[ProcessState]
    rank: Int4 | None
    pid: Int4 | None
    exitCode: Int4 | None
    endedAt: Number | None
    left: bool | None
    asked: bool | None
    stillSince: Number | None
    cause: _Cause | None


class _Port(TypedDict, total=False):
    port: Required[Annotated[int, Meta(ge=-65535, le=65535)]]
    holder: Word | None


_Usage: Any = TypedDict(
    "_Usage",
    {
        **dict.fromkeys(USAGE_FIELDS, Number | None),  # type: ignore[misc]
        PORTS_KEY: Annotated[list[_Port], Meta(max_length=MAX_PORTS)],
    },
    total=False,
)


class _Worker(Struct, rename="camel"):
    id: Key = ""
    token: Key = ""
    incarnation: Key = ""
    sequence: Count = 0
    generation: Count = 0
    process: _Process | None = None
    usage: _Usage | None = None
    pulse: Any = None
    telemetry: Any = UNSET
    hosted: Any = None


class _Heartbeat(Struct, rename="camel"):
    workers: Annotated[list[dict[str, Any]], Meta(max_length=MAX_WORKERS)]
    wait_seconds: Annotated[float, Meta(ge=0, le=DAY_SECONDS)] | None = None


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
    try:
        found = msgspec.convert(body, _Heartbeat)
        return found.wait_seconds or 0.0, [_parse_entry(item) for item in found.workers]
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None


def _parse_entry(item: Mapping[str, Any]) -> HeartbeatEntry:
    worker = msgspec.convert(item, _Worker)
    process: dict[str, Any] | None = dict(worker.process) if worker.process else None
    if process:
        cause = process.get("cause") or {}
        for name in CAUSE_TEXTS:
            if (text := cause.pop(name, None)) is not None:
                cause[name] = sanitize.sanitize_text(text)
        reported = item["process"]
        process |= {**runner_reports.parse_extras(reported), **_read_doing(reported), **_read_course(reported)}
    return HeartbeatEntry(
        worker.id, worker.token, worker.incarnation, worker.sequence, worker.generation, process, worker.usage or {},
        untrusted.PULSE(worker.pulse),
        telemetry_reports.parse_sample(worker.telemetry) if worker.telemetry is not UNSET else None,
        *_read_hosted(worker.hosted),
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
