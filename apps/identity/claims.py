"""Which claims can be stored at all, and how those that come outside of a sign-in are."""

from collections.abc import Mapping
from typing import Any

from allauth.socialaccount.models import SocialAccount
from django.db import transaction

from apps.identity.signals import claims_read

MAX_CLAIM_DEPTH = 20


def are_storable(claims: Any) -> bool:
    """Return False for claims with U+0000 or half of a surrogate pair, which no database stores, and for deeper ones
    than MAX_CLAIM_DEPTH. Iterative, because somebody else wrote them."""
    left = [(claims, 1)]
    while left:
        value, depth = left.pop()
        if isinstance(value, str) and not is_storable_text(value):
            return False
        if isinstance(value, Mapping | list | tuple) and depth > MAX_CLAIM_DEPTH:
            return False
        if isinstance(value, Mapping):
            left += [(one, depth + 1) for pair in value.items() for one in pair]
        elif isinstance(value, list | tuple):
            left += [(one, depth + 1) for one in value]
    return True


def is_storable_text(text: str) -> bool:
    """Return False for a text with U+0000 or half of a surrogate pair."""
    return "\x00" not in text and not any("\ud800" <= character <= "\udfff" for character in text)


@transaction.atomic
def store_claims(account: SocialAccount, claims: dict[str, Any]) -> None:
    """Store what a provider says of a person now, and tell the apps above, which apply it in the same transaction."""
    account.extra_data = claims
    SocialAccount.objects.filter(pk=account.pk).update(extra_data=claims)
    claims_read.send(sender=SocialAccount, account=account)
