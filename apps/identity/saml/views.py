"""Where a SAML provider sends people back to.

    provider's page ──form by POST──▶ acs ──redirect──▶ acs/finish ──▶ where the sign-in began

The form comes from another site, so it brings no cookie of our session. `acs` checks the assertion before anything is
stored, and keeps what it says in a session of its own for the redirect, which brings both cookies.
"""

from dataclasses import fields
from typing import Any

from allauth.core.exceptions import ImmediateHttpResponse
from allauth.socialaccount.adapter import get_adapter
from allauth.socialaccount.helpers import complete_social_login
from allauth.socialaccount.models import SocialApp
from allauth.socialaccount.sessions import LoginSession
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_GET, require_POST

from apps.identity.adapter import redirect_refused
from apps.identity.errors import SignInError
from apps.identity.models import ProviderKind
from apps.identity.saml.answers import SamlAnswer
from apps.identity.saml.provider import make_addresses
from apps.identity.selectors import find_configuration
from apps.identity.trial import show_claims

ANSWER_SECONDS = 120
COOKIE = "saml-acs-session"
_KEY = "saml_answer"


@csrf_exempt
@never_cache
@require_POST
def receive_response(request: HttpRequest, provider_id: str) -> HttpResponseBase:
    """Check a provider's response, and go on with this browser's session. Its RelayState counts for nothing."""
    from apps.identity.saml.messages import read_response

    configuration = _find_provider(provider_id)
    if configuration is None:
        return redirect_refused(request, "IDENTITY_PROVIDER_UNKNOWN")
    addresses = make_addresses(request, provider_id)
    try:
        answer = read_response(configuration.settings, addresses, request.POST.get("SAMLResponse", ""))
    except SignInError as error:
        return redirect_refused(request, error.code, error.detail)
    going_on = HttpResponseRedirect(reverse("saml_finish_acs", args=[provider_id]))
    request.COOKIES.pop(COOKIE, None)  # whatever it names is not this answer's
    store = _open_store(request)
    store.store[_KEY] = {"provider": provider_id, **answer.serialize()}
    store.store.set_expiry(ANSWER_SECONDS)
    store.save(going_on)
    going_on.cookies[COOKIE]["httponly"] = True
    return going_on


@never_cache
@require_GET
def complete_sign_in(request: HttpRequest, provider_id: str) -> HttpResponseBase:
    """Sign in whom the response is about, if this browser began the sign-in here and the response is its first."""
    configuration = _find_provider(provider_id)
    if configuration is None:
        return redirect_refused(request, "IDENTITY_PROVIDER_UNKNOWN")
    store = _open_store(request)
    found: dict[str, Any] = store.store.get(_KEY) or {}
    store.delete()
    if found.get("provider") != provider_id:
        return redirect_refused(request, "IDENTITY_STATE_UNKNOWN")
    answer = SamlAnswer(**{one.name: found[one.name] for one in fields(SamlAnswer)})
    request.identity_provider = configuration  # type: ignore[attr-defined]  # a disabled one may be tried
    try:
        provider = get_adapter(request).get_provider(request, provider_id)
        state = provider.unstash_redirect_state(request, answer.request_id)
        if not configuration.enabled and not state.get("test"):
            return redirect_refused(request, "IDENTITY_PROVIDER_UNKNOWN")
        login = provider.sociallogin_from_response(request, answer)
        login.state = state
        if state.get("test"):
            show_claims(request, login)
        return complete_social_login(request, login)
    except PermissionDenied:
        return redirect_refused(request, "IDENTITY_STATE_UNKNOWN")
    except SocialApp.DoesNotExist:
        return redirect_refused(request, "IDENTITY_PROVIDER_UNKNOWN")
    except SignInError as error:
        return redirect_refused(request, error.code, error.detail)
    except ImmediateHttpResponse as shown:
        return shown.response


@require_GET
def serve_metadata(request: HttpRequest, provider_id: str) -> HttpResponseBase:
    """Serve what a provider reads about this platform. 404 for a provider that is not there."""
    from apps.identity.saml.messages import render_metadata

    configuration = _find_provider(provider_id)
    if configuration is None:
        return HttpResponse(status=404)
    try:
        metadata = render_metadata(configuration.settings, make_addresses(request, provider_id))
    except (ValueError, KeyError):
        return HttpResponse(status=404)
    return HttpResponse(metadata, content_type="application/samlmetadata+xml")


def _find_provider(provider_id: str) -> Any:
    configuration = find_configuration(provider_id, enabled=None)
    return configuration if configuration is not None and configuration.kind == ProviderKind.SAML else None


def _open_store(request: HttpRequest) -> LoginSession:
    return LoginSession(request, "saml_acs_session", COOKIE)
