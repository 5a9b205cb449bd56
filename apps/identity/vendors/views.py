"""Where vendors send people back to."""

from typing import Any

from allauth.socialaccount.models import SocialApp, SocialLogin, SocialToken
from allauth.socialaccount.providers.oauth2.views import OAuth2Adapter
from django.http import HttpRequest, HttpResponseBase
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET

from apps.identity.adapter import redirect_refused
from apps.identity.configuration import ALLAUTH_PROVIDERS
from apps.identity.errors import SignInError
from apps.identity.oidc.views import OpenIdCallbackView
from apps.identity.paths import make_callback_url
from apps.identity.selectors import find_configuration
from apps.identity.trial import show_claims
from apps.identity.vendors.person import VendorPerson

MAX_CODE_LENGTH = 2_000


class VendorAdapter(OAuth2Adapter):
    """One sign-in by a vendor. `state`: what was stored when it began."""

    def __init__(self, request: HttpRequest, provider_id: str) -> None:
        super().__init__(request)
        self.provider_id = provider_id
        self.state: dict[str, Any] = {}

    def get_client(self, request: HttpRequest, app: SocialApp) -> None:
        """Return none: the vendors' own calls replace it."""

    def get_access_token_data(
        self, request: HttpRequest, app: SocialApp, client: Any, pkce_code_verifier: str | None = None
    ) -> dict[str, Any]:
        """Return whose code it is. Raises SignInError and requests.RequestException."""
        code = request.GET["code"]
        if len(code) > MAX_CODE_LENGTH:
            raise SignInError("IDENTITY_CODE_REFUSED", f"more than {MAX_CODE_LENGTH} characters")
        callback_url = make_callback_url(request, self.provider_id, app.settings["kind"])
        vendor = self.get_provider().vendor
        return {"person": vendor.fetch_person(app, code, callback_url, pkce_code_verifier or "")}

    def parse_token(self, data: dict[str, Any]) -> SocialToken:
        return SocialToken(token="")  # none is stored

    def complete_login(self, request: HttpRequest, app: SocialApp, token: SocialToken, **kwargs: Any) -> SocialLogin:
        """Return who signed in. Raises SignInError for people of other organisations than the provider's own."""
        person: VendorPerson = kwargs["response"]["person"]
        provider = self.get_provider()
        setting = provider.vendor.tenant_setting
        expected = app.settings.get(setting) if setting else app.client_id
        is_own = bool(expected) and person.tenant == expected
        if not is_own and not self.state.get("test"):
            raise SignInError("IDENTITY_TENANT_OTHER", f"{setting or 'client_id'} {person.tenant!r}")
        login = provider.sociallogin_from_response(request, person.claims)
        if self.state.get("test"):  # an administrator learns here what the organisation's id is
            show_claims(request, login, "IDENTITY_TRIAL_DONE" if is_own else "IDENTITY_TENANT_OTHER")
        return login


class VendorCallbackView(OpenIdCallbackView):
    """Refuses what belongs to no sign-in that this browser began at this provider."""

    adapter: Any

    def _get_state(self, request: HttpRequest, provider: Any) -> tuple[Any, Any]:
        state, response = super()._get_state(request, provider)
        if state is not None and response is None and not request.GET.get("code") and "error" not in request.GET:
            return None, redirect_refused(request, "IDENTITY_CANCELLED", "no code")
        return state, response


@never_cache
@require_GET
def complete_sign_in(request: HttpRequest, provider_id: str) -> HttpResponseBase:
    """Sign in whom the vendor sends back, and redirect to where the sign-in began."""
    configuration = find_configuration(provider_id, enabled=None)
    if configuration is None or ALLAUTH_PROVIDERS.get(configuration.kind) != "vendor_login":
        return redirect_refused(request, "IDENTITY_PROVIDER_UNKNOWN")
    request.identity_provider = configuration  # type: ignore[attr-defined]  # a disabled one may be tested
    _rename_code(request)
    try:
        return VendorCallbackView.adapter_view(VendorAdapter(request, provider_id))(request)
    except SocialApp.DoesNotExist:
        return redirect_refused(request, "IDENTITY_PROVIDER_UNKNOWN")
    except (KeyError, ValueError, TypeError) as error:  # an answer of another shape than the documented one
        return redirect_refused(request, "IDENTITY_ANSWER", f"{type(error).__name__} at {provider_id}")


def _rename_code(request: HttpRequest) -> None:
    """Make DingTalk's `authCode` the `code` that allauth reads."""
    if "authCode" in request.GET:
        values = request.GET.copy()
        values["code"] = request.GET["authCode"]
        request.GET = values  # type: ignore[assignment]
