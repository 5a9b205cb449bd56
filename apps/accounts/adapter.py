"""Settings of django-allauth for this platform."""

from typing import Any

from allauth.account.adapter import DefaultAccountAdapter
from django.conf import settings
from django.http import HttpRequest
from django.utils.functional import lazy

from apps.common.texts import render_text

LOCAL_ACCOUNTS_OFF = "local_accounts_off"
"""Code of allauth's answer to a password where FERMI_LOCAL_ACCOUNTS is off."""


class AccountAdapter(DefaultAccountAdapter):
    error_messages = {
        **DefaultAccountAdapter.error_messages,
        LOCAL_ACCOUNTS_OFF: lazy(lambda: render_text("LOCAL_ACCOUNTS_OFF")[0], str)(),
    }

    def is_open_for_signup(self, request: HttpRequest) -> bool:
        """Return True if FERMI_SIGNUP is set. Otherwise an administrator creates the accounts."""
        return bool(settings.SIGNUP and settings.LOCAL_ACCOUNTS)

    def pre_authenticate(self, request: HttpRequest, **credentials: Any) -> None:
        """Refuse passwords where people sign in by a provider alone, right ones and wrong ones alike."""
        if not settings.LOCAL_ACCOUNTS:
            raise self.validation_error(LOCAL_ACCOUNTS_OFF)
        super().pre_authenticate(request, **credentials)
