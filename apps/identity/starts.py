"""How a sign-in begins, by kind of provider. A kind that is not in the table cannot be stored: nobody could use it."""

from collections.abc import Callable, Mapping
from typing import Any

from allauth.socialaccount.adapter import get_adapter
from allauth.socialaccount.models import SocialApp
from allauth.socialaccount.providers.base.constants import AuthProcess
from django.http import HttpRequest

from apps.common.errors import ApiError
from apps.identity.configuration import ProviderConfiguration
from apps.identity.models import ProviderKind

Start = Callable[[HttpRequest, ProviderConfiguration, str, Mapping[str, Any]], str]
"""Returns where the browser goes now, from the request, the provider, the path to return to, and what the session
stores until the sign-in ends. Raises ApiError."""


def start_by_allauth(
    request: HttpRequest, configuration: ProviderConfiguration, next_url: str, state: Mapping[str, Any]
) -> str:
    """Return the address of the provider, or of the sign-in page with the reason. Raises ApiError 404."""
    request.identity_provider = configuration  # type: ignore[attr-defined]  # a disabled one may be tried
    try:
        provider = get_adapter(request).get_provider(request, configuration.id)
    except SocialApp.DoesNotExist:
        raise ApiError(404, "NOT_FOUND") from None
    answer = provider.redirect(request, AuthProcess.LOGIN, next_url=next_url, headless=True, **state)
    return str(answer["Location"])


STARTS: Mapping[str, Start] = {
    ProviderKind.OPENID_CONNECT: start_by_allauth,
    ProviderKind.GOOGLE: start_by_allauth,
    ProviderKind.GITLAB: start_by_allauth,
    ProviderKind.MICROSOFT: start_by_allauth,
    ProviderKind.OKTA: start_by_allauth,
    ProviderKind.KEYCLOAK: start_by_allauth,
    ProviderKind.AUTHENTIK: start_by_allauth,
    ProviderKind.FEISHU: start_by_allauth,
    ProviderKind.LARK: start_by_allauth,
    ProviderKind.DINGTALK: start_by_allauth,
    ProviderKind.WECOM: start_by_allauth,
    ProviderKind.SAML: start_by_allauth,
}
