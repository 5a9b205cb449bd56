"""Addresses of the authorization server, and what its metadata documents say (RFC 8414, RFC 9728)."""

from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.http import HttpRequest

AUTHORIZE_PATH, DEVICE_PATH = "/oauth/authorize", "/oauth/device"  # pages of the console
TOKEN_PATH, REVOKE_PATH, DEVICE_CODE_PATH = "/oauth/token", "/oauth/revoke", "/oauth/device/code"
REGISTER_PATH = "/oauth/clients"
RESOURCE_METADATA_PATH = "/.well-known/oauth-protected-resource"
TOOLS_PATH = "/mcp"
RESOURCE_PATHS = ("", TOOLS_PATH)
"""Paths that have a resource metadata document: the platform's address itself, and the one of agents' tools."""


def get_origin(request: HttpRequest) -> str:
    """Return the address that people use, without a path: FERMI_PUBLIC_URL, else the one that was requested."""
    return str(settings.PUBLIC_URL) or f"{request.scheme}://{request.get_host()}"


def is_own_address(request: HttpRequest, address: str) -> bool:
    """Return True if the address is one of this platform's."""
    try:
        given, own = urlsplit(address), urlsplit(get_origin(request))
        return (given.scheme, given.hostname, given.port) == (own.scheme, own.hostname, own.port)
    except ValueError:
        return False


def make_challenge(request: HttpRequest, path: str = TOOLS_PATH) -> str:
    """Return the value of `WWW-Authenticate` for an answer 401 of the resource at `path`: clients find from it where to
    sign in (RFC 9728), and that a token which they sent is not valid (RFC 6750)."""
    where = f'Bearer realm="fermi", resource_metadata="{get_origin(request)}{RESOURCE_METADATA_PATH}{path}"'
    return f'{where}, error="invalid_token"' if request.headers.get("Authorization") else where


def describe_server(request: HttpRequest, scopes: list[str]) -> dict[str, Any]:
    """Return the metadata of the authorization server."""
    origin = get_origin(request)
    methods = ["none", "client_secret_basic", "client_secret_post"]
    found = {
        "issuer": origin,
        "authorization_endpoint": origin + AUTHORIZE_PATH,
        "token_endpoint": origin + TOKEN_PATH,
        "revocation_endpoint": origin + REVOKE_PATH,
        "device_authorization_endpoint": origin + DEVICE_CODE_PATH,
        "scopes_supported": scopes,
        "response_types_supported": ["code"],
        "response_modes_supported": ["query"],
        "grant_types_supported": list(GRANT_TYPES),
        "code_challenge_methods_supported": ["S256"],
        "token_endpoint_auth_methods_supported": methods,
        "revocation_endpoint_auth_methods_supported": methods,
        "authorization_response_iss_parameter_supported": True,
    }
    return {**found, "registration_endpoint": origin + REGISTER_PATH} if settings.IDP_OIDC_DCR_ENABLED else found


GRANT_TYPES = ("authorization_code", "refresh_token", "urn:ietf:params:oauth:grant-type:device_code")


def describe_resource(request: HttpRequest, path: str, scopes: list[str]) -> dict[str, Any]:
    """Return the metadata of a protected resource: the API, or the tools for agents at `/mcp`."""
    origin = get_origin(request)
    return {
        "resource": origin + path,
        "authorization_servers": [origin],
        "scopes_supported": scopes,
        "bearer_methods_supported": ["header"],
        "resource_name": "Fermi",
    }
