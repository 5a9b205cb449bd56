"""Applies the rules when a provider begins or ceases to vouch for people."""

from typing import Any

from allauth.socialaccount.models import SocialAccount
from django.db import transaction
from django.db.models.signals import post_delete, post_save
from django.dispatch import receiver

from apps.directory.application import apply_rules
from apps.identity.models import IdentityProvider


@receiver(post_save, sender=IdentityProvider)
def apply_rules_after_change(instance: IdentityProvider, created: bool, **values: Any) -> None:
    """Make all roles those of the providers that are enabled, in the transaction that changed one."""
    if not created:
        apply_rules()


@receiver(post_delete, sender=IdentityProvider)
def apply_rules_after_deletion(**values: Any) -> None:
    """End the roles that came from a provider, in the transaction that deletes it."""
    apply_rules()


@receiver(post_delete, sender=SocialAccount)
def apply_rules_after_unlinking(**values: Any) -> None:
    """End the roles that came by a link, once for all links that a transaction deletes. `directory.apply` does it
    later, should the process end before."""
    pending = transaction.get_connection().run_on_commit
    if not any(callback is apply_rules for _, callback, *_ in pending):
        transaction.on_commit(apply_rules)
