"""Calls of vendors' APIs, which answer failures with HTTP 200 and a code in the body."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import requests
from allauth.socialaccount.adapter import get_adapter

from apps.identity.errors import SignInError


def call_api(method: str, url: str, **options: Any) -> dict[str, Any]:
    """Return the object that the API answers, whatever its status. Raises SignInError for an answer of another shape,
    and requests.RequestException. Neither names the query: some APIs expect the application's secret there."""
    parts = urlsplit(url)
    place = f"{parts.hostname}{parts.path}"[:200]
    try:
        with get_adapter().get_requests_session() as session:
            response = session.request(method, url, **options)
    except requests.RequestException as error:
        raise requests.ConnectionError(f"{type(error).__name__} at {place}") from None
    if response.status_code >= 500:
        raise requests.ConnectionError(f"status {response.status_code} at {place}")
    try:
        data = response.json()
    except ValueError:
        raise SignInError("IDENTITY_ANSWER", f"no JSON at {place}, status {response.status_code}") from None
    if not isinstance(data, dict):
        raise SignInError("IDENTITY_ANSWER", f"no object at {place}")
    return data


def require_success(data: Mapping[str, Any], key: str, code: str, *texts: str) -> None:
    """Raise SignInError with `code` unless the answer's number at `key` is 0. `texts`: the names of what the answer
    says about its failure."""
    number = data.get(key)
    if isinstance(number, int) and not isinstance(number, bool) and number == 0:
        return
    said = " ".join(str(data[name])[:200] for name in texts if name in data)
    raise SignInError(code, f"{key} {str(number)[:20]} {said}".strip())


def require_object(data: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Return the object at `key`. Raises SignInError."""
    value = data.get(key)
    if not isinstance(value, dict):
        raise SignInError("IDENTITY_ANSWER", f"{key} is missing")
    return value


def require_text(data: Mapping[str, Any], key: str) -> str:
    """Return the text at `key`. Raises SignInError."""
    value = data.get(key)
    if not isinstance(value, str) or not value or len(value) > 10_000:
        raise SignInError("IDENTITY_ANSWER", f"{key} is missing")
    return value
