"""The id that ties an answer, its log lines and its audit events together."""

import logging
import re
import secrets
from contextvars import ContextVar

_current: ContextVar[str] = ContextVar("request_id", default="")
_SAFE = re.compile(r"[A-Za-z0-9._-]{8,64}")


def current() -> str:
    """Empty outside a request."""
    return _current.get()


def begin(offered: str | None) -> str:
    """Keeps the caller's id when it is safe to log, else makes one."""
    value = offered if offered and _SAFE.fullmatch(offered) else secrets.token_hex(8)
    _current.set(value)
    return value


class Filter(logging.Filter):
    """Adds `request_id` to each record; empty outside a request."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.request_id = current()
        return True
