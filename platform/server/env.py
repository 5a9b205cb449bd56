"""Reads settings from environment variables. Imports little: the supervisor checks them before it starts anything."""

import logging
import math
import os
import re
import secrets
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, tzinfo
from functools import partial
from importlib.util import find_spec
from ipaddress import ip_network
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from fermi.engines import isolation
from fermi.jobs.spec import DEFAULT_MASTER_PORT

log = logging.getLogger(__name__)

PIP_INSTALL = f"{sys.executable} -m pip install"


def read_flag(name: str, *, default: bool = False) -> bool:
    """Return whether a variable is on: anything but 0, no, false and off is."""
    value = os.environ.get(name, "")
    return value.lower() not in {"0", "no", "false", "off"} if value else default


class InvalidSettingError(SystemExit):
    """A variable has an invalid value. The process that reads it ends with this sentence, for the operator, and exit
    code 1."""


def read_choice(name: str, allowed: Sequence[str]) -> str:
    """Return the value, one of `allowed`; the first of them is the default. Raise InvalidSettingError."""
    value = os.environ.get(name) or allowed[0]
    if value not in allowed:
        raise InvalidSettingError(f"{name} must be one of {', '.join(allowed)}, not {value!r}.")
    return value


def read_seconds(name: str, default: float) -> float:
    """Return a number of seconds greater than 0. Raise InvalidSettingError."""
    text = os.environ.get(name) or str(default)
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise InvalidSettingError(f"{name} must be a number of seconds greater than 0, not {text!r}.")
    return value


def has_trace_collector() -> bool:
    """Return True if OpenTelemetry's variables name a collector and the packages to export to it are installed; log a
    warning where only the packages are missing."""
    asked = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") or os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT")
    if not asked or read_flag("OTEL_SDK_DISABLED") or os.environ.get("OTEL_TRACES_EXPORTER") == "none":
        return False
    try:
        there = find_spec("opentelemetry.exporter.otlp.proto.http") is not None
    except ModuleNotFoundError:
        there = False
    if not there:
        packages = "'opentelemetry-sdk>=1.45,<2' 'opentelemetry-exporter-otlp-proto-http>=1.45,<2'"
        log.warning(f"a collector of traces is named, and nothing is sent to it: {PIP_INSTALL} {packages}")
    return there


def read_folders(name: str, default: str = "") -> list[str]:
    """Return colon-separated absolute folders, with ~ expanded for the platform's user. Raise InvalidSettingError for a
    relative one."""
    found = [os.path.expanduser(path) for path in os.environ.get(name, default).split(os.pathsep) if path]
    for path in found:
        if not os.path.isabs(path) or os.path.normpath(path) == "/":
            raise InvalidSettingError(f"{name} must be absolute folders below /, separated by colons, not {path!r}.")
    return found


def read_words(name: str) -> list[str]:
    """Return comma-separated words, without empty ones."""
    return [word.strip() for word in os.environ.get(name, "").split(",") if word.strip()]


def read_issuers(name: str, default: str) -> list[str]:
    """Return comma-separated addresses of issuers, https or of this machine; none for an empty value. Raise
    InvalidSettingError."""
    issuers = [word.strip() for word in os.environ.get(name, default).split(",") if word.strip()]
    for issuer in issuers:
        parts = urlsplit(issuer)
        is_local = parts.scheme == "http" and parts.hostname in ("localhost", "127.0.0.1", "::1")
        if not (is_local or (parts.scheme == "https" and parts.hostname)) or parts.query or parts.fragment:
            raise InvalidSettingError(f"{name} must be https addresses such as {default}, not {issuer!r}.")
    return issuers


def read_secret_key(data: Path) -> str:
    """Return FERMI_SECRET_KEY, else the key stored in the data directory, which is created by the first process that
    needs it.

    It is written completely under a name of its own and then linked, so that of several processes that start together
    one wins and all read the same whole key.
    """
    if key := os.environ.get("FERMI_SECRET_KEY"):
        return key
    path = data / "secret_key"
    if not path.exists():
        data.mkdir(parents=True, exist_ok=True)
        mine = path.with_name(f".secret_key.{os.getpid()}.{secrets.token_hex(4)}")
        mine.touch(mode=0o600)
        mine.write_text(secrets.token_urlsafe(50))
        try:
            os.link(mine, path)
        except FileExistsError:
            pass
        finally:
            mine.unlink()
    return path.read_text()


RECONNECT_SECONDS = 2.0
"""Seconds after which the pool stops trying by itself to reconnect: its intervals grow, so that a minute without a
database would become two. Requesting a connection makes it try at once."""


CONNECT_OPTIONS = {"connect_timeout": "5", "tcp_user_timeout": "10000"}
"""Timeouts (in seconds, and milliseconds) after which a server that does not answer is given up: the system's own are
minutes. Connection options of libpq (PostgreSQL's documentation, "Parameter Key Words"); those of the URL take
precedence."""


def parse_postgres_url(url: str) -> dict[str, Any]:
    """Return the DATABASES entry for a PostgreSQL URL. Raise InvalidSettingError for another scheme.

    The query string becomes connection options; its `host` may be a folder with a socket.
    """
    parts = urlsplit(url)
    if parts.scheme not in {"postgres", "postgresql"}:
        raise InvalidSettingError(f"DATABASE_URL must begin with postgresql://, not {parts.scheme}://")
    options: dict[str, Any] = dict(parse_qsl(parts.query))
    return {
        "ENGINE": "apps.common.postgresql",
        "NAME": unquote(parts.path.lstrip("/")),
        "USER": unquote(parts.username or options.pop("user", "")),
        "PASSWORD": unquote(parts.password or options.pop("password", "")),
        "HOST": parts.hostname or options.pop("host", ""),
        "PORT": str(parts.port or ""),
        "CONN_HEALTH_CHECKS": True,  # 60 µs; a restart of PostgreSQL would fail a request for each that is kept
        "OPTIONS": {
            **CONNECT_OPTIONS,
            **options,
            "pool": {"min_size": 1, "max_size": 20, "timeout": 1, "reconnect_timeout": RECONNECT_SECONDS},
        },
    }


def make_celery_url(redis_url: str) -> str:
    """Return the broker's URL in Celery's spelling, whose Unix socket transport has a scheme of its own."""
    return redis_url.replace("unix://", "redis+socket://", 1) if redis_url.startswith("unix://") else redis_url


def read_count(name: str, default: int) -> int:
    """Return a whole number of 1 or more. Raise InvalidSettingError."""
    text = os.environ.get(name) or str(default)
    if not text.isdecimal() or not 0 < int(text) < 2**31:
        raise InvalidSettingError(f"{name} must be a whole number greater than 0, not {text!r}.")
    return int(text)


def read_web_processes(name: str) -> int | None:
    """Return the number of web processes, 1 to 64; None (`auto`): as many as needed. Raise InvalidSettingError."""
    text = os.environ.get(name) or "auto"
    if text == "auto":
        return None
    if not text.isdecimal() or not 0 < int(text) <= 64:
        raise InvalidSettingError(f"{name} must be auto or a whole number from 1 to 64, not {text!r}.")
    return int(text)


def read_days(name: str) -> int:
    """Return a number of days; 0, the default, means for ever. Raise InvalidSettingError."""
    return read_count(name, default=1) if os.environ.get(name, "0") not in ("", "0") else 0


def read_limit(name: str, default: int) -> int:
    """Return a whole number; 0 means no limit. Raise InvalidSettingError."""
    return 0 if os.environ.get(name) == "0" else read_count(name, default)


def read_port_range(name: str, default: str) -> range:
    """Return a range of ports such as `29500-32767`, both ends included. Raise InvalidSettingError."""
    text = os.environ.get(name) or default
    low, _, high = text.partition("-")
    if not (low.isdecimal() and high.isdecimal() and 1024 <= int(low) <= int(high) <= 65535):
        raise InvalidSettingError(f"{name} must be two ports from 1024 to 65535 such as {default}, not {text!r}.")
    return range(int(low), int(high) + 1)


def read_zone(name: str) -> tzinfo:
    """Return a time zone, by default UTC. Raise InvalidSettingError."""
    text = os.environ.get(name) or "UTC"
    try:
        return UTC if text == "UTC" else ZoneInfo(text)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise InvalidSettingError(f"{name} must be a time zone such as Asia/Shanghai, not {text!r}.") from None


def read_files_location(name: str) -> str:
    """Return an absolute folder or `s3://bucket/prefix`; "" = the platform's own folder. Raise InvalidSettingError."""
    text = os.environ.get(name, "").rstrip("/")
    if not text:
        return ""
    protocol, found, bucket = text.partition("://")
    if found:
        if protocol != "s3" or not bucket or ".." in bucket.split("/"):
            raise InvalidSettingError(f"{name} must be a folder or s3://bucket/prefix, not {text!r}.")
        if find_spec("s3fs") is None:
            raise InvalidSettingError(f"{name} names object storage, which takes: {PIP_INSTALL} 's3fs>=2026.9'")
        return text
    if not Path(text).is_absolute():
        raise InvalidSettingError(f"{name} must be an absolute path or s3://bucket/prefix, not {text!r}.")
    return text


def read_proxy_host(name: str) -> str:
    """Return the host name under which environments are proxied, `doors.example.org`, perhaps with a port; "" without
    one. Raise InvalidSettingError where it is the console's own host or a parent of it: they would share cookies."""
    text = os.environ.get(name, "").strip().lower().rstrip(".")
    if not text:
        return ""
    host, _, port = text.partition(":")
    labels = host.split(".")
    if not all(re.fullmatch("[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", label) for label in labels) or (
        port and not (port.isdecimal() and 0 < int(port) < 65536)
    ):
        raise InvalidSettingError(f"{name} must be a host name such as doors.example.org, not {text!r}.")
    console = urlsplit(os.environ.get("FERMI_PUBLIC_URL", "")).hostname or ""
    if console == host or console.endswith(f".{host}"):
        raise InvalidSettingError(
            f"{name} must not be the console's own host or one above it ({console}): environments live below it."
        )
    return text


def read_trusted_proxies(name: str) -> list[str]:
    """Return comma-separated addresses and networks of trusted proxies. By default the loopback ones where
    FERMI_PUBLIC_URL says that a proxy stands in front, else none. Raise InvalidSettingError."""
    texts = read_words(name) or (["127.0.0.0/8", "::1"] if os.environ.get("FERMI_PUBLIC_URL") else [])
    for text in texts:
        try:
            ip_network(text)
        except ValueError:
            raise InvalidSettingError(
                f"{name} must be addresses and networks such as 10.0.0.0/8, not {text!r}."
            ) from None
    return texts


READERS: dict[str, Callable[[str], Any]] = {
    "FERMI_DOOR_HOST": read_proxy_host,
    "FERMI_FILES": read_files_location,
    "FERMI_CACHE_MAX_GB": partial(read_limit, default=200),
    "FERMI_CARRIED_DATA_GB": partial(read_count, default=10),
    "FERMI_CARRIED_FOLDER_GB": partial(read_count, default=20),
    "FERMI_CARRIED_TASK_GB": partial(read_count, default=100),
    "FERMI_EXCHANGE_ISSUERS": partial(
        read_issuers, default="https://token.actions.githubusercontent.com,https://gitlab.com"
    ),
    "FERMI_FILES_MAX_FILE_GB": partial(read_count, default=512),
    "FERMI_CODE_MAX_FILES": partial(read_count, default=50_000),
    "FERMI_CODE_KEEP_DAYS": partial(read_count, default=30),
    "FERMI_CODE_MAX_FILE_MB": partial(read_count, default=100),
    "FERMI_CODE_MAX_MB": partial(read_count, default=512),
    "FERMI_ISOLATION": partial(read_choice, allowed=isolation.MODES),
    "FERMI_LOG": partial(read_choice, allowed=("lines", "json")),
    "FERMI_LOG_LEVEL": partial(read_choice, allowed=("INFO", "DEBUG", "WARNING", "ERROR", "CRITICAL")),
    "FERMI_LOG_ZONE": read_zone,
    "FERMI_MASTER_PORTS": partial(read_port_range, default=f"{DEFAULT_MASTER_PORT}-32767"),
    "FERMI_PREFLIGHT_PATIENCE": partial(read_seconds, default=12.0),
    "FERMI_RATE_LIMIT": partial(read_limit, default=1200),
    "FERMI_RATE_LIMIT_ANONYMOUS": partial(read_limit, default=120),
    "FERMI_TASKS_KEEP_DAYS": read_days,
    "FERMI_TOKEN_MAX_DAYS": read_days,
    "FERMI_TASK_READS": partial(read_folders, default=os.pathsep.join(isolation.DEFAULT_READ_FOLDERS)),
    "FERMI_TASK_WRITES": read_folders,
    "FERMI_TRUSTED_PROXIES": read_trusted_proxies,
    "FERMI_WARM_MINUTES": partial(read_seconds, default=30.0),
    "FERMI_WEB": read_web_processes,
    "FERMI_WORKER_HEARTBEAT": partial(read_seconds, default=5.0),
    "FERMI_WORKER_LOST": partial(read_seconds, default=15.0),
}
"""Variables whose values are validated, and what reads each."""


def read_setting(name: str) -> Any:
    """Return a variable's value. Raise InvalidSettingError."""
    return READERS[name](name)


def check_settings() -> None:
    """Validate all variables. Raise InvalidSettingError for the first invalid one."""
    for name in READERS:
        read_setting(name)
    if url := os.environ.get("DATABASE_URL"):
        parse_postgres_url(url)
