"""Requests to identity providers: bounded in time and size, never redirected, never to link-local addresses."""

import ipaddress
import socket
import time
from typing import Any
from urllib.parse import urlsplit

import requests
import urllib3

TIMEOUT_SECONDS = 5.0
MAX_ANSWER_SECONDS = 15.0
MAX_ANSWER_BYTES = 1 << 20
LOCAL_NAMES = frozenset(("localhost", "127.0.0.1", "::1"))


class AddressRefusedError(requests.ConnectionError):
    """The address is one that no identity provider has."""


class ProviderSession(requests.Session):
    """A session whose requests time out, follow no redirect, use no proxy of the environment's `.netrc`, and read at
    most MAX_ANSWER_BYTES, for at most MAX_ANSWER_SECONDS."""

    def __init__(self) -> None:
        super().__init__()
        self.auth = _add_nothing  # else requests reads ~/.netrc

    def request(self, method: Any, url: Any, *args: Any, **options: Any) -> requests.Response:
        """Return the whole answer. Raises requests.RequestException."""
        check_address(str(url))
        options.update(timeout=TIMEOUT_SECONDS, allow_redirects=False, stream=True)
        response = super().request(method, url, *args, **options)
        response._content = _read_bounded(response, time.monotonic() + MAX_ANSWER_SECONDS)
        if response.is_redirect:
            raise requests.ConnectionError(f"status {response.status_code}: redirects are not followed")
        return response


def _read_bounded(response: requests.Response, deadline: float) -> bytes:
    """Return the body. Each read returns what has come, so that an answer in small pieces ends at the deadline, a time
    of the monotonic clock. Raises requests.ConnectionError."""
    content = bytearray()
    try:
        while chunk := response.raw.read1(65_536, decode_content=True):
            content += chunk
            if len(content) > MAX_ANSWER_BYTES:
                raise requests.ConnectionError(f"more than {MAX_ANSWER_BYTES} bytes")
            if time.monotonic() > deadline:
                raise requests.ConnectionError(f"more than {MAX_ANSWER_SECONDS:.0f} seconds")
    except urllib3.exceptions.HTTPError as error:
        raise requests.ConnectionError(type(error).__name__) from error
    finally:
        response.close()
    return bytes(content)


def check_address(url: str) -> None:
    """Raise AddressRefusedError for addresses that are not https (http: this machine's own names alone), and for names
    that resolve to link-local (metadata of clouds), multicast or unspecified addresses, or to this machine by another
    name. Providers in private networks are usual, and allowed."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if host in LOCAL_NAMES and parts.scheme in ("http", "https"):
        return
    if parts.scheme != "https" or not host:
        raise AddressRefusedError(f"{parts.scheme}://{host} is not https")
    try:
        found = socket.getaddrinfo(host, parts.port or 443, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise requests.ConnectionError(f"{host} cannot be resolved") from error
    for entry in found:
        address = ipaddress.ip_address(str(entry[4][0]).partition("%")[0])
        address = getattr(address, "ipv4_mapped", None) or address
        if address.is_link_local or address.is_loopback or address.is_multicast or address.is_unspecified:
            raise AddressRefusedError(f"{host} resolves to {address}")


def _add_nothing(request: requests.PreparedRequest) -> requests.PreparedRequest:
    return request
