"""Parse which processes hold memory in a dev environment, as `fermi.inside.memory_holders` reports them. Pure.

The answer is under the control of the environment's user: only values of the right shape are used, and none may be
large.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

MAX_ROWS = 50
MAX_GPUS = 32
MAX_WORD = 320
MAX_BYTES = 1 << 50
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def read(said: Any) -> dict[str, Any]:
    """Return `gpus`, `kernels` and `holders` as they are stored. A kernel's `id` is Jupyter's, or its process' where
    that has none; `kernel` of a holder is such an id, empty for none."""
    said = said if isinstance(said, Mapping) else {}
    kernels = {one["pid"]: one for one in map(_kernel, _objects(said, "kernels", MAX_ROWS)) if one["pid"]}
    holders = []
    for one in _objects(said, "holders", MAX_ROWS):
        kernel = kernels.get(_whole(one.get("kernel")))
        holders.append({
            "pid": _whole(one.get("pid")), "name": _text(one.get("name")),
            "since": _moment(one.get("since")),
            "rss_bytes": _size(one.get("rss_bytes")), "gpu_bytes": _size(one.get("gpu_bytes")),
            "kernel": kernel["id"] if kernel else "",
        })  # fmt: skip
    return {
        "gpus": [_gpu(one) for one in _objects(said, "gpus", MAX_GPUS)],
        "kernels": list(kernels.values()),
        "holders": holders,
    }


def _kernel(one: Mapping[str, Any]) -> dict[str, Any]:
    number, pid, started = one.get("id"), _whole(one.get("pid")), _whole(one.get("started"))
    name = number if isinstance(number, str) and _ID.fullmatch(number) else f"{pid}-{started}"
    notebook = _text(one.get("notebook"))
    return {
        "id": name, "pid": pid, "started": started, "since": _moment(one.get("since")),
        "name": notebook or _text(one.get("python")).rpartition("/")[2] or name, "busy": one.get("busy") is True,
    }  # fmt: skip


def _gpu(one: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "index": _whole(one.get("index")), "name": _text(one.get("name")),
        "total_bytes": _size(one.get("total_bytes")), "free_bytes": _size(one.get("free_bytes")),
    }  # fmt: skip


def _objects(said: Mapping[str, Any], name: str, most: int) -> Iterator[Mapping[str, Any]]:
    rows = said.get(name)
    yield from (one for one in (rows if isinstance(rows, list) else ())[:most] if isinstance(one, Mapping))


def _whole(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 62 else 0


def _size(value: Any) -> int:
    return min(_whole(value), MAX_BYTES)


def _moment(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e11 else None


def _text(value: Any) -> str:
    return value.replace("\0", "")[:MAX_WORD] if isinstance(value, str) else ""
