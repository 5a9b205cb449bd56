"""Requests for access from devices without a browser (RFC 8628): a person types the code that the device shows."""

import string
from collections.abc import Sequence
from dataclasses import dataclass

from allauth.core import context
from allauth.core.internal import ratelimit
from allauth.idp.oidc.internal.oauthlib import device_codes
from allauth.idp.oidc.models import Client
from django.core.cache import cache
from django.core.exceptions import ValidationError

from apps.accounts import audit
from apps.accounts.models import User
from apps.common.errors import ApiError
from apps.oauth.services import clients, grants

USER_CODE_DIGITS = 8


@dataclass(frozen=True, slots=True)
class DeviceRequest:
    """A device that waits for somebody. `device_code`: by which it asks; never shown."""

    device_code: str
    client: Client
    scopes: list[str]


def read_device_request(user: User, code: str) -> DeviceRequest:
    """Return the request behind the code that the device shows. Raises ApiError 404 OAUTH_DEVICE_UNKNOWN, and 429 for
    somebody who tries codes."""
    if not ratelimit.consume(
        context.request, action="device_user_code", app="allauth.idp.oidc", user=user, limit_get=True
    ):
        raise ApiError(429, "OAUTH_DEVICE_TRIES")
    digits = code.translate(str.maketrans("", "", string.punctuation + string.whitespace)).upper()
    half = USER_CODE_DIGITS // 2
    try:
        device_code, found = device_codes.validate_user_code(f"{digits[:half]}-{digits[half:]}")
    except ValidationError:
        raise ApiError(404, "OAUTH_DEVICE_UNKNOWN", "code") from None
    data = cache.get(device_codes.cache_device_code_key(device_code)) or {}
    client = clients.find_client(found.pk) or found
    return DeviceRequest(device_code, client, list(dict.fromkeys(data.get("scope") or client.get_default_scopes())))


def deny_device(user: User, asked: DeviceRequest) -> None:
    """Record that the person denied the request; the device learns it when it asks next."""
    audit.record_event(user, "oauth.deny", asked.client.pk, name=asked.client.name)
    device_codes.confirm_or_deny_device_code(user, asked.device_code, confirm=False)


def grant_device(
    user: User, asked: DeviceRequest, *, scopes: Sequence[str], projects: Sequence[str] | None, days: int
) -> None:
    """Grant the request, or part of it; the device gets its token when it asks next. Raises ApiError 400 for more than
    was offered."""
    grants.check_choice(user, grants.list_offers(user, asked.scopes), scopes, projects)
    grants.create_grant(user, asked.client, asked.device_code, scopes=scopes, projects=projects, days=days)
    if not device_codes.confirm_or_deny_device_code(user, asked.device_code, confirm=True):
        raise ApiError(404, "OAUTH_DEVICE_UNKNOWN", "code")
