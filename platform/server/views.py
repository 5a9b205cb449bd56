"""Health, and the console's one page."""

import logging
from collections.abc import Callable

import redis
from django.conf import settings
from django.db import DatabaseError, connection
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import ensure_csrf_cookie
from django.views.decorators.http import require_safe

log = logging.getLogger(__name__)


@never_cache
@require_safe
def healthz(request: HttpRequest) -> HttpResponse:
    """Liveness: this process answers."""
    return JsonResponse({"status": "ok"})


@never_cache
@require_safe
def readyz(request: HttpRequest) -> HttpResponse:
    """Readiness: what this process depends on answers too; 503 names what does not."""
    parts = {name: _answers(name, check) for name, check in _CHECKS.items()}
    ready = all(parts.values())
    body = {"status": "ok" if ready else "unavailable", "parts": parts}
    return JsonResponse(body, status=200 if ready else 503)


def _answers(name: str, check: Callable[[], object]) -> bool:
    try:
        check()
    except (DatabaseError, redis.RedisError, OSError) as error:
        log.warning("not ready: %s: %s", name, error)
        return False
    return True


def _database() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")


def _broker() -> None:
    with redis.from_url(settings.REDIS_URL, socket_connect_timeout=2, socket_timeout=2) as client:
        client.ping()


_CHECKS: dict[str, Callable[[], object]] = {"database": _database, "broker": _broker}


@never_cache
@require_safe
@ensure_csrf_cookie
def console(request: HttpRequest) -> HttpResponse:
    """The page for every address the console routes itself; its script reads the path."""
    try:
        return HttpResponse((settings.FRONTEND_DIST / "index.html").read_bytes())
    except FileNotFoundError:
        text = "The console has not been built yet: run `make up`, or `npm run build` in frontend/.\n"
        return HttpResponse(text, status=503, content_type="text/plain; charset=utf-8")
