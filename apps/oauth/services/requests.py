"""Requests for access that a browser brings to the console, checked by allauth's server, and the answers to them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit, urlunsplit

from allauth.core import context
from allauth.idp.oidc.internal.oauthlib.server import get_server
from allauth.idp.oidc.internal.oauthlib.utils import get_validator_context
from allauth.idp.oidc.internal.resources import validate_resources
from allauth.idp.oidc.models import Client
from django.core.exceptions import ValidationError
from oauthlib.common import quote, urlencoded
from oauthlib.oauth2.rfc6749.errors import OAuth2Error

from apps.accounts import audit
from apps.accounts.models import User
from apps.common.errors import ApiError
from apps.oauth.addresses import AUTHORIZE_PATH, get_origin
from apps.oauth.services import clients, grants

MAX_QUERY_LENGTH = 4_000
MAX_SCOPES = 100


@dataclass(frozen=True, slots=True)
class AccessRequest:
    """A request that has been checked. `details`: what allauth needs to answer it."""

    uri: str
    client: Client
    scopes: list[str]
    redirect: str
    state: str
    resources: list[str]
    details: dict[str, Any]


def read_access_request(query: str) -> AccessRequest:
    """Return the request in the query string of the authorization page. Raises ApiError 400 OAUTH_REQUEST_WRONG.

    What is wrong is shown to the person and not sent to the client: everybody can register one, so that a redirect
    without a click would lead from this platform's address to anywhere.
    """
    try:
        given = parse_qs(query, keep_blank_values=True, max_num_fields=50)
    except ValueError as error:
        raise _refuse("query", str(error)) from None
    client = clients.find_client(_get_one(given, "client_id"))
    if client is None:
        raise _refuse("client_id", "unknown")
    for name, wanted in (("response_type", "code"), ("code_challenge_method", "S256")):
        if _get_one(given, name) != wanted:
            raise _refuse(name, f"must be {wanted}")
    if not 43 <= len(_get_one(given, "code_challenge")) <= 128:
        raise _refuse("code_challenge", "43 to 128 characters are needed")
    for name in ("request", "request_uri"):
        if name in given:
            raise _refuse(name, "not supported")
    if given.get("response_mode", ["query"]) != ["query"]:
        raise _refuse("response_mode", "must be query")
    uri = f"{AUTHORIZE_PATH}?{quote(query, safe=''.join(urlencoded))}"
    resources = given.get("resource", [])
    try:
        validate_resources(resources)
        scopes, details = get_server().validate_authorization_request(uri, "GET", "", {})
    except (OAuth2Error, ValidationError, ValueError) as error:
        raise _refuse(*_explain(error)) from None
    details = {name: value for name, value in details.items() if name not in ("request", "prompt")}
    return AccessRequest(
        uri=uri,
        client=client,
        scopes=list(dict.fromkeys(scopes)),
        redirect=details["redirect_uri"],
        state=details.get("state") or "",
        resources=resources,
        details=details,
    )


def _get_one(given: dict[str, list[str]], name: str) -> str:
    values = given.get(name, [""])
    if len(values) > 1:
        raise _refuse(name, "given twice")
    return values[0]


def _explain(error: Exception) -> tuple[str, str]:
    if isinstance(error, OAuth2Error):
        return error.error, error.description or ""
    if isinstance(error, ValidationError):
        return "resource", " ".join(error.messages)
    return "query", str(error)


def _refuse(what: str, why: str) -> ApiError:
    return ApiError(400, "OAUTH_REQUEST_WRONG", what=what, why=why[:300])


def deny_access(user: User, asked: AccessRequest) -> str:
    """Record that the person denied the request; return where the browser goes."""
    audit.record_event(user, "oauth.deny", asked.client.pk, name=asked.client.name)
    return _add_params(asked.redirect, error="access_denied", **({"state": asked.state} if asked.state else {}))


def grant_access(
    user: User, asked: AccessRequest, *, scopes: Sequence[str], projects: Sequence[str] | None, days: int
) -> str:
    """Grant the request, or part of it; return where the browser goes, with a code that the program redeems once.
    Raises ApiError 400 for more than was offered."""
    grants.check_choice(user, grants.list_offers(user, asked.scopes), scopes, projects)
    get_validator_context().requested_resources = asked.resources
    try:
        headers, _, _ = get_server().create_authorization_response(
            asked.uri, "GET", "", {}, scopes=list(scopes), credentials={**asked.details, "user": user}
        )
    except OAuth2Error as error:
        raise _refuse(*_explain(error)) from None
    location = headers["Location"]
    code = parse_qs(urlsplit(location).query).get("code", [""])[0]
    if not code:
        raise _refuse("query", "no code was made")
    grants.create_grant(user, asked.client, code, scopes=scopes, projects=projects, days=days)
    return _add_params(location)


def _add_params(address: str, **params: str) -> str:
    """Return the address with the parameters, and with `iss`, by which clients notice a mix-up (RFC 9207)."""
    parts = urlsplit(address)
    pairs = [*parse_qsl(parts.query, keep_blank_values=True), *params.items(), ("iss", get_origin(context.request))]
    return urlunsplit(parts._replace(query=urlencode(pairs)))
