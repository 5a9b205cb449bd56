"""What an OpenID Connect provider says about itself (OpenID Connect Discovery 1.0)."""

import time
from collections.abc import Mapping
from typing import Any

import requests

from apps.identity.errors import SignInError
from apps.identity.http import ProviderSession
from apps.identity.oidc.signed_token import KeyCache

WELL_KNOWN = "/.well-known/openid-configuration"
ENDPOINTS = ("issuer", "authorization_endpoint", "token_endpoint", "jwks_uri")
SILENT_SECONDS = 10
"""How long a provider that did not answer is not asked again because of a request that anybody may send."""

_cache = KeyCache()
_silent: dict[str, float] = {}


def read_description(server_url: str) -> dict[str, Any]:
    """Return the description of the provider at its issuer's address, with or without WELL_KNOWN. Raises SignInError
    and requests.RequestException."""
    address = server_url if WELL_KNOWN in server_url else server_url.rstrip("/") + WELL_KNOWN
    found = fetch_json(address)
    for key in ENDPOINTS:
        if not isinstance(found.get(key), str):
            raise SignInError("IDENTITY_DISCOVERY", f"{key} is missing at {address}")
    if found["issuer"].rstrip("/") != address.partition(WELL_KNOWN)[0].rstrip("/"):
        raise SignInError("IDENTITY_DISCOVERY", f"the issuer of {address} is {found['issuer'][:200]}")
    return found


def read_known_description(server_url: str) -> Mapping[str, Any]:
    """Return the description as `read_description` does, from a cache where it is not older than that of keys. A
    provider that does not answer is asked once in SILENT_SECONDS."""
    if time.monotonic() < _silent.get(server_url, 0):
        raise requests.ConnectionError(f"{server_url} did not answer a moment ago")
    try:
        return _cache.get_keys(server_url, read_description)[0]
    except (requests.RequestException, SignInError):
        _silent[server_url] = time.monotonic() + SILENT_SECONDS
        raise


def clear_cache() -> None:
    _cache.clear()
    _silent.clear()


def fetch_json(url: str) -> dict[str, Any]:
    """Return the object at an address. Raises requests.RequestException."""
    with ProviderSession() as session:
        response = session.get(url)
        response.raise_for_status()
        data = response.json()
    if not isinstance(data, dict):
        raise requests.RequestException(f"{url} answers no object")
    return data
