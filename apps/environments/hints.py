"""Messages that make things happen sooner. None of them is needed: the sweep finds every due environment by itself."""

from django.db import transaction

from apps.common.clock import now
from apps.common.wakeups import publish_soon
from apps.environments.models import Hosted

CHANNEL = "environments"
"""Channel on which workers are told that an environment is due."""


def wake_environment(environment_id: str) -> None:
    """Make the environment due, and wake the reconciler after the current transaction is committed."""
    Hosted.objects.filter(pk=environment_id).update(due_at=now())
    wake_reconciler()


def wake_reconciler() -> None:
    """Wake the reconciler after the current transaction is committed."""
    transaction.on_commit(lambda: publish_soon(CHANNEL, {}))
