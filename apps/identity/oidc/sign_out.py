"""Where a browser goes to sign out at the provider, too (OpenID Connect RP-Initiated Logout 1.0)."""

import logging
from urllib.parse import urlencode

import requests
from django.http import HttpRequest

from apps.identity.errors import SignInError
from apps.identity.models import ProviderSession
from apps.identity.oidc.description import read_known_description
from apps.identity.paths import make_address
from apps.identity.provider_sessions import ROW_KEY
from apps.identity.provider_settings import OPENID_KINDS, check_address
from apps.identity.selectors import find_configuration

log = logging.getLogger(__name__)

SIGN_IN_PATH = "/sign-in"


def find_sign_out_address(request: HttpRequest) -> str | None:
    """Return the address for a session that began by a provider whose settings say so. None for every other session,
    and where the provider does not answer or has no such address: then the person is signed out here alone."""
    row = ProviderSession.objects.filter(pk=request.session.get(ROW_KEY) or 0, user=request.user.pk).first()
    configuration = find_configuration(row.provider, enabled=None) if row else None
    if row is None or configuration is None or configuration.kind not in OPENID_KINDS:
        return None
    if not configuration.settings.get("sign_out_there"):
        return None
    try:
        address = read_known_description(configuration.settings["server_url"]).get("end_session_endpoint")
    except (requests.RequestException, SignInError) as error:
        log.warning("the provider %s cannot be asked where people sign out: %s", configuration.id, error)
        return None
    if not isinstance(address, str) or check_address(address.partition("?")[0]):
        return None
    parameters = {
        "client_id": configuration.client_id,
        "logout_hint": row.subject,
        "post_logout_redirect_uri": make_address(request, SIGN_IN_PATH),
    }
    return f"{address}{'&' if '?' in address else '?'}{urlencode(parameters)}"
