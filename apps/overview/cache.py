"""Cache of results that are the same for all requests within some seconds."""

from collections.abc import Callable, Hashable
from threading import Lock
from time import monotonic
from typing import Any, TypeVar

T = TypeVar("T")

MAX_ENTRIES = 256
_lock = Lock()
_entries: dict[Hashable, tuple[float, Any]] = {}


def get_or_compute(key: Hashable, seconds: float, make: Callable[[], T]) -> T:
    """Return what `make` returned for `key` at most `seconds` ago, or call it."""
    with _lock:
        since, value = _entries.get(key, (0.0, None))
        if since and monotonic() - since < seconds:
            found: T = value
            return found
    made = make()
    with _lock:
        if len(_entries) >= MAX_ENTRIES:
            _entries.clear()
        _entries[key] = monotonic(), made
    return made


def clear_cache() -> None:
    with _lock:
        _entries.clear()
