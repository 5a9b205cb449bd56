"""Numbers for changes of what workers are to do, in the order in which they are committed."""

from django.db.models import F

from apps.workers import hints
from apps.workers.models import Revision


def following() -> int:
    """The next one, inside of a transaction: nobody else gets one until that ends. So a reader who has seen a number
    has seen everything before it, and two who change memberships do so one after the other."""
    if not Revision.objects.filter(pk=1).update(value=F("value") + 1):
        Revision.objects.bulk_create([Revision(pk=1)], ignore_conflicts=True)
        Revision.objects.filter(pk=1).update(value=F("value") + 1)
    hints.desired_changed()
    return newest()


def newest() -> int:
    return Revision.objects.filter(pk=1).values_list("value", flat=True).first() or 0
