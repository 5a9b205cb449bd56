"""The part of `bench.profile` that runs inside Django: `python -m bench.profiled WHAT`."""

import cProfile
import pstats
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import django

django.setup()

from django.conf import settings  # noqa: E402
from django.core.handlers.base import BaseHandler  # noqa: E402
from django.db import connection  # noqa: E402
from django.http import HttpRequest  # noqa: E402
from django.test import RequestFactory  # noqa: E402

from bench.api import REQUESTS  # noqa: E402

REPETITIONS = 100
MAX_LINES = 40  # functions


def main(what: str) -> None:
    named = [request for name, request in REQUESTS.items() if name.startswith(what)]
    if not named and not what.startswith("/"):
        sys.exit(f"WHAT is one of {', '.join(map(repr, REQUESTS))}, or a path such as /api/v1/workers; it was {what!r}")
    method, path, body = named[0] if named else ("GET", what, b"")
    handler, made = BaseHandler(), _profile_requests(method, path, body)
    handler.load_middleware()

    def send_request() -> None:
        answer = handler.get_response(made())
        answer.close()
        if answer.status_code >= 300:
            sys.exit(f"{method} {path} was answered by {answer.status_code}: {getattr(answer, 'content', b'')[:500]!r}")

    _repeat(send_request, 5)
    began = time.process_time()
    _repeat(send_request, REPETITIONS)
    spent = (time.process_time() - began) / REPETITIONS
    statements = _print_statements(send_request)
    print(f"{method} {path}: {1e3 * spent:.2f} ms of processor time, {len(statements)} statements that took "
          f"{1e3 * sum(took for took, _ in statements):.2f} ms")  # fmt: skip
    for took, sql in statements:
        print(f"  {1e3 * took:6.2f} ms  {sql[:120]}")
    profile = cProfile.Profile()
    profile.runcall(_repeat, send_request, REPETITIONS)
    pstats.Stats(profile).strip_dirs().sort_stats("tottime").print_stats(MAX_LINES)


def _profile_requests(method: str, path: str, body: bytes) -> Callable[[], HttpRequest]:
    token = (Path(settings.DATA_DIR) / "token").read_text().strip()
    headers = {"Authorization": f"Bearer {token}", "Accept-Language": "en", "Host": "localhost"}
    factory = RequestFactory(headers=headers)
    return lambda: factory.generic(method, path, body, content_type="application/json")


def _repeat(action: Callable[[], None], times: int) -> None:
    for _ in range(times):
        action()


def _print_statements(action: Callable[[], None]) -> list[tuple[float, str]]:
    found: list[tuple[float, str]] = []

    def timed(execute: Callable[..., Any], sql: str, *rest: Any) -> Any:
        began = time.perf_counter()
        try:
            return execute(sql, *rest)
        finally:
            found.append((time.perf_counter() - began, sql))

    with connection.execute_wrapper(timed):
        action()
    return found


if __name__ == "__main__":
    main(sys.argv[1])
