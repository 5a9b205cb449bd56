"""The vendors as one provider of allauth, which keeps the state of a sign-in and the links."""

from collections.abc import Mapping
from typing import Any

from allauth.socialaccount.adapter import get_adapter
from allauth.socialaccount.providers.base import ProviderAccount
from allauth.socialaccount.providers.oauth2.provider import OAuth2Provider
from allauth.socialaccount.providers.oauth2.utils import generate_code_challenge
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect

from apps.identity.errors import SignInError
from apps.identity.models import ProviderKind
from apps.identity.paths import get_safe_path, make_callback_url
from apps.identity.vendors.dingtalk import DINGTALK
from apps.identity.vendors.feishu import FEISHU, LARK
from apps.identity.vendors.person import Vendor
from apps.identity.vendors.views import VendorAdapter
from apps.identity.vendors.wecom import WECOM

VENDORS: Mapping[str, Vendor] = {
    ProviderKind.FEISHU: FEISHU,
    ProviderKind.LARK: LARK,
    ProviderKind.DINGTALK: DINGTALK,
    ProviderKind.WECOM: WECOM,
}


class VendorProvider(OAuth2Provider):
    """A provider of a kind in VENDORS. Its id is none that an administrator could choose for a provider."""

    id = "vendor_login"
    name = "Vendor"
    account_class = ProviderAccount
    package = "apps.identity.vendors"
    oauth2_adapter_class = VendorAdapter

    @property
    def vendor(self) -> Vendor:
        return VENDORS[self.app.settings["kind"]]

    def get_oauth2_adapter(self, request: HttpRequest) -> VendorAdapter:
        return VendorAdapter(request, self.app.provider_id)

    def redirect(
        self, request: HttpRequest, process: str, next_url: str | None = None, data: Any = None, **kwargs: Any
    ) -> HttpResponse:
        """Send the browser to the vendor."""
        challenge = generate_code_challenge() if self.vendor.has_pkce else {}
        verifier = challenge.pop("code_verifier", "")
        for name in ("headless", "scope", "auth_params"):
            kwargs.pop(name, None)
        state = self.stash_redirect_state(
            request, process, get_safe_path(next_url), data, pkce_code_verifier=verifier, headless=True, **kwargs
        )
        callback_url = make_callback_url(request, self.app.provider_id, self.app.settings["kind"])
        return HttpResponseRedirect(self.vendor.build_sign_in_url(self.app, callback_url, state, challenge))

    def extract_uid(self, data: dict[str, Any]) -> str:
        uid = data["userinfo"]["sub"]
        if not uid:
            raise SignInError("IDENTITY_UID_MISSING")
        return str(uid)

    def extract_common_fields(self, data: dict[str, Any]) -> dict[str, Any]:
        info = data["userinfo"]
        return {"username": info["preferred_username"], "first_name": info["name"]}

    def extract_email_addresses(self, data: dict[str, Any]) -> list[Any]:
        return []  # none of the vendors verifies the addresses that it knows

    def verify_token(self, request: HttpRequest, token: Any) -> Any:
        raise get_adapter().validation_error("invalid_token")
