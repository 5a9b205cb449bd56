"""Numbers of changes of what workers are to do, in the order of commits."""

from django.db import transaction
from django.db.models import F

from apps.common import pubsub
from apps.workers.models import Revision

CHANNEL = "workers"
"""Channel on which the web processes are told that the desired state of a worker has changed."""


def take_next_revision() -> int:
    """Return the next number, inside of a transaction: other transactions wait until it ends. So a reader that has seen
    a number has seen all changes before it, and two changes of memberships happen one after the other."""
    if not Revision.objects.filter(pk=1).update(value=F("value") + 1):
        Revision.objects.bulk_create([Revision(pk=1)], ignore_conflicts=True)
        Revision.objects.filter(pk=1).update(value=F("value") + 1)
    transaction.on_commit(lambda: pubsub.publish_message(CHANNEL, {}))
    return read_newest_revision()


def read_newest_revision() -> int:
    """Return the last number that was committed."""
    return Revision.objects.filter(pk=1).values_list("value", flat=True).first() or 0
