"""Events as syslog messages (RFC 5424): over TCP and TLS with octet counting (RFC 6587 3.4.1, RFC 5425), over UDP one
in each datagram (RFC 5426).

Syslog has no answers. Each batch has a connection of its own, and its events count as received when the receiver has
closed that after them, as it does when it has read all. Of one that does not close within CLOSE_SECONDS, it is enough
that its system acknowledged every byte. Over UDP events count when they were sent.
"""

import fcntl
import re
import socket
import ssl
import struct
import termios
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC
from typing import Any
from urllib.parse import urlsplit

from apps.audit_stream.receivers import MAX_DATAGRAM_BYTES, MAX_EVENT_BYTES, ReceiverError, encode_event

CONNECT_SECONDS, SEND_SECONDS, CLOSE_SECONDS = 5.0, 10.0, 2.0
POLL_SECONDS = 0.01
PRIORITY = 13 * 8 + 6
"""Facility 13 ("log audit"), severity 6 ("informational")."""
MAX_HOST_LENGTH, MAX_MSGID_LENGTH = 255, 32


def send_syslog(address: str, events: Sequence[dict[str, Any]], *, ca_file: str = "") -> None:
    """Send the events to `tcp://`, `tls://` or `udp://host:port`. Raises ReceiverError unless they count as
    received."""
    parts = urlsplit(address)
    where = (parts.hostname or "", parts.port or 0)
    try:
        if parts.scheme == "udp":
            _send_datagrams(where, [format_message(event, MAX_DATAGRAM_BYTES) for event in events])
        else:
            messages = [format_message(event, MAX_EVENT_BYTES) for event in events]
            with socket.create_connection(where, timeout=CONNECT_SECONDS) as plain:
                _send_stream(_wrap_tls(plain, where[0], ca_file) if parts.scheme == "tls" else plain, messages)
    except (OSError, ValueError) as error:
        raise ReceiverError(str(error) or type(error).__name__) from error


def _send_datagrams(where: tuple[str, int], messages: Sequence[bytes]) -> None:
    family, kind, protocol, _, target = socket.getaddrinfo(*where, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, protocol) as opened:
        opened.settimeout(SEND_SECONDS)
        opened.connect(target)  # so that a refusal is known
        for message in messages:
            opened.send(message)


def _wrap_tls(plain: socket.socket, host: str, ca_file: str) -> ssl.SSLSocket:
    return ssl.create_default_context(cafile=ca_file or None).wrap_socket(plain, server_hostname=host)


def _send_stream(opened: socket.socket, messages: Sequence[bytes]) -> None:
    with opened:
        opened.settimeout(SEND_SECONDS)
        deadline = time.monotonic() + SEND_SECONDS
        opened.sendall(b"".join(b"%d %b" % (len(message), message) for message in messages))
        while _count_unacknowledged(opened):
            if time.monotonic() > deadline:
                raise ReceiverError(f"nothing is acknowledged within {SEND_SECONDS:.0f} s")
            time.sleep(POLL_SECONDS)
        _await_close(opened)


def _count_unacknowledged(opened: socket.socket) -> int:
    """Return how many bytes the receiver's system has not acknowledged (tcp(7), SIOCOUTQ)."""
    answer = fcntl.ioctl(opened.fileno(), termios.TIOCOUTQ, struct.pack("i", 0))
    return int(struct.unpack("i", answer)[0])


def _await_close(opened: socket.socket) -> None:
    """Say that no more follows, and wait for at most CLOSE_SECONDS until the receiver closes. Raises OSError where it
    resets the connection, which it does if it closed without reading all."""
    opened.settimeout(CLOSE_SECONDS)
    deadline = time.monotonic() + CLOSE_SECONDS
    with suppress(TimeoutError):
        if isinstance(opened, ssl.SSLSocket):
            with suppress(ssl.SSLError):  # it may close without TLS's own farewell
                opened.unwrap()
        opened.shutdown(socket.SHUT_WR)
        while time.monotonic() < deadline and opened.recv(4096):
            pass


def format_message(event: dict[str, Any], max_bytes: int) -> bytes:
    """Return the event as a message of RFC 5424: its time is the event's, its MSGID the action, its text the line of
    the export."""
    at = event["at"].astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    host = _clean_word(socket.gethostname(), MAX_HOST_LENGTH)
    header = f"<{PRIORITY}>1 {at} {host} fermi - {_clean_word(event['action'], MAX_MSGID_LENGTH)} - "
    return header.encode() + encode_event(event, max_bytes - len(header))


def _clean_word(text: str, max_length: int) -> str:
    """Return the printable ASCII of a text, as fields of a header need it; `-` stands for none."""
    return re.sub(r"[^\x21-\x7e]", "", text)[:max_length] or "-"
