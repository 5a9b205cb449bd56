"""Settings of django-allauth for this platform."""

from allauth.account.adapter import DefaultAccountAdapter
from django.conf import settings
from django.http import HttpRequest


class AccountAdapter(DefaultAccountAdapter):
    def is_open_for_signup(self, request: HttpRequest) -> bool:
        """Return True if FERMI_SIGNUP is set. Otherwise an administrator creates the accounts."""
        return bool(settings.SIGNUP)
