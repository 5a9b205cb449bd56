"""Django middleware: request ids, error envelopes, ETags, and refusal of input that no database stores."""

import json
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from hashlib import blake2b
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.core.exceptions import DisallowedHost, ValidationError
from django.db import DatabaseError, DataError, InterfaceError
from django.http import HttpRequest, HttpResponse
from django.utils import translation
from django.utils.cache import get_conditional_response
from django.utils.decorators import sync_and_async_middleware

from apps.common import exception_handler, request_id, sql
from apps.common.bounds import MAX_DEPTH
from apps.common.errors import ApiError
from apps.common.renderers import render_json
from apps.common.texts import render_text

log = logging.getLogger(__name__)

REQUEST_ID_HEADER = "X-Request-ID"
API_PREFIXES = ("/api/", "/_allauth/")
"""Paths that programs request: an error there is never a page."""


@sync_and_async_middleware
def RequestIdMiddleware(  # noqa: N802 - named as Django's own are
    get_response: Callable[[HttpRequest], HttpResponse] | Callable[[HttpRequest], Awaitable[HttpResponse]],
) -> Callable[[HttpRequest], HttpResponse] | Callable[[HttpRequest], Awaitable[HttpResponse]]:
    """Take X-Request-ID from the request or make one; answer with the same header."""
    if iscoroutinefunction(get_response):

        async def amiddleware(request: HttpRequest) -> HttpResponse:
            value = request_id.set_request_id(request.headers.get(REQUEST_ID_HEADER))
            request_id.set_client_address(request.META.get("REMOTE_ADDR") or "")
            response = await get_response(request)
            response.headers[REQUEST_ID_HEADER] = value
            return response

        return amiddleware

    def middleware(request: HttpRequest) -> HttpResponse:
        value = request_id.set_request_id(request.headers.get(REQUEST_ID_HEADER))
        request_id.set_client_address(request.META.get("REMOTE_ADDR") or "")
        response = get_response(request)
        response.headers[REQUEST_ID_HEADER] = value  # type: ignore[union-attr]
        return response  # type: ignore[return-value]

    return middleware


def envelope_errors(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    """Replace every error page of Django with the error envelope, with DEBUG or without: unknown paths, errors while an
    answer is rendered, in an exception handler, or in other middleware."""

    def middleware(request: HttpRequest) -> HttpResponse:
        response = get_response(request)
        if response.status_code < 400 or not request.path.startswith(API_PREFIXES) or _is_json(response):
            return response
        response.close()
        with translation.override(translation.get_language_from_request(request)):
            return make_error_response(_make_page_error(request, response.status_code))

    return middleware


def add_etags(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    """Add an ETag to the API's answers to GET, and answer 304 without a body if the client has the same already: pages
    and scripts poll what rarely changes. Browsers send the header by themselves."""

    def middleware(request: HttpRequest) -> HttpResponse:
        response = get_response(request)
        if (
            request.method != "GET"
            or response.status_code != 200
            or response.streaming
            or not request.path.startswith("/api/")
            or not _is_json(response)
            or response.has_header("ETag")
        ):
            return response
        etag = f'W/"{blake2b(response.content, digest_size=12).hexdigest()}"'
        response.headers["ETag"] = etag
        response.headers.setdefault("Cache-Control", "private, no-cache")
        return get_conditional_response(request, etag=etag, response=response) or response

    return middleware


def _is_json(response: HttpResponse) -> bool:
    return response.headers.get("Content-Type", "").startswith("application/json")


def _make_page_error(request: HttpRequest, status: int) -> ApiError:
    """Return the error that a page with this status stands for."""
    try:
        request.get_host()
    except DisallowedHost:
        return ApiError(400, "HOST_NOT_ALLOWED", host=request.headers.get("Host", ""))
    return exception_handler.make_status_error(status, path=request.path)


def make_error_response(error: ApiError) -> HttpResponse:
    """Return the error envelope as a response."""
    headers = {"Content-Type": "application/json", **exception_handler.build_headers(error)}
    return HttpResponse(render_json(exception_handler.build_envelope(error)), status=error.status, headers=headers)


class UnstorableInputMiddleware:
    """Answer 400 for input that no database stores: U+0000 in texts (PostgreSQL), and in the operators' console
    selected rows whose key is invalid. The API itself names the field. Answer 503 while the database is unavailable,
    outside of the API."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if request.path.startswith("/_allauth/") and (error := _check_auth_body(request.body)):
            return make_error_response(error)
        if any("\0" in given for given in _list_inputs(request)):
            return _refuse_request("NUL_CHARACTER")
        return self._get_response(request)

    def process_view(
        self, request: HttpRequest, view: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> HttpResponse | None:
        if console := getattr(view, "model_admin", None):
            for key in request.POST.getlist(ACTION_CHECKBOX_NAME):
                try:
                    console.model._meta.pk.clean(key, None)
                except ValidationError as error:
                    return _refuse_request("FIELD_INVALID", detail=" ".join(error.messages))
        return None

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        """Answer errors in the operators' console for numbers that SQLite (OverflowError) or a column cannot hold."""
        if isinstance(error, DatabaseError | InterfaceError) and sql.get_refusal_code(error):
            log.warning("request refused: %s", error)
            known = exception_handler.to_api_error(error)
            return make_error_response(known) if request.path.startswith(API_PREFIXES) else _make_text_page(known)
        match = request.resolver_match
        if match and hasattr(match.func, "model_admin") and isinstance(error, OverflowError | DataError):
            log.exception("the database cannot hold this", exc_info=error)
            return _refuse_request("VALUE_NOT_STORABLE")
        return None


def _check_auth_body(body: bytes) -> ApiError | None:
    """Return the error for JSON that would make django-allauth fail: `json` recurses as deep as the brackets, and
    raises for long numbers."""
    if body.count(b"[") + body.count(b"{") > MAX_DEPTH:
        return ApiError(400, "BODY_TOO_DEEP", high=MAX_DEPTH)
    try:
        json.loads(body or b"{}")
    except ValueError as error:
        return ApiError(400, "PARSE_ERROR", detail=str(error)[:200])
    return None


def _list_inputs(request: HttpRequest) -> Iterator[str]:
    yield from request.COOKIES.values()  # an octal escape in quotes makes one
    if not request.path.startswith("/api/"):
        yield request.path
        for form in (request.GET, request.POST):
            for name, values in form.lists():
                yield from (name, *values)


def _refuse_request(code: str, **params: Any) -> HttpResponse:
    return _make_text_page(ApiError(400, code, **params))


def _make_text_page(error: ApiError) -> HttpResponse:
    [problem] = error.problems
    headers = {"Content-Type": "text/plain; charset=utf-8", **exception_handler.build_headers(error)}
    return HttpResponse(" ".join(render_text(problem.code, problem.params)), status=error.status, headers=headers)
