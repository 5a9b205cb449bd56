"""What a heartbeat says and is answered."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

STATES = ("starting", "running", "exited")


@dataclass(frozen=True, slots=True)
class Beat:
    """One worker's part. `generation`: the newest one it has acted on; `process`: what it drives, None = nothing."""

    worker: str
    token: str
    incarnation: str
    sequence: int
    generation: int
    process: Mapping[str, Any] | None
    usage: Mapping[str, Any]


def read(body: Any) -> tuple[float, list[Beat]]:
    """Seconds that the answer may be held, and the beats. ValueError for anything that is not as it should be; the
    serializer says what."""
    if not isinstance(body, dict) or not isinstance(workers := body.get("workers"), list):
        raise ValueError("no workers")
    wait = body.get("waitSeconds") or 0
    if not isinstance(wait, int | float) or isinstance(wait, bool):
        raise ValueError("waitSeconds")
    return max(0.0, float(wait)), [_beat(item) for item in workers]


def _beat(item: Any) -> Beat:
    if not isinstance(item, dict):
        raise ValueError("a worker")
    process, usage = item.get("process"), item.get("usage") or {}
    if (process is not None and not _is_process(process)) or not isinstance(usage, dict):
        raise ValueError("process or usage")
    return Beat(
        _text(item, "id"), _text(item, "token"), _text(item, "incarnation"), _number(item, "sequence"),
        _number(item, "generation"), process, usage,
    )  # fmt: skip


def _is_process(found: Any) -> bool:
    return (
        isinstance(found, dict)
        and isinstance(found.get("name"), str)
        and 0 < len(found["name"]) <= 80
        and found.get("state") in STATES
        and all(_is(found.get(name), int) for name in ("rank", "pid", "exitCode"))
        and _is(found.get("endedAt"), int, float)
        and isinstance(found.get("left"), bool | None)
    )


def _is(value: Any, *kinds: type) -> bool:
    return value is None or (
        isinstance(value, kinds) and not isinstance(value, bool) and abs(cast(float, value)) < 2**53
    )


def _text(item: Mapping[str, Any], name: str) -> str:
    value = item.get(name, "")
    if not isinstance(value, str) or len(value) > 200 or "\0" in value:
        raise ValueError(name)
    return value


def _number(item: Mapping[str, Any], name: str) -> int:
    value = item.get(name, 0)
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) >= 2**53:
        raise ValueError(name)
    return value
