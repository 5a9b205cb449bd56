"""Browsers in which somebody is signed in."""

from urllib.parse import quote

from fermi.client.pagination import Listing
from fermi.client.transport import Transport
from fermi.client.types import EndedAccess, SessionItem


class Sessions:
    """The caller's sessions in browsers; with `username`, another person's, which needs an administrator."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self, username: str | None = None) -> Listing[SessionItem]:
        return Listing(self._transport, _path(username), {})

    def end_session(self, session_id: str, username: str | None = None) -> None:
        """End one session. Raise NotFoundError for one that is not there."""
        self._transport.call("DELETE", f"{_path(username)}/{quote(session_id)}")

    def end_all_sessions(self, username: str | None = None, *, tokens: bool = False) -> EndedAccess:
        """Sign out everywhere, and with `tokens` revoke all API tokens too, also the one in use. Return how many there
        were. Tasks go on."""
        return self._transport.call("POST", f"{_path(username)}/end", json={"tokens": tokens})


def _path(username: str | None) -> str:
    return "/sessions" if username is None else f"/people/{quote(username)}/sessions"
