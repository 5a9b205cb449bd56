"""Exchange of a password for an API token."""

from typing import Any

import httpx

from fermi.client.errors import InvalidRequest, NotAuthenticated, Unreachable
from fermi.client.transport import API, unwrap

SIGN_IN = "/_allauth/browser/v1/auth"


def issue_token(url: str, username: str, password: str, name: str, lang: str = "") -> str:
    """Sign in as the console does, create an API token called `name`, end the session and return the token.

    Raise NotAuthenticatedError for a wrong password, InvalidRequestError where a second factor is needed (which only
    the console supports), UnreachableError where the platform does not answer.
    """
    try:
        with httpx.Client(base_url=url, timeout=30, headers={"Accept-Language": lang} if lang else {}) as http:
            http.get(f"{SIGN_IN}/session")  # for the CSRF cookie
            credentials = {"username": username, "password": password}
            _check(http.post(f"{SIGN_IN}/login", json=credentials, headers=_csrf(http, url)))
            try:
                made = unwrap(http.post(f"{API}/tokens", json={"name": name}, headers=_csrf(http, url)))
            finally:
                http.delete(f"{SIGN_IN}/session", headers=_csrf(http, url))
            return made["token"]
    except httpx.HTTPError as error:
        raise Unreachable(f"{url} does not answer: {error}", code="UNREACHABLE") from error


def _csrf(http: httpx.Client, url: str) -> dict[str, str]:
    return {"X-CSRFToken": http.cookies.get("csrftoken") or "", "Referer": f"{url}/"}


def _check(response: httpx.Response) -> None:
    if response.status_code == 200:
        return
    body: Any = response.json() if "json" in response.headers.get("Content-Type", "") else {}
    flows = [flow["id"] for flow in body.get("data", {}).get("flows", ()) if flow.get("is_pending")]
    if "mfa_authenticate" in flows:
        raise InvalidRequest("this account asks for a second factor", code="SECOND_FACTOR_NEEDED", status=401)
    message = "; ".join(error["message"] for error in body.get("errors", ())) or f"HTTP {response.status_code}"
    raise NotAuthenticated(message, code="SIGN_IN_REFUSED", status=response.status_code)
