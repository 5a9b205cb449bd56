"""Drains environments before maintenance of the machines behind them."""

from collections.abc import Iterable

from apps.accounts.models import User
from apps.clusters.models import DevEnvironment, Lease
from apps.clusters.services import change_environment
from apps.training.services import actions


def drain_environments(user: User, environments: Iterable[DevEnvironment]) -> list[str]:
    """Cordon the environments, then stop the tasks that hold them; return the stopped tasks' ids. Checkpoints are saved
    as with any stop, and a retry resumes from them."""
    drained = list(environments)
    for environment in drained:
        change_environment(user, environment, {"cordoned": True})
    holders = Lease.objects.filter(environment__in=drained).values_list("holder", flat=True)
    return [actions.stop_task_of_any_kind(user, task_id).pk for task_id in sorted(set(holders))]
