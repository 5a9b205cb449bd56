"""Reading the inbox."""

from collections.abc import Sequence

from apps.accounts.models import User
from apps.common.clock import now
from apps.notices.models import Item


def mark_read(user: User, ids: Sequence[str] | None) -> int:
    """Mark incidents as read; None: all. Returns how many are unread then."""
    rows = Item.objects.filter(user=user, read_at=None)
    (rows if ids is None else rows.filter(incident__in=ids)).update(read_at=now())
    return count_unread(user)


def count_unread(user: User) -> int:
    return Item.objects.filter(user=user, read_at=None).count()
