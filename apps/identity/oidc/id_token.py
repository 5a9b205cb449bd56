"""Checks an ID token as OpenID Connect Core 1.0, section 3.1.3.7, requires."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hmac import compare_digest
from typing import Any

import jwt

from apps.identity.errors import SignInError

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Signatures by a key that the provider alone has. `none` signs nothing, and a key of HS256 is the client's secret."""
LEEWAY_SECONDS = 30
MAX_TOKEN_LENGTH = 100_000
MAX_KEYS = 100
KEYS_SECONDS = 300

FetchKeys = Callable[[str], Mapping[str, Any]]
"""Returns the JSON Web Key Set at an address. Raises requests.RequestException."""


@dataclass(slots=True)
class KeyCache:
    """The key sets of providers, by address, for KEYS_SECONDS."""

    fetched: dict[str, tuple[float, Mapping[str, Any]]] = field(default_factory=dict)

    def get_keys(self, url: str, fetch: FetchKeys, *, anew: bool = False) -> tuple[Mapping[str, Any], bool]:
        """Return the key set, and whether it was fetched just now."""
        found = self.fetched.get(url)
        if found and not anew and time.monotonic() - found[0] < KEYS_SECONDS:
            return found[1], False
        keys = fetch(url)
        if len(self.fetched) >= 100:
            self.fetched.clear()
        self.fetched[url] = (time.monotonic(), keys)
        return keys, True


cache = KeyCache()


def verify_id_token(
    token: Any, *, issuer: str, client_id: str, nonce: str, keys_url: str, fetch: FetchKeys
) -> dict[str, Any]:
    """Return the claims of a token that this issuer signed for this client and this sign-in. A provider that has
    changed its keys is asked for them once more. Raises SignInError and requests.RequestException."""
    if not isinstance(token, str) or not token or len(token) > MAX_TOKEN_LENGTH:
        raise SignInError("IDENTITY_TOKEN_MISSING")
    try:
        header = jwt.get_unverified_header(token)
    except jwt.PyJWTError as error:
        raise SignInError("IDENTITY_TOKEN_BROKEN", str(error)) from error
    if header.get("alg") not in ALGORITHMS:
        raise SignInError("IDENTITY_ALGORITHM", f"alg {str(header.get('alg'))[:20]!r}")
    keys, is_new = cache.get_keys(keys_url, fetch)
    try:
        claims = _decode(token, header, keys, issuer, client_id)
    except _KeyError as error:
        if is_new:
            raise SignInError("IDENTITY_SIGNATURE", str(error)) from error
        keys, _ = cache.get_keys(keys_url, fetch, anew=True)
        try:
            claims = _decode(token, header, keys, issuer, client_id)
        except _KeyError as again:
            raise SignInError("IDENTITY_SIGNATURE", str(again)) from again
    _check_parties(claims, client_id)
    given = claims.get("nonce")
    if not nonce or not isinstance(given, str) or not compare_digest(given.encode(), nonce.encode()):
        raise SignInError("IDENTITY_NONCE")
    return claims


class _KeyError(Exception):
    """No key of the set made the signature."""


def _decode(
    token: str, header: Mapping[str, Any], keys: Mapping[str, Any], issuer: str, client_id: str
) -> dict[str, Any]:
    """Return the claims. Raises _KeyError where the signature is of another key, SignInError for all else."""
    for key in _select_keys(header, keys):
        try:
            return jwt.decode(
                token,
                key,
                algorithms=[header["alg"]],
                issuer=issuer,
                audience=client_id,
                leeway=LEEWAY_SECONDS,
                options={"require": ["iss", "sub", "aud", "exp", "iat"]},
            )
        except (jwt.InvalidSignatureError, jwt.InvalidKeyError):
            continue
        except jwt.ExpiredSignatureError as error:
            raise SignInError("IDENTITY_TOKEN_EXPIRED") from error
        except jwt.ImmatureSignatureError as error:
            raise SignInError("IDENTITY_TOKEN_EARLY") from error
        except jwt.InvalidAudienceError as error:
            raise SignInError("IDENTITY_AUDIENCE") from error
        except jwt.InvalidIssuerError as error:
            raise SignInError("IDENTITY_ISSUER_OTHER") from error
        except jwt.PyJWTError as error:
            raise SignInError("IDENTITY_TOKEN_BROKEN", str(error)) from error
    raise _KeyError(f"no key made the signature (kid {str(header.get('kid'))[:60]!r})")


def _select_keys(header: Mapping[str, Any], keys: Mapping[str, Any]) -> list[jwt.PyJWK]:
    """Return the keys for signatures that a token's header can mean: those of its id, all of them without one."""
    listed = keys.get("keys") if isinstance(keys, Mapping) else None
    found = []
    for entry in listed[:MAX_KEYS] if isinstance(listed, list) else ():
        if not isinstance(entry, dict) or entry.get("use", "sig") != "sig":
            continue
        if "kid" in header and entry.get("kid") != header["kid"]:
            continue
        if entry.get("kty") == "oct" or entry.get("alg", header["alg"]) != header["alg"]:
            continue
        try:
            found.append(jwt.PyJWK(entry, algorithm=header["alg"]))
        except (jwt.PyJWTError, ValueError, TypeError):
            continue
    return found


def _check_parties(claims: Mapping[str, Any], client_id: str) -> None:
    """Raise SignInError for a token that was issued to another party, or to several without naming one."""
    audience, party = claims["aud"], claims.get("azp")
    if (isinstance(audience, list) and len(audience) > 1 and party is None) or party not in (None, client_id):
        raise SignInError("IDENTITY_AUDIENCE", "azp")
