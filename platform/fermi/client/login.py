"""Exchange of a password for an API token."""

from typing import Any

import httpx

from fermi.client.errors import InvalidRequestError, NotAuthenticatedError, UnreachableError
from fermi.client.transport import API_PREFIX, unwrap_envelope

SIGN_IN_PATH = "/_allauth/browser/v1/auth"


def read_banner(url: str, lang: str = "") -> Any:
    """Return the notice that people read before they sign in: `title`, `text`, `required` and `version`; None without
    one, and where the platform has none yet. Raise UnreachableError."""
    try:
        response = httpx.get(f"{url}{API_PREFIX}/auth/banner", headers={"Accept-Language": lang} if lang else {})
    except httpx.HTTPError as error:
        raise UnreachableError(f"{url} does not answer: {error}", code="UNREACHABLE") from error
    return None if response.status_code == 404 else unwrap_envelope(response)


def issue_token(url: str, username: str, password: str, name: str, lang: str = "", accepted_banner: int = 0) -> str:
    """Sign in as the console does, create an API token called `name`, end the session and return the token.
    `accepted_banner`: version of the notice that the person accepts; 0: none.

    Raise NotAuthenticatedError for a wrong password (LOCAL_ACCOUNTS_OFF where none counts), InvalidRequestError where a
    second factor is needed (which only the console supports), UnreachableError where the platform does not answer.
    """
    try:
        with httpx.Client(base_url=url, timeout=30, headers={"Accept-Language": lang} if lang else {}) as http:
            http.get(f"{SIGN_IN_PATH}/session")  # for the CSRF cookie
            credentials = {"username": username, "password": password}
            _check_sign_in(http.post(f"{SIGN_IN_PATH}/login", json=credentials, headers=_make_csrf_headers(http, url)))
            try:
                if accepted_banner:
                    accepted = {"version": accepted_banner}
                    path = f"{API_PREFIX}/auth/banner/accept"
                    unwrap_envelope(http.post(path, json=accepted, headers=_make_csrf_headers(http, url)))
                made = unwrap_envelope(
                    http.post(f"{API_PREFIX}/tokens", json={"name": name}, headers=_make_csrf_headers(http, url))
                )
            finally:
                http.delete(f"{SIGN_IN_PATH}/session", headers=_make_csrf_headers(http, url))
            return made["token"]
    except httpx.HTTPError as error:
        raise UnreachableError(f"{url} does not answer: {error}", code="UNREACHABLE") from error


def _make_csrf_headers(http: httpx.Client, url: str) -> dict[str, str]:
    return {"X-CSRFToken": http.cookies.get("csrftoken") or "", "Referer": f"{url}/"}


def _check_sign_in(response: httpx.Response) -> None:
    if response.status_code == 200:
        return
    body: Any = response.json() if "json" in response.headers.get("Content-Type", "") else {}
    flows = [flow["id"] for flow in body.get("data", {}).get("flows", ()) if flow.get("is_pending")]
    if "mfa_authenticate" in flows:
        raise InvalidRequestError("this account asks for a second factor", code="SECOND_FACTOR_NEEDED", status=401)
    if any(error.get("code") == "local_accounts_off" for error in body.get("errors", ())):
        raise NotAuthenticatedError(
            body["errors"][0]["message"], code="LOCAL_ACCOUNTS_OFF", status=response.status_code
        )
    message = "; ".join(error["message"] for error in body.get("errors", ())) or f"HTTP {response.status_code}"
    raise NotAuthenticatedError(message, code="SIGN_IN_REFUSED", status=response.status_code)
