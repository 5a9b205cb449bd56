"""Providers that people sign in with, for administrators."""

from urllib.parse import quote

from fermi.client.pagination import Listing
from fermi.client.transport import Transport
from fermi.client.types import (
    IdentityProviderCreateRequest,
    IdentityProviderItem,
    PatchedIdentityProviderChangeRequest,
)


class IdentityProviders:
    """Providers of sign-in, with their settings and without their secrets."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self) -> Listing[IdentityProviderItem]:
        return Listing(self._transport, "/identity-providers", {})

    def get(self, provider_id: str) -> IdentityProviderItem:
        return self._transport.call("GET", f"/identity-providers/{quote(provider_id)}")

    def create(self, request: IdentityProviderCreateRequest) -> IdentityProviderItem:
        return self._transport.call("POST", "/identity-providers", json=request)

    def change(self, provider_id: str, changes: PatchedIdentityProviderChangeRequest) -> IdentityProviderItem:
        """Change a provider; a secret that is not given stays. Raise ConflictError for one of the environment."""
        return self._transport.call("PATCH", f"/identity-providers/{quote(provider_id)}", json=changes)

    def delete(self, provider_id: str) -> None:
        """Delete a provider with the links of accounts to it."""
        self._transport.call("DELETE", f"/identity-providers/{quote(provider_id)}")
