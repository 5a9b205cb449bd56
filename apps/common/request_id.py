"""The id that connects an answer, its log lines and its audit events, and the address that a request came from."""

import logging
import re
import secrets
from contextvars import ContextVar

_current: ContextVar[str] = ContextVar("request_id", default="")
_address: ContextVar[str] = ContextVar("client_address", default="")
_SAFE = re.compile(r"[A-Za-z0-9._-]{8,64}")


def get_request_id() -> str:
    """Return the id of the current request; empty outside of one."""
    return _current.get()


def set_request_id(offered: str | None) -> str:
    """Set the current request's id: the caller's if it is safe to log, else a new one. Returns it."""
    value = offered if offered and _SAFE.fullmatch(offered) else secrets.token_hex(8)
    _current.set(value)
    return value


def get_client_address() -> str:
    """Return the address that the current request came from; empty outside of one."""
    return _address.get()


def set_client_address(address: str) -> None:
    """Set the address that the current request came from."""
    _address.set(address[:64])


class RequestIdFilter(logging.Filter):
    """Logging filter that adds `request_id` to each record; empty outside of a request."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.request_id = get_request_id()
        return True
