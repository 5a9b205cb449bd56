"""The one writer of an environment's state: every arrow of `states.ARROWS` is walked in `move`, and nowhere else. What
others read, `DevEnvironment.status`, follows in the same transaction, and so does the event."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from django.db import transaction
from django.db.models import QuerySet

from apps.clusters.models import DevEnvironment, Lease
from apps.common.clock import now
from apps.environments.models import Event, Hosted, Run
from apps.environments.states import ARROWS, State
from apps.environments.states.limits import DEADLINES
from apps.notices.services.incidents import over
from apps.scheduling import hints as scheduling
from fermi.jobs.spec import Cause


class Stale(Exception):
    """Somebody else moved the environment meanwhile, or has it now: load it again and look anew."""


class Held(Exception):
    """A task holds it: it stays as it is."""

    def __init__(self, task: str) -> None:
        super().__init__(task)
        self.task = task


def same(hosted: Hosted) -> QuerySet[Hosted]:
    """Its row, where it is still as it was loaded and, if a pass has loaded it, still that pass's."""
    rows = Hosted.objects.filter(pk=hosted.pk, state=hosted.state, run=hosted.run)
    return rows if hosted.claim is None else rows.filter(claimed_at=hosted.claim.at)


@contextmanager
def owned(hosted: Hosted) -> Iterator[None]:
    """A transaction in which nobody else moves the environment. Raises Stale, before anything is written, where its row
    is not there any more as it was loaded, or is another pass's."""
    with transaction.atomic():
        if same(hosted).select_for_update(no_key=True).values_list("pk").first() is None:
            raise Stale(hosted.pk)
        yield


def move(hosted: Hosted, to: State, cause: Cause | None = None, **fields: Any) -> None:
    """Moves it from the state and run it was loaded with, sets `fields` along, and records the event; all in one
    transaction (the caller's, if there is one). Updates the object too. Raises Stale when the row is not there any
    more as it was loaded."""
    come_from, moment = State(hosted.state), now()
    if to not in ARROWS[come_from]:
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
    started = {"started_at": moment} if to is State.RUNNING else {"started_at": None}
    with transaction.atomic():
        if not same(hosted).update(**values):
            raise Stale(hosted.pk)
        DevEnvironment.objects.filter(pk=hosted.pk).update(status=to, **started)
        record(hosted, f"ENVIRONMENT_IS_{to.upper()}", {"run": values.get("run", hosted.run), "reason": code, **params})
        if State.RUNNING in (come_from, to):
            scheduling.changed()
            over(hosted.pk, "environment_idle")
    for name, value in values.items():
        setattr(hosted, name, value)


def end(hosted: Hosted, cause: Cause) -> None:
    """The run is over, and why: from now on what is left of it goes. Of one that runs well that is refused while a task
    holds it (`Held`); the lock makes a task that is about to take it wait, and see that it is going."""
    with transaction.atomic():
        if cause.asked:
            refuse_if_held(hosted.pk)
        rows = Run.objects.filter(environment=hosted.pk, number=hosted.run, outcome="")
        rows.update(outcome=cause.code, outcome_params=dict(cause.params))
        move(hosted, State.STOPPING, cause)


def refuse_if_held(environment_id: str) -> None:
    """To be called in a transaction: until it ends nobody can take the environment. Raises Held."""
    list(DevEnvironment.objects.select_for_update().filter(pk=environment_id).values_list("pk"))
    holder = Lease.objects.filter(environment=environment_id).values_list("holder", flat=True).first()
    if holder is not None:
        raise Held(holder)


def explain(hosted: Hosted, cause: Cause) -> None:
    """Says why it waits where it is. No event, and no write when it is known already."""
    params = dict(cause.params)
    if (hosted.reason, hosted.reason_params) == (cause.code, params):
        return
    if not same(hosted).update(reason=cause.code, reason_params=params):
        raise Stale(hosted.pk)
    hosted.reason, hosted.reason_params = cause.code, params


def record(hosted: Hosted, code: str, params: Mapping[str, Any]) -> None:
    """Writes an event in the current transaction."""
    Event.objects.create(hosted=hosted, at=now(), code=code, params=dict(params))
