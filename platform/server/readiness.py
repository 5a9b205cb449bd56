"""Readiness: whether the database, the broker and the disk that a web process depends on accept writes. A database
whose primary was lost, and a broker that became a replica, still answer reads."""

import errno
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import redis
from django.conf import settings
from django.db import Error, connection

from apps.common import disks, pubsub, sql
from apps.common.clock import now
from apps.common.models import Written
from fermi.runner.files import read_json
from server import paths

log = logging.getLogger(__name__)

FRESH_SECONDS = 1.0
"""Seconds after a successful write during which the database is only read."""
_written = -FRESH_SECONDS


@dataclass(frozen=True, slots=True)
class ReadinessFault:
    """A part that is not ready, and the code of the reason."""

    part: str
    code: str


def list_faults() -> list[ReadinessFault]:
    """Return the parts that are not ready."""
    return [ReadinessFault(name, code) for name, check in PARTS.items() if (code := check())]


def read_supervisor_notes() -> list[dict[str, Any]]:
    """Return what the supervisor of `make up` noted in the last hour: `code`, `params` (among them `process`), `at` in
    unix seconds. Empty where there is no supervisor."""
    found = read_json(str(paths.get_notes_path(paths.get_run_dir(settings.DATA_DIR))))
    return found if isinstance(found, list) else []


def _check_database() -> str:
    global _written
    try:
        if time.monotonic() - _written < FRESH_SECONDS:
            with connection.cursor() as cursor:
                cursor.execute("SELECT 1")
            return ""
        if not Written.objects.filter(pk=1).update(at=now()):
            Written.objects.bulk_create([Written(pk=1, at=now())], ignore_conflicts=True)
        _written = time.monotonic()
        return ""
    except (Error, OSError) as error:
        _written = -FRESH_SECONDS
        known = sql.get_refusal_code(error) if isinstance(error, Error) else ""
        return _log_fault("database", error, known or "DATABASE_UNAVAILABLE")


def _check_broker() -> str:
    try:
        with redis.from_url(settings.REDIS_URL, socket_connect_timeout=2, socket_timeout=2) as client:
            client.set(f"{pubsub.CHANNEL_PREFIX}ready", 1, ex=60)
        return ""
    except redis.exceptions.ReadOnlyError as error:
        return _log_fault("broker", error, "BROKER_READ_ONLY")
    except redis.exceptions.OutOfMemoryError as error:
        return _log_fault("broker", error, "BROKER_FULL")
    except (redis.RedisError, OSError) as error:
        return _log_fault("broker", error, "BROKER_UNAVAILABLE")


def _check_disk() -> str:
    try:
        disks.check_writable(settings.DATA_DIR)
        return ""
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        return _log_fault("disk", error, "DATA_DISK_FULL" if full else "DATA_DISK_UNWRITABLE")


def _log_fault(part: str, error: Exception, code: str) -> str:
    log.warning("not ready: %s: %s: %s", part, code, error)
    return code


PARTS: dict[str, Callable[[], str]] = {"database": _check_database, "broker": _check_broker, "disk": _check_disk}
