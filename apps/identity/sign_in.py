"""Records each sign-in, and stores what later ends a session that begins by a provider."""

from typing import Any

from allauth.account.signals import user_logged_in
from django.contrib.auth.signals import user_logged_out
from django.dispatch import receiver

from apps.accounts import audit
from apps.accounts.models import User
from apps.identity import grants, provider_sessions


@receiver(user_logged_in)
def record_sign_in(request: Any, user: User, **values: Any) -> None:
    """Record a sign-in that was let in, and store the session and the grant of one by a provider: the signal is sent
    after the second factor. Sign-in links are recorded where they are redeemed."""
    login = values.get("sociallogin")
    audit.record_event(user, "user.sign-in", user.username, by=login.account.provider if login else "password")
    if login is not None:
        provider_sessions.begin_session(request, user, login.account)
        grants.store_grant(login)


@receiver(user_logged_out)
def record_sign_out(request: Any, **values: Any) -> None:
    provider_sessions.delete_row(request)
