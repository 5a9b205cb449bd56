"""Parse which processes hold memory in a dev environment, as `fermi.inside.memory_holders` reports them. Pure.

The answer is under the control of the environment's user: only values of the right shape are used, and none may be
large.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

MAX_ROWS = 50
MAX_GPUS = 32
MAX_TEXT_CHARS = 320
MAX_BYTES = 1 << 50
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def parse_holders(answer: Any) -> dict[str, Any]:
    """Return `gpus`, `kernels` and `holders` as they are stored. A kernel's `id` is Jupyter's, or its process' where
    that has none; `kernel` of a holder is such an id, empty for none."""
    answer = answer if isinstance(answer, Mapping) else {}
    kernels = {
        one["pid"]: one for one in map(_parse_kernel, _iterate_objects(answer, "kernels", MAX_ROWS)) if one["pid"]
    }
    holders = []
    for one in _iterate_objects(answer, "holders", MAX_ROWS):
        kernel = kernels.get(_parse_int(one.get("kernel")))
        holders.append({
            "pid": _parse_int(one.get("pid")), "name": _parse_text(one.get("name")),
            "since": _parse_timestamp(one.get("since")),
            "rss_bytes": _parse_size(one.get("rss_bytes")), "gpu_bytes": _parse_size(one.get("gpu_bytes")),
            "kernel": kernel["id"] if kernel else "",
        })  # fmt: skip
    return {
        "gpus": [_parse_gpu(one) for one in _iterate_objects(answer, "gpus", MAX_GPUS)],
        "kernels": list(kernels.values()),
        "holders": holders,
    }


def _parse_kernel(data: Mapping[str, Any]) -> dict[str, Any]:
    number, pid, started = data.get("id"), _parse_int(data.get("pid")), _parse_int(data.get("started"))
    name = number if isinstance(number, str) and _ID.fullmatch(number) else f"{pid}-{started}"
    notebook = _parse_text(data.get("notebook"))
    return {
        "id": name, "pid": pid, "started": started, "since": _parse_timestamp(data.get("since")),
        "name": notebook or _parse_text(data.get("python")).rpartition("/")[2] or name, "busy": data.get("busy") is
    True, }  # fmt: skip


def _parse_gpu(data: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "index": _parse_int(data.get("index")), "name": _parse_text(data.get("name")),
        "total_bytes": _parse_size(data.get("total_bytes")), "free_bytes": _parse_size(data.get("free_bytes")),
    }  # fmt: skip


def _iterate_objects(answer: Mapping[str, Any], name: str, max_items: int) -> Iterator[Mapping[str, Any]]:
    rows = answer.get(name)
    yield from (one for one in (rows if isinstance(rows, list) else ())[:max_items] if isinstance(one, Mapping))


def _parse_int(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 62 else 0


def _parse_size(value: Any) -> int:
    return min(_parse_int(value), MAX_BYTES)


def _parse_timestamp(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e11 else None


def _parse_text(value: Any) -> str:
    return value.replace("\0", "")[:MAX_TEXT_CHARS] if isinstance(value, str) else ""
