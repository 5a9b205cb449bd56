"""Cache of results that are the same for all requests within some seconds."""

from collections.abc import Callable, Hashable
from threading import Lock
from time import monotonic
from typing import Any, TypeVar

T = TypeVar("T")

MOST = 256
_lock = Lock()
_known: dict[Hashable, tuple[float, Any]] = {}


def fresh(key: Hashable, seconds: float, make: Callable[[], T]) -> T:
    """Return what `make` returned for `key` at most `seconds` ago, or call it."""
    with _lock:
        since, value = _known.get(key, (0.0, None))
        if since and monotonic() - since < seconds:
            found: T = value
            return found
    made = make()
    with _lock:
        if len(_known) >= MOST:
            _known.clear()
        _known[key] = monotonic(), made
    return made


def forget() -> None:
    with _lock:
        _known.clear()
