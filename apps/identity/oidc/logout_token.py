"""Checks a logout token as OpenID Connect Back-Channel Logout 1.0, section 2.6, requires."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jwt

from apps.identity.errors import SignInError
from apps.identity.models import MAX_SUBJECT_LENGTH
from apps.identity.oidc.signed_token import LEEWAY_SECONDS, FetchKeys, verify_token

EVENT = "http://schemas.openid.net/event/backchannel-logout"
TYPES = ("logout+jwt", "jwt")
MAX_AGE_SECONDS = 300
"""A token that was made earlier is refused, with or without an end of its own."""
MAX_ID_LENGTH = 1_000
KEYS_RENEWAL_SECONDS = 10
"""How often at most a token makes the platform fetch the provider's keys anew: anybody may send one."""


@dataclass(frozen=True, slots=True)
class LogoutRequest:
    """Whose sessions end: those of the person `subject`, of the provider's session `sid`, or of both. `token_id`: the
    token's `jti`. `ends_at`: unix seconds, after which the token is refused for its age."""

    subject: str | None
    sid: str | None
    token_id: str
    ends_at: float


def verify_logout_token(token: Any, *, issuer: str, client_id: str, keys_url: str, fetch: FetchKeys) -> LogoutRequest:
    """Return what a token says that this issuer signed for this client. Whether it came before is not known here.
    Raises SignInError and requests.RequestException."""
    claims = verify_token(
        token,
        issuer=issuer,
        audience=client_id,
        keys_url=keys_url,
        fetch=fetch,
        required=("iss", "aud", "iat", "jti", "events"),
        renewal_seconds=KEYS_RENEWAL_SECONDS,
    )
    kind = jwt.get_unverified_header(token).get("typ")  # its signature was verified above
    if kind is not None and str(kind).lower().removeprefix("application/") not in TYPES:
        raise SignInError("IDENTITY_LOGOUT_EVENT", f"typ {str(kind)[:40]!r}")
    events = claims["events"]
    if not isinstance(events, Mapping) or not isinstance(events.get(EVENT), Mapping):
        raise SignInError("IDENTITY_LOGOUT_EVENT", "events")
    if "nonce" in claims:
        raise SignInError("IDENTITY_LOGOUT_NONCE")
    if not isinstance(claims["iat"], int | float):
        raise SignInError("IDENTITY_TOKEN_BROKEN", "iat")
    age = time.time() - claims["iat"]
    if age > MAX_AGE_SECONDS + LEEWAY_SECONDS:
        raise SignInError("IDENTITY_TOKEN_EXPIRED", f"made {age:.0f} s ago")
    subject, sid = _read_text(claims, "sub"), _read_text(claims, "sid")
    if subject is None and sid is None:
        raise SignInError("IDENTITY_LOGOUT_SUBJECT")
    token_id = claims["jti"]
    if not isinstance(token_id, str) or not 0 < len(token_id) <= MAX_ID_LENGTH:
        raise SignInError("IDENTITY_TOKEN_BROKEN", "jti")
    return LogoutRequest(subject, sid, token_id, claims["iat"] + MAX_AGE_SECONDS + LEEWAY_SECONDS)


def _read_text(claims: Mapping[str, Any], name: str) -> str | None:
    """Return a claim, or None where it is not there. Raises SignInError for one that no session has."""
    value = claims.get(name)
    if value is None:
        return None
    if not isinstance(value, str) or not 0 < len(value) <= MAX_SUBJECT_LENGTH:
        raise SignInError("IDENTITY_TOKEN_BROKEN", name)
    return value
