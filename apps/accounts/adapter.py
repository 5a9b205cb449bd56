"""How allauth behaves here."""

from allauth.account.adapter import DefaultAccountAdapter
from django.conf import settings
from django.http import HttpRequest


class AccountAdapter(DefaultAccountAdapter):
    def is_open_for_signup(self, request: HttpRequest) -> bool:
        """Accounts are made by an administrator, unless FERMI_SIGNUP opens the door."""
        return bool(settings.SIGNUP)
