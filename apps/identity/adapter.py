"""Settings of allauth for accounts at providers: which there are, and who may sign in by them."""

import logging
from typing import Any, NoReturn
from urllib.parse import urlencode

import requests
from allauth.account.internal.userkit import filter_users_by_email
from allauth.core.exceptions import ImmediateHttpResponse
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter
from allauth.socialaccount.models import SocialApp, SocialLogin
from allauth.socialaccount.providers import registry
from allauth.socialaccount.providers.base.constants import AuthError, AuthProcess
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponseRedirect

from apps.identity.claims import are_storable
from apps.identity.configuration import ALLAUTH_PROVIDERS, ProviderConfiguration
from apps.identity.errors import SignInError
from apps.identity.http import ProviderSession
from apps.identity.issuers import accept_issuer
from apps.identity.models import ProviderKind
from apps.identity.selectors import find_configuration, list_configurations

log = logging.getLogger(__name__)


class SocialAccountAdapter(DefaultSocialAccountAdapter):
    def list_apps(
        self, request: HttpRequest, provider: str | None = None, client_id: str | None = None
    ) -> list[SocialApp]:
        """Return the enabled providers as allauth's rows, unsaved: its own table has none. `provider`: an id of
        ours, or a class of allauth."""
        registry.load()  # not by the app's start: see `allauth_app`
        found = list_configurations()
        tested = getattr(request, "identity_provider", None)
        if tested is not None and not tested.enabled:
            found.append(tested)
        apps = [make_app(one) for one in found if one.kind in ALLAUTH_PROVIDERS]
        return [
            app
            for app in apps
            if provider in (None, app.provider_id, app.provider) and client_id in (None, app.client_id)
        ]

    def get_requests_session(self) -> requests.Session:
        return ProviderSession()

    def on_authentication_error(
        self,
        request: HttpRequest,
        provider: Any,
        error: Any = None,
        exception: Exception | None = None,
        extra_context: dict[str, Any] | None = None,
    ) -> None:
        """Redirect to the sign-in page, which shows why."""
        raise ImmediateHttpResponse(redirect_refused(request, *_explain(error, exception)))

    def is_open_for_signup(self, request: HttpRequest, sociallogin: SocialLogin) -> bool:
        return True  # pre_social_login has decided

    def populate_user(self, request: HttpRequest, sociallogin: SocialLogin, data: dict[str, Any]) -> Any:
        """Fill in a new account. allauth calls it before it looks any account up, so it refuses here a provider whose
        links mean the people of another issuer, and claims that cannot be stored."""
        if not are_storable([sociallogin.account.uid, sociallogin.account.extra_data, data]):
            _refuse(request, "IDENTITY_ANSWER")
        configuration = find_configuration(sociallogin.account.provider, enabled=None)
        if configuration is None or not accept_issuer(configuration):
            _refuse(request, "IDENTITY_ISSUER_CHANGED")
        return super().populate_user(request, sociallogin, data)

    def pre_social_login(self, request: HttpRequest, sociallogin: SocialLogin) -> None:
        """Refuse whom the provider's settings do not let in. Nobody gets into an existing account by an address that
        the provider names, unless its settings say so for verified ones."""
        settings = sociallogin.provider.app.settings
        if sociallogin.state.get("process", AuthProcess.LOGIN) != AuthProcess.LOGIN:
            _refuse(request, "IDENTITY_LINK_CLOSED")
        domains = {one.lower() for one in settings.get("allowed_domains", ())}
        if domains and not domains & _list_domains(sociallogin):
            _refuse(request, "IDENTITY_DOMAIN")
        if sociallogin.is_existing:
            if not sociallogin.user.is_active:
                _refuse(request, "IDENTITY_USER_INACTIVE")
            return
        if not settings.get("create_users", True):
            _refuse(request, "IDENTITY_USER_UNKNOWN")
        if any(filter_users_by_email(one.email) for one in sociallogin.email_addresses):
            _refuse(request, "IDENTITY_EMAIL_TAKEN")

    def authenticate_by_email(self, sociallogin: SocialLogin) -> Any:
        """Return the account with a verified address of the provider, where its settings link by it; never an
        administrator's or a service account."""
        found = super().authenticate_by_email(sociallogin)
        if found and (found[0].is_superuser or found[0].service_project_id or not found[0].is_active):
            return None
        return found

    def send_notification_mail(self, *args: Any, **kwargs: Any) -> None:
        """Send none: the platform has no mail server of its own."""


def _list_domains(sociallogin: SocialLogin) -> set[str]:
    """Return the domains that a person belongs to: those of verified addresses. Anybody can make a Google account with
    an address of a domain while its mail reaches them, so there it is the organisation that the ID token names."""
    if sociallogin.provider.app.settings.get("kind") == ProviderKind.GOOGLE:
        organisation = sociallogin.account.extra_data["id_token"].get("hd")
        return {organisation.lower()} if isinstance(organisation, str) else set()
    return {one.email.rpartition("@")[2].lower() for one in sociallogin.email_addresses if one.verified}


def make_app(configuration: ProviderConfiguration) -> SocialApp:
    """Return a provider as allauth reads it."""
    settings = configuration.settings
    return SocialApp(
        provider=ALLAUTH_PROVIDERS[configuration.kind],
        provider_id=configuration.id,
        name=configuration.name,
        client_id=configuration.client_id,
        secret=configuration.secret,
        settings={
            **settings,
            "kind": configuration.kind,
            "enabled": configuration.enabled,
            "email_authentication": settings.get("link_by_verified_email") is True,
        },
    )


def redirect_refused(request: HttpRequest, code: str, detail: str = "") -> HttpResponseRedirect:
    """Return a redirect to the sign-in page, which shows the code's text."""
    log.warning("a sign-in by a provider was refused: %s %s", code, detail)
    return HttpResponseRedirect(f"/sign-in?{urlencode({'error': code})}")


def _refuse(request: HttpRequest, code: str) -> NoReturn:
    raise ImmediateHttpResponse(redirect_refused(request, code))


def _explain(error: Any, exception: Exception | None) -> tuple[str, str]:
    """Return the code for the sign-in page, and details for the log."""
    if isinstance(exception, SignInError):
        return exception.code, exception.detail
    if isinstance(exception, requests.RequestException):
        return "IDENTITY_PROVIDER_SILENT", str(exception)[:500]
    if isinstance(exception, ValidationError):
        fields = getattr(exception, "error_dict", {})
        return ("IDENTITY_ADDRESS_FOREIGN" if "callback_url" in fields else "IDENTITY_PROVIDER_UNKNOWN"), ""
    if exception is not None:
        return "IDENTITY_CODE_REFUSED", type(exception).__name__
    if error == AuthError.CANCELLED:
        return "IDENTITY_CANCELLED", ""
    return "IDENTITY_STATE_UNKNOWN", ""
