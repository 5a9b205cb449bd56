"""Turns every exception into the error envelope:

{"code": 409, "message": …, "error": "TASK_NOT_FINAL",
 "errors": [{"field": "", "error": "TASK_NOT_FINAL", "message": …, "hint": …}], "requestId": …}
"""

import logging
from collections.abc import Mapping
from typing import Any

from django.core.exceptions import BadRequest, PermissionDenied, RequestDataTooBig, SuspiciousOperation, ValidationError
from django.db import DatabaseError, DataError, IntegrityError, InterfaceError
from django.http import Http404, UnreadablePostError
from rest_framework import exceptions
from rest_framework.response import Response

from apps.common import request_id, sql
from apps.common.bounds import MAX_BODY_BYTES
from apps.common.errors import ApiError, limit_problems
from apps.common.texts import render_text
from fermi.jobs.errors import LaunchError
from fermi.jobs.spec import Problem

log = logging.getLogger(__name__)

CODES_BY_STATUS = {403: "FORBIDDEN", 404: "NO_SUCH_ADDRESS"}
"""Codes of answers that have only a status; other client errors are BAD_REQUEST."""

RETRY_AFTER_SECONDS = {"DATABASE_UNAVAILABLE": "1"}
"""Seconds after which a request may succeed."""


def handle_exception(error: Exception, context: dict[str, Any]) -> Response:
    """Return the error envelope for an exception in a view (REST framework's EXCEPTION_HANDLER)."""
    known = to_api_error(error).finish(context.get("request"))
    if isinstance(error, sql.DatabaseUnavailableError):
        log.warning("request refused: %s", error)  # how it went away was said once, with all that is known
    elif known.status >= 500 or isinstance(error, IntegrityError | DataError):
        log.exception("request failed", exc_info=error)
    response = Response(build_envelope(known), status=known.status, headers=build_headers(known))
    if header := getattr(error, "auth_header", None):
        response["WWW-Authenticate"] = header
    if wait := getattr(error, "wait", None):
        response["Retry-After"] = f"{wait:.0f}"
    return response


def build_headers(error: ApiError) -> dict[str, str]:
    """Return the headers that an answer has because of its error code."""
    return {"Retry-After": RETRY_AFTER_SECONDS[error.code]} if error.code in RETRY_AFTER_SECONDS else {}


def build_envelope(error: ApiError, lang: str | None = None) -> dict[str, Any]:
    """Return the envelope, in `lang` or else in the language of the request."""
    errors = []
    for problem in limit_problems(error.problems):
        message, hint = _render_text(problem.code, problem.params, lang)
        shown = {"field": problem.field, "error": problem.code, "message": message, "hint": hint}
        errors.append({**shown, "place": place} if isinstance(place := problem.params.get("place"), dict) else shown)
    return {
        "code": error.status,
        "message": errors[0]["message"]
        if len(errors) == 1
        else _render_text("INVALID_REQUEST", {"count": len(error.problems)}, lang)[0],
        "error": error.code,
        "errors": errors,
        "requestId": request_id.get_request_id(),
        **error.extra,
    }


def _render_text(code: str, params: Mapping[str, Any], lang: str | None) -> tuple[str, str]:
    """Return message and hint. If a text cannot be rendered, return the code instead."""
    try:
        return render_text(code, params, lang)
    except Exception:
        log.exception("the text of %s cannot be made", code)
        return code, ""


def make_status_error(status: int, **params: Any) -> ApiError:
    """Return the error for an answer of which only the status is known."""
    if status >= 500:
        return ApiError(status, "INTERNAL_ERROR", request_id=request_id.get_request_id())
    return ApiError(status, CODES_BY_STATUS.get(status, "BAD_REQUEST"), **params)


def to_api_error(error: BaseException) -> ApiError:
    """Return the API error that an exception means."""
    match error:
        case ApiError():
            return error
        case exceptions.NotAuthenticated():
            return ApiError(401, "NOT_AUTHENTICATED")
        case exceptions.AuthenticationFailed():
            return ApiError(401, "TOKEN_INVALID")
        case exceptions.PermissionDenied() | PermissionDenied():
            return ApiError(403, "FORBIDDEN")
        case exceptions.NotFound() | Http404():
            return ApiError(404, "NOT_FOUND")
        case exceptions.MethodNotAllowed():
            return ApiError(405, "METHOD_NOT_ALLOWED", detail=error.detail)
        case exceptions.UnsupportedMediaType():
            return ApiError(415, "UNSUPPORTED_MEDIA_TYPE")
        case exceptions.Throttled():
            return ApiError(429, "THROTTLED", seconds=int(getattr(error, "wait", None) or 1))
        case exceptions.ParseError():
            return ApiError(400, "PARSE_ERROR", detail=error.detail)
        case RequestDataTooBig():
            return ApiError(413, "BODY_TOO_LARGE", limit=MAX_BODY_BYTES)
        case SuspiciousOperation() | BadRequest() | UnreadablePostError() | ValidationError():
            return make_status_error(400)
        case exceptions.APIException():
            return make_status_error(error.status_code)
        case DatabaseError() | InterfaceError() if code := sql.get_refusal_code(error):
            return ApiError(503, code)
        case IntegrityError():  # somebody else was faster; what is known to collide has an answer of its own
            return ApiError(409, "CHANGED_MEANWHILE")
        case DataError():  # a number or text beyond what a column holds
            return ApiError(400, "VALUE_NOT_STORABLE")
        case LaunchError():
            refused = ApiError(503, error.code)
            refused.problems = [Problem("", error.code, error.params)]
            return refused
    return make_status_error(500)
