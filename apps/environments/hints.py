"""Messages that make things happen sooner. None of them is needed: the sweep finds every due environment by itself."""

from django.db import transaction

from apps.common.clock import now
from apps.common.hints import send
from apps.environments.models import Hosted


def poke(environment_id: str) -> None:
    """Have it looked at as soon as the current transaction is committed."""
    Hosted.objects.filter(pk=environment_id).update(due_at=now())
    transaction.on_commit(lambda: send("environments.reconcile", environment_id))
