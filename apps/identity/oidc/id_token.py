"""Checks an ID token as OpenID Connect Core 1.0, section 3.1.3.7, requires."""

from collections.abc import Mapping
from hmac import compare_digest
from typing import Any

from apps.identity.errors import SignInError
from apps.identity.oidc.signed_token import FetchKeys, verify_token


def verify_id_token(
    token: Any, *, issuer: str, client_id: str, nonce: str, keys_url: str, fetch: FetchKeys
) -> dict[str, Any]:
    """Return the claims of a token that this issuer signed for this client and this sign-in. A provider that has
    changed its keys is asked for them once more. Raises SignInError and requests.RequestException."""
    claims = verify_token(token, issuer=issuer, audience=client_id, keys_url=keys_url, fetch=fetch)
    _check_parties(claims, client_id)
    given = claims.get("nonce")
    if not nonce or not isinstance(given, str) or not compare_digest(given.encode(), nonce.encode()):
        raise SignInError("IDENTITY_NONCE")
    return claims


def _check_parties(claims: Mapping[str, Any], client_id: str) -> None:
    """Raise SignInError for a token that was issued to another party, or to several without naming one."""
    audience, party = claims["aud"], claims.get("azp")
    if (isinstance(audience, list) and len(audience) > 1 and party is None) or party not in (None, client_id):
        raise SignInError("IDENTITY_AUDIENCE", "azp")


def verify_renewed_token(
    token: Any, *, issuer: str, client_id: str, subject: str, keys_url: str, fetch: FetchKeys
) -> dict[str, Any]:
    """Return the claims of an ID token that came with a renewed access token (section 12.2): about the same person, and
    without a sign-in's nonce. Raises SignInError and requests.RequestException."""
    claims = verify_token(token, issuer=issuer, audience=client_id, keys_url=keys_url, fetch=fetch)
    _check_parties(claims, client_id)
    if claims["sub"] != subject:
        raise SignInError("IDENTITY_USERINFO_OTHER", "sub of a renewed ID token")
    return claims
