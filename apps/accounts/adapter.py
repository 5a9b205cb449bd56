"""Settings of django-allauth for this platform."""

from typing import Any

from allauth.account.adapter import DefaultAccountAdapter
from allauth.socialaccount.models import SocialAccount
from django.conf import settings
from django.http import HttpRequest
from django.utils.functional import lazy

from apps.accounts.access import AnyUser
from apps.common.texts import render_text

LOCAL_ACCOUNTS_OFF = "local_accounts_off"
"""Code of allauth's answer to a password where FERMI_LOCAL_ACCOUNTS is off."""
PASSWORD_ELSEWHERE = "password_elsewhere"
"""Code of its answer to a new password of somebody whose password is the directory's."""
LDAP_ID = "ldap"
"""The provider in the links of the directory's people (`apps.identity.ldap`, which is above this app)."""


class AccountAdapter(DefaultAccountAdapter):
    error_messages = {
        **DefaultAccountAdapter.error_messages,
        LOCAL_ACCOUNTS_OFF: lazy(lambda: render_text("LOCAL_ACCOUNTS_OFF")[0], str)(),
        PASSWORD_ELSEWHERE: lazy(lambda: render_text("PASSWORD_ELSEWHERE")[0], str)(),
    }

    def is_open_for_signup(self, request: HttpRequest) -> bool:
        """Return True if FERMI_SIGNUP is set. Otherwise an administrator creates the accounts."""
        return bool(settings.SIGNUP and settings.LOCAL_ACCOUNTS)

    def pre_authenticate(self, request: HttpRequest, **credentials: Any) -> None:
        """Refuse passwords where people sign in by a provider alone, right ones and wrong ones alike."""
        if not settings.LOCAL_ACCOUNTS and not settings.LDAP:
            raise self.validation_error(LOCAL_ACCOUNTS_OFF)
        super().pre_authenticate(request, **credentials)

    def authenticate(self, request: HttpRequest, **credentials: Any) -> AnyUser | None:
        """Return whose password it is. Where only the directory's count, a local one is as good as a wrong one."""
        user = super().authenticate(request, **credentials)
        if user is not None and not settings.LOCAL_ACCOUNTS:
            return user if getattr(user, "backend", "") == settings.LDAP_BACKEND else None
        return user

    def clean_password(self, password: str, user: Any = None) -> str:
        """Return a new password that may be stored. Refuse all of them where none would open anything, and for people
        of the directory: theirs would still open the account when the directory no longer does."""
        if not settings.LOCAL_ACCOUNTS:
            raise self.validation_error(LOCAL_ACCOUNTS_OFF)
        if user is not None and user.pk and SocialAccount.objects.filter(user=user, provider=LDAP_ID).exists():
            raise self.validation_error(PASSWORD_ELSEWHERE)
        return super().clean_password(password, user)
