"""Sends a stored request to the API within the process, as a person."""

import json
from collections.abc import Mapping
from io import BytesIO
from typing import Any

from django.core.handlers.wsgi import WSGIRequest
from django.urls import resolve

from apps.accounts.models import User


def perform_request(
    user: User, method: str, path: str, body: Mapping[str, Any], idempotency_key: str
) -> tuple[int, dict[str, Any]]:
    """Return the status and the envelope that the API answers to the request. `user`: who makes it, with all rights
    that the person has now; validation, roles and the audit trail are those of any request."""
    content = json.dumps(body).encode()
    path, _, query = path.partition("?")
    request = WSGIRequest(
        {
            "REQUEST_METHOD": method,
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "CONTENT_TYPE": "application/json",
            "CONTENT_LENGTH": str(len(content)),
            "HTTP_IDEMPOTENCY_KEY": idempotency_key,
            "SERVER_NAME": "localhost",
            "SERVER_PORT": "80",
            "wsgi.url_scheme": "http",
            "wsgi.input": BytesIO(content),
        }
    )
    request._force_auth_user = user  # type: ignore[attr-defined]  # REST framework's way to name the user
    match = resolve(path)
    response = match.func(request, *match.args, **match.kwargs)
    if hasattr(response, "render"):
        response.render()
    answer = getattr(response, "data", None)
    return response.status_code, json.loads(response.content) if isinstance(answer, dict) else {}
