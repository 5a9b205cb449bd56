"""Exchange of a pipeline's ID token for an API token of a service account (RFC 8693)."""

import os
from collections.abc import Mapping, Sequence
from urllib.parse import quote, urlsplit

import httpx

from fermi.client.errors import InvalidRequestError, UnreachableError
from fermi.client.transport import API_PREFIX, unwrap_envelope
from fermi.client.types import TokenExchanged

GITHUB_URL, GITHUB_TOKEN = "ACTIONS_ID_TOKEN_REQUEST_URL", "ACTIONS_ID_TOKEN_REQUEST_TOKEN"
ID_TOKEN = "FERMI_ID_TOKEN"
"""The variable that a GitLab job stores its ID token in (`id_tokens`), and that any other pipeline may set."""
TIMEOUT_SECONDS = 30.0


def read_id_token(audience: str, environ: Mapping[str, str] = os.environ) -> str:
    """Return the ID token of the pipeline that this process runs in: what FERMI_ID_TOKEN has, else a new one for
    `audience` from GitHub Actions. Raise InvalidRequestError where there is neither, UnreachableError."""
    if token := environ.get(ID_TOKEN, "").strip():
        return token
    url, secret = environ.get(GITHUB_URL, ""), environ.get(GITHUB_TOKEN, "")
    if not url or not secret:
        raise InvalidRequestError(
            f"neither {ID_TOKEN} nor {GITHUB_URL} is set: this is no pipeline that may get an ID token",
            code="ID_TOKEN_MISSING",
        )
    joint = "&" if urlsplit(url).query else "?"
    try:
        answer = httpx.get(
            f"{url}{joint}audience={quote(audience, safe='')}",
            headers={"Authorization": f"Bearer {secret}"},
            timeout=TIMEOUT_SECONDS,
        )
        token = answer.raise_for_status().json()["value"]
    except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
        raise UnreachableError(f"GitHub gives no ID token: {error}", code="ID_TOKEN_MISSING") from error
    return str(token)


def exchange_id_token(
    url: str, id_token: str, service_account: str, *, scopes: Sequence[str] = (), lang: str = ""
) -> TokenExchanged:
    """Return a token of the service account (its username, such as ci@project-3f2a). Raise FermiError: ForbiddenError
    where no rule accepts the ID token, UnreachableError where the platform does not answer."""
    body = {"subject_token": id_token, "service_account": service_account}
    if scopes:
        body["scope"] = " ".join(scopes)
    try:
        answer = httpx.post(
            f"{url}{API_PREFIX}/token-exchange",
            json=body,
            headers={"Accept-Language": lang} if lang else {},
            timeout=TIMEOUT_SECONDS,
        )
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise UnreachableError(f"{url} does not answer: {error}", code="UNREACHABLE") from error
    made: TokenExchanged = unwrap_envelope(answer)
    return made
