"""OpenID Connect with PKCE, a nonce, and no way in for tokens that come from elsewhere."""

import secrets
from typing import Any

import requests
from allauth.socialaccount.adapter import get_adapter
from allauth.socialaccount.helpers import render_authentication_error
from allauth.socialaccount.providers.openid_connect.provider import OpenIDConnectProvider
from django.http import HttpRequest, HttpResponse

from apps.identity.errors import SignInError
from apps.identity.models import ProviderKind
from apps.identity.oidc.views import OpenIdAdapter
from apps.identity.paths import get_safe_path

STANDARD_SCOPES = ("openid", "profile", "email")


class OpenIdProvider(OpenIDConnectProvider):
    """A provider of the kinds in `provider_settings.OPENID_KINDS`."""

    package = "apps.identity.oidc"
    pkce_enabled_default = True
    supports_token_authentication = False
    oauth2_adapter_class = OpenIdAdapter

    def get_scope(self) -> list[str]:
        """Return the scopes to ask for. GitLab refuses `offline_access`, and gives a refresh token without it."""
        scopes = dict.fromkeys((*STANDARD_SCOPES, *self.app.settings.get("scopes", ())))
        if self.app.settings.get("kind") == ProviderKind.GITLAB:
            scopes.pop("offline_access", None)
        return list(scopes)

    def redirect(
        self, request: HttpRequest, process: str, next_url: str | None = None, data: Any = None, **kwargs: Any
    ) -> HttpResponse:
        """Send the browser to the provider; to the sign-in page with a word where that cannot be."""
        nonce = secrets.token_urlsafe(32)
        kwargs["auth_params"] = {**self.get_auth_params(), "nonce": nonce}
        try:
            return super().redirect(request, process, get_safe_path(next_url), data, nonce=nonce, **kwargs)
        except (SignInError, requests.RequestException) as error:
            return render_authentication_error(request, self, exception=error)

    def extract_uid(self, data: dict[str, Any]) -> str:
        """Return the verified token's subject, or the claim that the provider's settings name."""
        uid = data["id_token"].get(self.app.settings.get("uid_claim") or "sub")
        if not isinstance(uid, str) or not uid or len(uid) > 191:
            raise SignInError("IDENTITY_UID_MISSING")
        return uid

    def extract_common_fields(self, data: dict[str, Any]) -> dict[str, Any]:
        merged = merge_claims(data)
        found = {**super().extract_common_fields({"userinfo": merged})}
        if claim := self.app.settings.get("username_claim"):
            found["username"] = merged.get(claim)
        return {key: value[:150] if isinstance(value, str) else None for key, value in found.items()}

    def extract_email_addresses(self, data: dict[str, Any]) -> list[Any]:
        merged = merge_claims(data)
        merged["email_verified"] = merged.get("email_verified") is True
        return super().extract_email_addresses({"userinfo": merged})

    def verify_token(self, request: HttpRequest, token: Any) -> Any:
        raise get_adapter().validation_error("invalid_token")


def merge_claims(data: dict[str, Any]) -> dict[str, Any]:
    """Return the claims of both answers; those of the signed token count."""
    return {**data.get("userinfo", {}), **data["id_token"]}
