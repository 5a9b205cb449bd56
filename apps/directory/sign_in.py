"""Applies the rules when somebody has signed in by a provider, and when a provider has sent claims since."""

from typing import Any

from allauth.account.signals import user_logged_in
from allauth.socialaccount.models import SocialAccount
from django.dispatch import receiver

from apps.accounts.models import User
from apps.directory.application import apply_rules
from apps.identity.environment import LDAP_ID
from apps.identity.signals import claims_read


@receiver(user_logged_in)
def apply_rules_at_sign_in(request: Any, user: User, **values: Any) -> None:
    """Make the person's roles those of the claims that the provider has just sent. Of allauth's signals only this one
    means that the person was let in: it is sent after the second factor. A password of the directory comes without
    `sociallogin`; what the directory said is stored all the same."""
    if values.get("sociallogin") is not None or SocialAccount.objects.filter(user=user, provider=LDAP_ID).exists():
        apply_rules([user])


@receiver(claims_read)
def apply_rules_to_claims(account: SocialAccount, **values: Any) -> None:
    """Make the person's roles those of the claims that were read just now."""
    apply_rules([account.user])
