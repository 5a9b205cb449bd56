"""Keeps one backend for each connection."""

import json
from collections.abc import Callable, Mapping
from functools import lru_cache, wraps
from typing import Any, TypeVar

Connected = TypeVar("Connected")


def cache_by_connection(connect: Callable[[dict[str, Any]], Connected]) -> Callable[[Mapping[str, Any]], Connected]:
    """Decorate a function that connects: within a process, equal connections give the same object."""

    @lru_cache
    def connect_once(key: str) -> Connected:
        return connect(json.loads(key))

    @wraps(connect)
    def find(connection: Mapping[str, Any]) -> Connected:
        return connect_once(json.dumps(connection, sort_keys=True))

    return find
