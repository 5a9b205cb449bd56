"""Checks the signature, issuer, audience and times of a JSON Web Token by the keys that its issuer publishes."""

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import jwt

from apps.identity.errors import SignInError

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Signatures by a key that the provider alone has. `none` signs nothing, and a key of HS256 is the client's secret."""
REQUIRED_CLAIMS = ("iss", "sub", "aud", "exp", "iat")
LEEWAY_SECONDS = 30
MAX_TOKEN_LENGTH = 100_000
MAX_KEYS = 100
KEYS_SECONDS = 300

FetchKeys = Callable[[str], Mapping[str, Any]]
"""Returns the JSON Web Key Set at an address. Raises requests.RequestException."""


@dataclass(slots=True)
class KeyCache:
    """The key sets of providers, by address, for KEYS_SECONDS. `renewed`: when a set was last fetched before its
    time."""

    fetched: dict[str, tuple[float, Mapping[str, Any]]] = field(default_factory=dict)
    renewed: dict[str, float] = field(default_factory=dict)

    def get_keys(self, url: str, fetch: FetchKeys) -> tuple[Mapping[str, Any], bool]:
        """Return the key set, and whether it was fetched just now."""
        found = self.fetched.get(url)
        if found and time.monotonic() - found[0] < KEYS_SECONDS:
            return found[1], False
        return self._fetch(url, fetch), True

    def renew_keys(self, url: str, fetch: FetchKeys, seconds: float) -> Mapping[str, Any] | None:
        """Return the key set, fetched before its time; None where that happened less than `seconds` ago."""
        moment = time.monotonic()
        if url in self.renewed and moment - self.renewed[url] < seconds:
            return None
        self.renewed[url] = moment
        return self._fetch(url, fetch)

    def clear(self) -> None:
        self.fetched.clear()
        self.renewed.clear()

    def _fetch(self, url: str, fetch: FetchKeys) -> Mapping[str, Any]:
        keys = fetch(url)
        if len(self.fetched) >= 100:
            self.clear()
        self.fetched[url] = (time.monotonic(), keys)
        return keys


cache = KeyCache()


def verify_token(
    token: Any,
    *,
    issuer: str,
    audience: str | None,
    keys_url: str,
    fetch: FetchKeys,
    algorithms: Collection[str] = ALGORITHMS,
    leeway: float = LEEWAY_SECONDS,
    required: Collection[str] = REQUIRED_CLAIMS,
    renewal_seconds: float = 0,
) -> dict[str, Any]:
    """Return the claims of a token that `issuer` signed for `audience` and that is valid now, give or take `leeway`
    seconds.

    Where no known key made the signature, the keys at `keys_url` are fetched once more, but not again within
    `renewal_seconds`: more than 0 where anybody may send tokens. `audience` None: the caller compares `aud` itself.
    `required`: claims that have to be there. Raises SignInError and requests.RequestException.
    """
    header = _read_header(token, algorithms)

    def decode(keys: Mapping[str, Any]) -> dict[str, Any]:
        return _decode(token, header, keys, issuer, audience, leeway, required)

    keys, is_new = cache.get_keys(keys_url, fetch)
    try:
        return decode(keys)
    except _KeyError as error:
        renewed = None if is_new else cache.renew_keys(keys_url, fetch, renewal_seconds)
        if renewed is None:
            raise SignInError("IDENTITY_SIGNATURE", str(error)) from error
    try:
        return decode(renewed)
    except _KeyError as error:
        raise SignInError("IDENTITY_SIGNATURE", str(error)) from error


class _KeyError(Exception):
    """No key of the set made the signature."""


def _read_header(token: Any, algorithms: Collection[str]) -> Mapping[str, Any]:
    """Return the header of a token, which nobody has verified. Raises SignInError."""
    if not isinstance(token, str) or not token or len(token) > MAX_TOKEN_LENGTH:
        raise SignInError("IDENTITY_TOKEN_MISSING")
    try:
        header = jwt.get_unverified_header(token)
    except (jwt.PyJWTError, RecursionError) as error:
        raise SignInError("IDENTITY_TOKEN_BROKEN", str(error)) from error
    if header.get("alg") not in algorithms:
        raise SignInError("IDENTITY_ALGORITHM", f"alg {str(header.get('alg'))[:20]!r}")
    return header


def _decode(
    token: str,
    header: Mapping[str, Any],
    keys: Mapping[str, Any],
    issuer: str,
    audience: str | None,
    leeway: float,
    required: Collection[str],
) -> dict[str, Any]:
    """Return the claims. Raises _KeyError where the signature is of another key, SignInError for all else."""
    for key in _select_keys(header, keys):
        try:
            return jwt.decode(
                token,
                key,
                algorithms=[header["alg"]],
                issuer=issuer,
                audience=audience,
                leeway=leeway,
                options={"require": list(required), "verify_aud": audience is not None},
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
        except (jwt.PyJWTError, OverflowError, RecursionError) as error:
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
