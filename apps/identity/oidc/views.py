"""Where an OpenID Connect provider sends people back to."""

from collections.abc import Mapping
from typing import Any

from allauth.socialaccount.models import SocialApp, SocialLogin, SocialToken
from allauth.socialaccount.providers.oauth2.views import OAuth2CallbackView
from allauth.socialaccount.providers.openid_connect.views import OpenIDConnectOAuth2Adapter
from django.http import HttpRequest, HttpResponseBase
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET

from apps.identity.adapter import redirect_refused
from apps.identity.errors import SignInError
from apps.identity.grants import encrypt_grant
from apps.identity.oidc.description import fetch_json, read_description
from apps.identity.oidc.id_token import verify_id_token
from apps.identity.paths import make_callback_url
from apps.identity.provider_settings import OPENID_KINDS
from apps.identity.selectors import find_configuration
from apps.identity.trial import show_claims


class OpenIdAdapter(OpenIDConnectOAuth2Adapter):
    """One sign-in by OpenID Connect. `state`: what was stored when it began."""

    state: Mapping[str, Any] = {}

    @property
    def openid_config(self) -> dict[str, Any]:
        """Return the provider's description of itself. Raises SignInError and requests.RequestException."""
        if not hasattr(self, "_openid_config"):
            self._openid_config = read_description(self.get_provider().server_url)
        return self._openid_config

    def get_callback_url(self, request: HttpRequest, app: SocialApp) -> str:
        return make_callback_url(request, self.provider_id)

    def get_access_token_data(
        self, request: HttpRequest, app: SocialApp, client: Any, pkce_code_verifier: str | None = None
    ) -> Any:
        """Return the provider's answer to the code. Raises SignInError where the code came from another provider (RFC
        9207): it is not sent to this one."""
        issuer = request.GET.get("iss")
        expects = self.openid_config.get("authorization_response_iss_parameter_supported") is True
        if issuer != self.openid_config["issuer"] and (issuer is not None or expects):
            raise SignInError("IDENTITY_ISSUER_OTHER", f"iss {str(issuer)[:200]!r}")
        return super().get_access_token_data(request, app, client, pkce_code_verifier)

    def complete_login(self, request: HttpRequest, app: SocialApp, token: SocialToken, **kwargs: Any) -> SocialLogin:
        """Return who signed in, from a verified ID token. Raises SignInError and requests.RequestException."""
        claims = verify_id_token(
            kwargs["response"].get("id_token"),
            issuer=self.openid_config["issuer"],
            client_id=app.client_id,
            nonce=str(self.state.get("nonce") or ""),
            keys_url=self.openid_config["jwks_uri"],
            fetch=fetch_json,
        )
        data: dict[str, Any] = {"id_token": claims}
        if app.settings.get("fetch_userinfo", True) and self.openid_config.get("userinfo_endpoint"):
            info = self._fetch_user_info(token.token)
            if not isinstance(info, dict) or info.get("sub") != claims["sub"]:
                raise SignInError("IDENTITY_USERINFO_OTHER")
            data["userinfo"] = info
        token.token, token.token_secret = "", encrypt_grant(kwargs["response"], app.settings)
        login = self.get_provider().sociallogin_from_response(request, data)
        if self.state.get("test"):
            show_claims(request, login)
        return login


class OpenIdCallbackView(OAuth2CallbackView):
    """Refuses what belongs to no sign-in that this browser began at this provider."""

    adapter: OpenIdAdapter

    def _get_state(self, request: HttpRequest, provider: Any) -> tuple[Any, Any]:
        state, response = super()._get_state(request, provider)
        if state is not None:
            self.adapter.state = state
            if not provider.app.settings["enabled"] and not state.get("test"):
                return None, redirect_refused(request, "IDENTITY_PROVIDER_UNKNOWN")
        return state, response


@never_cache
@require_GET
def complete_sign_in(request: HttpRequest, provider_id: str) -> HttpResponseBase:
    """Sign in whom the provider sends back, and redirect to where the sign-in began."""
    configuration = find_configuration(provider_id, enabled=None)
    if configuration is None or configuration.kind not in OPENID_KINDS:
        return redirect_refused(request, "IDENTITY_PROVIDER_UNKNOWN")
    request.identity_provider = configuration  # type: ignore[attr-defined]  # a disabled one may be tested
    try:
        return OpenIdCallbackView.adapter_view(OpenIdAdapter(request, provider_id))(request)
    except SocialApp.DoesNotExist:
        return redirect_refused(request, "IDENTITY_PROVIDER_UNKNOWN")
    except (KeyError, ValueError, TypeError) as error:  # an answer of another shape than the standard's
        return redirect_refused(request, "IDENTITY_ANSWER", f"{type(error).__name__} at {provider_id}")
