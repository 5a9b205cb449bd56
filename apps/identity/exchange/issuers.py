"""Who may sign the ID tokens that are exchanged, and what their tokens say."""

import logging
import time
from collections.abc import Mapping
from typing import Any

import jwt
import requests
from django.conf import settings

from apps.common.errors import ApiError
from apps.identity.claims import are_storable, is_storable_text
from apps.identity.errors import SignInError
from apps.identity.oidc.description import WELL_KNOWN, fetch_json
from apps.identity.oidc.signed_token import LEEWAY_SECONDS, KeyCache, verify_token

log = logging.getLogger(__name__)

ALGORITHMS = ("RS256", "ES256")
MAX_LIFETIME_SECONDS = 24 * 3600
"""Between `iat` and `exp`. GitLab's end with their job."""
RENEWAL_SECONDS = 60.0
"""How often at most a key's id that is not known causes a request to the issuer."""
FAILURE_SECONDS = 10.0
"""For how long an issuer that did not answer is not asked again."""

REFUSALS = {
    "IDENTITY_ALGORITHM": "EXCHANGE_ALGORITHM",
    "IDENTITY_SIGNATURE": "EXCHANGE_SIGNATURE",
    "IDENTITY_TOKEN_EXPIRED": "EXCHANGE_EXPIRED",
    "IDENTITY_TOKEN_EARLY": "EXCHANGE_EARLY",
    "IDENTITY_DISCOVERY": "EXCHANGE_ISSUER_SILENT",
}
"""What a caller gets, by what the check of a signed token raised; EXCHANGE_TOKEN_BROKEN otherwise."""

descriptions = KeyCache()
failures: dict[str, float] = {}


def list_issuers() -> list[str]:
    """Return the issuers that the operator allows."""
    return list(settings.EXCHANGE_ISSUERS)


def read_issuer(token: str) -> str:
    """Return who a token says that it is from, which nobody has verified. Raises ApiError 400."""
    try:
        claims = jwt.decode(token, options={"verify_signature": False})
    except (jwt.PyJWTError, ValueError, RecursionError) as error:
        raise _refuse("EXCHANGE_TOKEN_BROKEN", str(error)[:200]) from error
    issuer = claims.get("iss")
    if not isinstance(issuer, str) or not issuer or not is_storable_text(issuer):
        raise _refuse("EXCHANGE_TOKEN_BROKEN", "no iss")
    return issuer


def read_claims(token: str, issuer: str) -> dict[str, Any]:
    """Return the claims of a token that an allowed issuer signed and that is valid now, for whatever audience. Makes
    requests to the issuer. Raises ApiError 400; 503 where the issuer does not answer."""
    if time.monotonic() - failures.get(issuer, float("-inf")) < FAILURE_SECONDS:
        raise ApiError(503, "EXCHANGE_ISSUER_SILENT", issuer=issuer)
    try:
        claims = verify_token(
            token,
            issuer=issuer,
            audience=None,
            keys_url=_find_keys_url(issuer),
            fetch=fetch_json,
            algorithms=ALGORITHMS,
            renewal_seconds=RENEWAL_SECONDS,
        )
    except requests.RequestException as error:
        failures[issuer] = time.monotonic()
        log.warning("the issuer %s does not answer: %s", issuer, error)
        raise ApiError(503, "EXCHANGE_ISSUER_SILENT", issuer=issuer) from error
    except SignInError as error:
        raise _refuse(
            REFUSALS.get(error.code, "EXCHANGE_TOKEN_BROKEN"), f"{error.code} {error.detail}", issuer
        ) from error
    if not are_storable(claims):
        raise _refuse("EXCHANGE_TOKEN_BROKEN", "a claim cannot be stored", issuer)
    if not all(isinstance(claims[name], int | float) for name in ("exp", "iat")):
        raise _refuse("EXCHANGE_TOKEN_BROKEN", "exp or iat is no number", issuer)
    if claims["exp"] - claims["iat"] > MAX_LIFETIME_SECONDS:
        raise _refuse(
            "EXCHANGE_LIFETIME", f"{claims['exp'] - claims['iat']} s", issuer, hours=MAX_LIFETIME_SECONDS // 3600
        )
    return claims


def get_end(claims: Mapping[str, Any]) -> float:
    """Return until when a token may be presented, in unix seconds."""
    return float(claims["exp"]) + LEEWAY_SECONDS


def _find_keys_url(issuer: str) -> str:
    """Return where the issuer publishes its keys. Raises SignInError and requests.RequestException."""
    description, _ = descriptions.get_keys(issuer.removesuffix("/") + WELL_KNOWN, fetch_json)
    if description.get("issuer") != issuer or not isinstance(description.get("jwks_uri"), str):
        raise SignInError("IDENTITY_DISCOVERY", f"the description of {issuer} names another issuer, or no keys")
    return str(description["jwks_uri"])


def _refuse(code: str, detail: str, issuer: str = "", **params: Any) -> ApiError:
    """Return the error, whose detail is for the log alone."""
    log.info("an ID token of %s is refused: %s %s", issuer or "?", code, detail)
    status = 503 if code == "EXCHANGE_ISSUER_SILENT" else 400
    return ApiError(status, code, "" if status == 503 else "subject_token", issuer=issuer, **params)
