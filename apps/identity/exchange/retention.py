"""Deletes what exchanges leave behind."""

from datetime import timedelta

from apps.accounts.tokens import delete_ended_tokens
from apps.common.clock import now
from apps.identity.exchange.models import UsedToken

KEPT_AFTER_END = timedelta(days=1)
"""For which time the list of a project's tokens shows those that have ended."""


def delete_expired() -> int:
    """Delete ID tokens that no one can present again, and the tokens of pipelines that have ended. Return how many
    there were."""
    deleted, _ = UsedToken.objects.filter(expires_at__lt=now()).delete()
    return deleted + delete_ended_tokens(now() - KEPT_AFTER_END)
