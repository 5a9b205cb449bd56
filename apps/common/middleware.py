"""Gives every request an id, and every log line the id of its request."""

import logging
from collections.abc import Awaitable, Callable

from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest, HttpResponse
from django.utils.decorators import sync_and_async_middleware

from apps.common import request_id

HEADER = "X-Request-ID"


@sync_and_async_middleware
def RequestIdMiddleware(  # noqa: N802 - named as Django's own are
    get_response: Callable[[HttpRequest], HttpResponse] | Callable[[HttpRequest], Awaitable[HttpResponse]],
) -> Callable[[HttpRequest], HttpResponse] | Callable[[HttpRequest], Awaitable[HttpResponse]]:
    """Takes X-Request-ID from the caller or makes one; answers with the same header."""
    if iscoroutinefunction(get_response):

        async def amiddleware(request: HttpRequest) -> HttpResponse:
            value = request_id.begin(request.headers.get(HEADER))
            response = await get_response(request)
            response.headers[HEADER] = value
            return response

        return amiddleware

    def middleware(request: HttpRequest) -> HttpResponse:
        value = request_id.begin(request.headers.get(HEADER))
        response = get_response(request)
        response.headers[HEADER] = value  # type: ignore[union-attr]
        return response  # type: ignore[return-value]

    return middleware


class RequestIdFilter(logging.Filter):
    """Adds `request_id` to each record; empty outside a request."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.request_id = request_id.current()
        return True
