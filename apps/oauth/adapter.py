"""Settings of allauth's authorization server for this platform."""

from typing import Any

from allauth.core import context
from allauth.idp.oidc.adapter import DefaultOIDCAdapter
from allauth.idp.oidc.internal.resources import InvalidTargetError
from allauth.idp.oidc.models import Client
from knox.crypto import hash_token

from apps.oauth.addresses import get_origin, is_own_address
from apps.oauth.services import clients


class OAuthAdapter(DefaultOIDCAdapter):
    def hash_token(self, token: str) -> str:
        """Return the hash by which the API finds the token, too."""
        return str(hash_token(token))

    def get_issuer(self) -> str:
        """Return the platform's own address."""
        return get_origin(context.request)

    def validate_resource_uris(self, *, uris: list[str], **_: Any) -> None:
        """Raise InvalidTargetError for a resource that is not on this platform (RFC 8707)."""
        if len(uris) > clients.MAX_RESOURCES or not all(is_own_address(context.request, uri) for uri in uris):
            raise InvalidTargetError()

    def validate_client_registration(self, *, client: Client, **_: Any) -> None:
        """Raise ValidationError for a client that is not admitted, and write what it may request into it."""
        clients.admit_client(client)

    def is_cimd_url_allowed(self, url: str) -> bool:
        """Return False: client metadata documents are off (decision 131)."""
        return False
