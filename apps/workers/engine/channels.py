"""Streams from an agent's host to a process that connects to an environment there, or next to a rank. The host cannot
be reached, so its agent connects to the platform:

    process: listens on a port of its own, stores its address (Channel) ──heartbeat──▶ agent
    process ◀──TCP, the channel's id as first line── the web process that the WebSocket reaches ◀──WebSocket── agent

The agent may reach any web process, and any process may wait. The port accepts the one connection that knows the id,
for a few seconds, on an address that only the platform's own processes need to know (`FERMI_INTERNAL_ADDRESS`).
"""

import secrets
import socket
import time
from contextlib import suppress
from datetime import timedelta

from django.conf import settings
from django.db import transaction

from apps.common.clock import now
from apps.workers import revisions
from apps.workers.models import Channel, Worker
from apps.workers.services import host_runs

WAIT_SECONDS = 10.0
"""Timeout; an agent that listens connects at once."""
MAX_ID_LENGTH = 100


def wait_for_stream(worker: str, machine: str, run: str) -> socket.socket:
    """Return a stream from the worker's host, as long as that is this machine: to a dev environment's run, or next to
    the rank of an attempt that the worker runs. Raises TimeoutError and LookupError."""
    with socket.create_server((settings.INTERNAL_ADDRESS, 0), family=_get_family()) as listening:
        host, port = listening.getsockname()[:2]
        channel = _create_channel(worker, machine, run, f"{host}|{port}")
        try:
            return _accept_stream(listening, channel, time.monotonic() + WAIT_SECONDS)
        finally:
            Channel.objects.filter(pk=channel).delete()


def claim_channel(worker: str, channel: str) -> tuple[str, int] | None:
    """Return the address at which the channel is waited for; None if it is not, and for the second request."""
    row = Channel.objects.filter(pk=channel, worker=worker, until__gt=now()).first()
    if row is None or not Channel.objects.filter(pk=channel).delete()[0]:
        return None
    host, _, port = row.address.rpartition("|")
    return host, int(port)


def _create_channel(worker: str, machine: str, run: str, address: str) -> str:
    channel = secrets.token_urlsafe(32)
    with transaction.atomic():
        revision = revisions.take_next_revision()
        Channel.objects.filter(until__lt=now()).delete()
        if not Worker.objects.filter(pk=worker, machine=machine).exists():
            raise LookupError(worker)
        until = now() + timedelta(seconds=WAIT_SECONDS)
        Channel.objects.create(pk=channel, worker=worker, run=run, address=address, until=until)
        host_runs.update_host_orders(worker, revision)
    return channel


def _accept_stream(listening: socket.socket, channel: str, until: float) -> socket.socket:
    """Return the connection that knows the id. Raises TimeoutError."""
    while (left := until - time.monotonic()) > 0:
        listening.settimeout(left)
        stream, _ = listening.accept()
        with suppress(OSError):
            stream.settimeout(1.0)
            if secrets.compare_digest(_read_line(stream), channel.encode()):
                stream.settimeout(None)
                stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return stream
        stream.close()
    raise TimeoutError


def _read_line(stream: socket.socket) -> bytes:
    """Return the first line, without reading a byte after it. Raises OSError."""
    said = bytearray()
    while len(said) < MAX_ID_LENGTH:
        byte = stream.recv(1)
        if byte in (b"", b"\n"):
            break
        said += byte
    return bytes(said)


def _get_family() -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in settings.INTERNAL_ADDRESS else socket.AF_INET
