"""`/metrics` on a port of its own (`FERMI_METRICS_PORT`), which serves nothing else."""

import hmac
import ipaddress
import logging
import os
import threading
from collections.abc import Callable, Iterable
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from server.env import InvalidSettingError, read_flag

log = logging.getLogger(__name__)
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class _MetricsServer(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _QuietHandler(WSGIRequestHandler):
    timeout = 30  # seconds without a byte; each connection holds a thread

    def log_message(self, *about: Any) -> None:
        pass


def make_app(token: str, render: Callable[[], bytes | None]) -> Callable[[dict[str, Any], Any], Iterable[bytes]]:
    """Return a WSGI application that serves what `say` returns. An empty token: no authentication."""

    def app(environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        given = environ.get("HTTP_AUTHORIZATION", "").encode()
        if token and not hmac.compare_digest(given, f"Bearer {token}".encode()):
            start("401 Unauthorized", [("WWW-Authenticate", "Bearer"), ("Content-Length", "0")])
            return []
        if environ["PATH_INFO"] != "/metrics":
            start("404 Not Found", [("Content-Length", "0")])
            return []
        body = render()
        if body is None:
            start("503 Service Unavailable", [("Content-Length", "0")])
            return []
        start("200 OK", [("Content-Type", CONTENT_TYPE), ("Content-Length", str(len(body)))])
        return [body]

    return app


def choose_token(host: str, token: str, *, open_to_all: bool) -> str:
    """Return the token that the port requires; "" on loopback, or where the operator allows open access. Raise
    InvalidSettingError where a token is needed and none is set."""
    if open_to_all or ipaddress.ip_address(host).is_loopback:
        return ""
    if not token:
        raise InvalidSettingError(
            "FERMI_METRICS_BIND is no loopback address: set FERMI_METRICS_TOKEN, or FERMI_METRICS_OPEN=1."
        )
    return token


def serve_metrics() -> None:
    """Serve metrics in a thread where FERMI_METRICS_PORT is set. A port that is in use (by another web process on this
    machine) is logged, and the process continues. Raise InvalidSettingError for an invalid port or address."""
    port = os.environ.get("FERMI_METRICS_PORT", "")
    if not port:
        return
    host = os.environ.get("FERMI_METRICS_BIND") or "127.0.0.1"
    token = os.environ.get("FERMI_METRICS_TOKEN", "")
    try:
        app = make_app(choose_token(host, token, open_to_all=read_flag("FERMI_METRICS_OPEN")), _render)
        server = make_server(host, int(port), app, _MetricsServer, _QuietHandler)
    except ValueError:
        raise InvalidSettingError(
            f"FERMI_METRICS_PORT and FERMI_METRICS_BIND must be a port and an IPv4 address: {host} {port}."
        ) from None
    except OSError as error:
        log.warning("no metrics on %s:%s: %s", host, port, error)
        return
    threading.Thread(target=server.serve_forever, daemon=True, name="metrics").start()


def _render() -> bytes | None:
    """Return the metrics as text; None while the process is still starting."""
    from django.apps import apps
    from prometheus_client import generate_latest

    if not apps.ready:
        return None
    from server import metrics  # its models are there once Django is

    return generate_latest() + metrics.render_metrics_outside_request()
