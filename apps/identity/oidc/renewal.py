"""Asks an OpenID Connect provider whether it still vouches for a person, by a refresh token (OpenID Connect Core 1.0,
section 12), and reads the claims anew."""

from collections.abc import Mapping
from typing import Any

import requests
from requests.auth import HTTPBasicAuth

from apps.identity.configuration import ProviderConfiguration
from apps.identity.errors import SignInError
from apps.identity.http import AddressRefusedError, ProviderSession
from apps.identity.oidc.description import fetch_json
from apps.identity.oidc.id_token import verify_renewed_token

MAX_ERROR_LENGTH = 200
NOT_CONNECTED = "NewConnectionError"  # of urllib3, which reports what requests wraps


class GrantRefusedError(Exception):
    """The provider no longer accepts the refresh token: it was revoked, it expired, or the person is disabled."""


class AnswerError(requests.RequestException):
    """The provider answered something else than tokens, so it has replaced none."""


def may_have_renewed(error: requests.RequestException) -> bool:
    """Return whether the provider may have replaced the refresh token although its answer did not arrive."""
    if isinstance(error, AnswerError | AddressRefusedError | requests.ConnectTimeout):
        return False
    cause = getattr(error.args[0], "reason", None) if error.args else None
    return NOT_CONNECTED not in {one.__name__ for one in type(cause).__mro__}


def renew_grant(
    configuration: ProviderConfiguration, description: Mapping[str, Any], refresh_token: str
) -> dict[str, Any]:
    """Return the provider's answer to a refresh token. Raises GrantRefusedError for `invalid_grant` alone, and
    requests.RequestException for every other answer, which says nothing about the person."""
    form = {"grant_type": "refresh_token", "refresh_token": refresh_token}
    auth = None
    if _uses_basic(configuration, description):
        auth = HTTPBasicAuth(configuration.client_id, configuration.secret)
    else:
        form |= {"client_id": configuration.client_id, "client_secret": configuration.secret}
    with ProviderSession() as session:
        response = session.post(description["token_endpoint"], data=form, auth=auth)
        answer = _read_object(response)
    if response.status_code == 400 and answer.get("error") == "invalid_grant":
        raise GrantRefusedError(str(answer.get("error_description"))[:MAX_ERROR_LENGTH])
    if response.status_code != 200:
        error = str(answer.get("error"))[:MAX_ERROR_LENGTH]
        raise AnswerError(f"status {response.status_code} for a refresh token: {error}")
    return answer


def read_claims(
    configuration: ProviderConfiguration,
    description: Mapping[str, Any],
    answer: Mapping[str, Any],
    known: Mapping[str, Any],
) -> dict[str, Any]:
    """Return what allauth stores of a person, from an answer of `renew_grant` and what was stored before. Raises
    SignInError for an answer about another person, and requests.RequestException."""
    before = known["id_token"]
    renewed = None
    if answer.get("id_token") is not None:
        renewed = verify_renewed_token(
            answer["id_token"],
            issuer=description["issuer"],
            client_id=configuration.client_id,
            subject=before["sub"],
            keys_url=description["jwks_uri"],
            fetch=fetch_json,
        )
    info = None
    if configuration.settings.get("fetch_userinfo", True) and description.get("userinfo_endpoint"):
        info = _fetch_userinfo(description["userinfo_endpoint"], str(answer.get("access_token")))
        if info.get("sub") != before["sub"]:
            raise SignInError("IDENTITY_USERINFO_OTHER")
    return merge_claims(known, renewed, info)


def merge_claims(
    known: Mapping[str, Any], renewed: Mapping[str, Any] | None, info: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Return the claims of a renewed ID token and of userinfo. Where the provider renews no ID token, the former one
    counts for what userinfo neither says nor said: the rest is out of date."""
    former = known.get("userinfo") or {}
    token = dict(renewed) if renewed is not None else known["id_token"]
    if renewed is None and info is not None:
        standing = ("iss", "sub", "aud")
        token = {key: value for key, value in token.items() if key in standing or key not in {*info, *former}}
    if info is None:
        return {"id_token": token} if renewed is not None else dict(known)
    return {"id_token": token, "userinfo": dict(info)}


def _uses_basic(configuration: ProviderConfiguration, description: Mapping[str, Any]) -> bool:
    """Return whether the client's secret goes into the header, by the same rule as at a sign-in."""
    if chosen := configuration.settings.get("token_auth_method"):
        return bool(chosen == "client_secret_basic")
    offered = description.get("token_endpoint_auth_methods_supported") or ()
    return "client_secret_post" not in offered and "client_secret_basic" in offered


def _fetch_userinfo(url: str, access_token: str) -> dict[str, Any]:
    with ProviderSession() as session:
        response = session.get(url, headers={"Authorization": f"Bearer {access_token}"})
        response.raise_for_status()
        return _read_object(response)


def _read_object(response: requests.Response) -> dict[str, Any]:
    try:
        data = response.json()
    except ValueError as error:
        raise requests.RequestException(f"status {response.status_code} without JSON") from error
    if not isinstance(data, dict):
        raise requests.RequestException(f"status {response.status_code} without an object")
    return data
