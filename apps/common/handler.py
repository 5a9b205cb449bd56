"""Every exception becomes the same envelope:

{"code": 409, "message": …, "error": "TASK_NOT_FINAL",
 "errors": [{"field": "", "error": "TASK_NOT_FINAL", "message": …, "hint": …}], "requestId": …}
"""

import logging
from typing import Any

from django.core.exceptions import PermissionDenied
from django.db import OperationalError
from django.http import Http404
from rest_framework import exceptions
from rest_framework.response import Response

from apps.common import request_id
from apps.common.errors import ApiError
from apps.common.texts import text

log = logging.getLogger(__name__)


def exception_handler(error: Exception, context: dict[str, Any]) -> Response:
    known = error if isinstance(error, ApiError) else _translate(error)
    if known.status >= 500:
        log.exception("request failed", exc_info=error)
    response = Response(envelope(known), status=known.status)
    if header := getattr(error, "auth_header", None):
        response["WWW-Authenticate"] = header
    if wait := getattr(error, "wait", None):
        response["Retry-After"] = f"{wait:.0f}"
    return response


def envelope(error: ApiError) -> dict[str, Any]:
    errors = []
    for problem in error.problems:
        message, hint = text(problem.code, problem.params)
        errors.append({"field": problem.field, "error": problem.code, "message": message, "hint": hint})
    return {
        "code": error.status,
        "message": errors[0]["message"] if len(errors) == 1 else text(error.code, {"count": len(errors)})[0],
        "error": error.code,
        "errors": errors,
        "requestId": request_id.current(),
    }


def _translate(error: Exception) -> ApiError:
    match error:
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
        case OperationalError():
            return ApiError(503, "DATABASE_UNAVAILABLE")
    return ApiError(500, "INTERNAL_ERROR", request_id=request_id.current())
