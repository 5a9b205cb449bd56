"""JSON encoding that accepts every number a database returns."""

from typing import Any

import orjson

INT64_RANGE = range(-(2**63), 2**64)


def encode_json(data: Any, option: int = 0) -> bytes:
    """Return `data` as JSON. What orjson does not know becomes its string (lazy texts, UUIDs, paths). PostgreSQL
    returns 1e20 as an integer, which orjson refuses: it becomes a float again."""
    try:
        return orjson.dumps(data, default=str, option=option)
    except orjson.JSONEncodeError:
        return orjson.dumps(_narrow_integers(data), default=str, option=option)


def _narrow_integers(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _narrow_integers(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_narrow_integers(value) for value in data]
    if not isinstance(data, int) or data in INT64_RANGE:
        return data
    try:
        return float(data)
    except OverflowError:
        return str(data)
