"""The only writer of an environment's state: every transition of `states.TRANSITIONS` is made in `change_state`.
`DevEnvironment.status`, which others read, and the event are written in the same transaction."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from django.db import transaction
from django.db.models import QuerySet

from apps.clusters.models import DevEnvironment, Lease
from apps.common import wakeups
from apps.common.clock import now
from apps.environments.models import Event, Hosted, Run
from apps.environments.states import TRANSITIONS, EnvironmentState
from apps.environments.states.deadlines import DEADLINES
from apps.notices.services.incidents import resolve_incidents
from fermi.jobs.spec import Cause

CHANNEL = "environments"
"""Channel on which workers are told that an environment is due."""


class StaleStateError(Exception):
    """Another process has changed the environment meanwhile, or has claimed it: load it again and decide anew."""


class EnvironmentInUseError(Exception):
    """A task holds the environment: it stays as it is."""

    def __init__(self, task: str) -> None:
        super().__init__(task)
        self.task = task


def filter_unchanged(hosted: Hosted) -> QuerySet[Hosted]:
    """Return a query for the row, if it is still as it was loaded and, if a pass has loaded it, still claimed by this
    pass."""
    rows = Hosted.objects.filter(pk=hosted.pk, state=hosted.state, run=hosted.run)
    return rows if hosted.claim is None else rows.filter(claimed_at=hosted.claim.at)


@contextmanager
def lock_unchanged(hosted: Hosted) -> Iterator[None]:
    """Open a transaction in which no other process changes the environment. Raises StaleStateError, before anything is
    written, if the row was changed or claimed by another pass."""
    with transaction.atomic():
        if filter_unchanged(hosted).select_for_update(no_key=True).values_list("pk").first() is None:
            raise StaleStateError(hosted.pk)
        yield


def change_state(hosted: Hosted, to: EnvironmentState, cause: Cause | None = None, **fields: Any) -> None:
    """Change the state from the state and run that were loaded, set `fields` too, and record the event, all in one
    transaction (the caller's, if there is one). Updates the object too. Raises StaleStateError if the row was changed
    meanwhile."""
    come_from, moment = EnvironmentState(hosted.state), now()
    if to not in TRANSITIONS[come_from]:
        raise ValueError(f"no arrow from {come_from} to {to}")
    code, params = (cause.code, dict(cause.params)) if cause else ("", {})
    values: dict[str, Any] = {
        "state": to,
        "state_since": moment,
        "reason": code,
        "reason_params": params,
        "deadline_at": moment + DEADLINES[to] if to in DEADLINES else None,
        **fields,
    }
    started = {"started_at": moment} if to is EnvironmentState.RUNNING else {"started_at": None}
    with transaction.atomic():
        if not filter_unchanged(hosted).update(**values):
            raise StaleStateError(hosted.pk)
        DevEnvironment.objects.filter(pk=hosted.pk).update(status=to, **started)
        record_event(
            hosted, f"ENVIRONMENT_IS_{to.upper()}", {"run": values.get("run", hosted.run), "reason": code, **params}
        )
        if EnvironmentState.RUNNING in (come_from, to):
            wakeups.enqueue_after_commit("training.sweep")
            resolve_incidents(hosted.pk, "environment_idle")
    for name, value in values.items():
        setattr(hosted, name, value)


def end_run(hosted: Hosted, cause: Cause) -> None:
    """Record that the run has ended, and why; its remains are removed from now on. If a user asked for it,
    EnvironmentInUseError is raised while a task holds the environment; a lock makes a task that is about to acquire it
    wait, and see that it is stopping."""
    with transaction.atomic():
        if cause.asked:
            require_not_held(hosted.pk)
        rows = Run.objects.filter(environment=hosted.pk, number=hosted.run, outcome="")
        rows.update(outcome=cause.code, outcome_params=dict(cause.params))
        change_state(hosted, EnvironmentState.STOPPING, cause)


def require_not_held(environment_id: str) -> None:
    """Lock the environment, so that no task can acquire it until the transaction ends. Raises EnvironmentInUseError."""
    list(DevEnvironment.objects.select_for_update().filter(pk=environment_id).values_list("pk"))
    holder = Lease.objects.filter(environment=environment_id).values_list("holder", flat=True).first()
    if holder is not None:
        raise EnvironmentInUseError(holder)


def record_wait_reason(hosted: Hosted, cause: Cause) -> None:
    """Record why the environment waits. No event, and no write if it is recorded already. Raises StaleStateError."""
    params = dict(cause.params)
    if (hosted.reason, hosted.reason_params) == (cause.code, params):
        return
    if not filter_unchanged(hosted).update(reason=cause.code, reason_params=params):
        raise StaleStateError(hosted.pk)
    hosted.reason, hosted.reason_params = cause.code, params


def record_event(hosted: Hosted, code: str, params: Mapping[str, Any]) -> None:
    """Write an event in the current transaction."""
    Event.objects.create(hosted=hosted, at=now(), code=code, params=dict(params))


def wake_environment(environment_id: str) -> None:
    """Make the environment due, and wake the reconciler after the current transaction is committed."""
    Hosted.objects.filter(pk=environment_id).update(due_at=now())
    wake_reconciler()


def wake_reconciler() -> None:
    """Wake the reconciler after the current transaction is committed."""
    transaction.on_commit(lambda: wakeups.publish_soon(CHANNEL, {}))
