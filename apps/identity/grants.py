"""Refresh tokens, with which a provider is asked later whether it still vouches for a person. Each is stored encrypted,
and only where the provider's settings ask for one."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, TypeGuard

from allauth.socialaccount.models import SocialLogin
from django.conf import settings

from apps.accounts.encryption import encrypt_value
from apps.common.clock import now
from apps.identity.models import ProviderGrant

MAX_TOKEN_LENGTH = 20_000


def keeps_grants(values: Mapping[str, Any]) -> bool:
    """Return whether a provider of these settings is asked for access without the person, and asked again later."""
    offline = (values.get("auth_params") or {}).get("access_type") == "offline"  # Google's way
    return bool(settings.IDENTITY_RECHECK_SECONDS) and (offline or "offline_access" in (values.get("scopes") or ()))


def encrypt_grant(answer: Mapping[str, Any], values: Mapping[str, Any]) -> str:
    """Return the refresh token of a provider's answer, encrypted, or "" where there is none to store."""
    token = answer.get("refresh_token")
    return encrypt_value(token) if is_usable(token) and keeps_grants(values) else ""


def is_usable(token: Any) -> TypeGuard[str]:
    """Return whether this is a refresh token that can be stored."""
    return isinstance(token, str) and 0 < len(token) <= MAX_TOKEN_LENGTH


def store_grant(login: SocialLogin) -> None:
    """Store what `encrypt_grant` made of the sign-in. A provider that sends no new one has not ended the former one."""
    sealed = login.token.token_secret if login.token else ""
    if sealed:
        due_at = now() + timedelta(seconds=settings.IDENTITY_RECHECK_SECONDS)
        values = {"refresh_token": sealed, "due_at": due_at, "is_pending": False}
        ProviderGrant.objects.update_or_create(account=login.account, defaults=values)
