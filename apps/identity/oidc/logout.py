"""Where an OpenID Connect provider says that a person has signed out there (Back-Channel Logout 1.0)."""

import hashlib
import logging
from datetime import UTC, datetime

import requests
from django.conf import settings
from django.db import IntegrityError, transaction
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from apps.common import rate_limits, request_id
from apps.common.rate_limits import RateState
from apps.common.texts import render_text
from apps.identity.configuration import ProviderConfiguration
from apps.identity.errors import SignInError
from apps.identity.models import UsedLogoutToken
from apps.identity.oidc.description import fetch_json, read_known_description
from apps.identity.oidc.logout_token import LogoutRequest, verify_logout_token
from apps.identity.oidc.signed_token import MAX_TOKEN_LENGTH
from apps.identity.provider_sessions import end_provider_sessions
from apps.identity.provider_settings import OPENID_KINDS
from apps.identity.selectors import find_configuration

log = logging.getLogger(__name__)

MAX_BODY_BYTES = MAX_TOKEN_LENGTH + 10_000
FORM = "application/x-www-form-urlencoded"
REASON = "signed out at the provider"


@csrf_exempt
@require_POST
def end_sessions_by_token(request: HttpRequest, provider_id: str) -> HttpResponse:
    """End the sessions that a logout token names: 200, also where none is left; 400 for a token that does not count."""
    state = rate_limits.count_request(
        "logout", request_id.get_client_address() or "unknown", settings.RATE_LIMIT_ANONYMOUS
    )
    if state and not state.allowed:
        return _refuse("SIGN_INS_TOO_MANY", state)
    configuration = find_configuration(provider_id, enabled=None)
    try:
        if configuration is None or configuration.kind not in OPENID_KINDS:
            raise SignInError("IDENTITY_PROVIDER_UNKNOWN")
        asked = _read_request(request, configuration)
        ended = _end_once(provider_id, asked)
    except SignInError as error:
        log.warning("a logout of the provider %s was refused: %s", provider_id[:40], error)
        return _refuse(error.code)
    except requests.RequestException as error:
        log.warning("a logout of the provider %s cannot be checked: %s", provider_id[:40], str(error)[:500])
        return _refuse("IDENTITY_PROVIDER_SILENT")
    except (KeyError, ValueError, TypeError, OverflowError) as error:  # of another shape than the standard's
        log.warning("a logout of the provider %s cannot be read: %s", provider_id[:40], type(error).__name__)
        return _refuse("IDENTITY_ANSWER")
    log.info("a logout of the provider %s ended %d sessions", provider_id, ended)
    return HttpResponse(headers={"Cache-Control": "no-store"})


def _read_request(request: HttpRequest, configuration: ProviderConfiguration) -> LogoutRequest:
    """Return the verified request. Raises SignInError and requests.RequestException."""
    length = request.headers.get("Content-Length", "")
    if request.content_type != FORM or not length.isdecimal() or int(length[:20]) > MAX_BODY_BYTES:
        raise SignInError("IDENTITY_LOGOUT_FORM")
    tokens = request.POST.getlist("logout_token")
    if len(tokens) != 1:
        raise SignInError("IDENTITY_LOGOUT_FORM")
    description = read_known_description(configuration.settings["server_url"])
    return verify_logout_token(
        tokens[0],
        issuer=description["issuer"],
        client_id=configuration.client_id,
        keys_url=description["jwks_uri"],
        fetch=fetch_json,
    )


def _end_once(provider_id: str, asked: LogoutRequest) -> int:
    """End the sessions and return how many. Raises SignInError for a token that came before."""
    digest = hashlib.sha256(f"{provider_id}\n{asked.token_id}".encode()).hexdigest()
    try:
        with transaction.atomic():
            UsedLogoutToken.objects.create(digest=digest, expires_at=datetime.fromtimestamp(asked.ends_at, UTC))
            return end_provider_sessions(provider_id, subject=asked.subject, sid=asked.sid, reason=REASON)
    except IntegrityError:
        raise SignInError("IDENTITY_LOGOUT_REPLAYED") from None


def _refuse(code: str, state: RateState | None = None) -> HttpResponse:
    """Return the answer of section 2.8, which is that of OAuth 2.0 (RFC 6749, section 5.2). `state`: of the limit that
    was exceeded."""
    params = {"seconds": state.retry_after, "limit": state.limit} if state else {}
    content = {"error": "invalid_request", "error_description": f"{code}: {render_text(code, params, 'en')[0]}"}
    headers = {"Cache-Control": "no-store", **(rate_limits.build_headers(state) if state else {})}
    return JsonResponse(content, status=429 if state else 400, headers=headers)
